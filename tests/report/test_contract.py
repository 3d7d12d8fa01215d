"""The contract of Python and the pages: field names, flag bits, bin edges and thresholds."""

import importlib.util
import json
import re
from array import array
from pathlib import Path

import msgspec
import pytest

from agentv import records, scoring
from agentv.report.page import index
from agentv.report.page.bundle import asset
from agentv.report.page.figures import ErrorCount, EvaluatorRow, JudgeHealthFigures, RunFigures, Tokens
from agentv.report.page.meta import ComparisonMeta, EmbeddedPageMeta, EmbeddedRunMeta, LineBlocks
from agentv.results.summary import EDGES
from agentv.trust.review import MAX_CHOSEN, MAX_NAME, MAX_NOTE
from agentv.view.routes import IndexState
from agentv.view.runs import Run, RunList

ROOT = Path(__file__).parent.parent.parent
_spec = importlib.util.spec_from_file_location("page_contract", ROOT / "scripts" / "page_contract.py")
assert _spec is not None and _spec.loader is not None
page_contract = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(page_contract)

SOURCE = ROOT / "src" / "agentv"
ASSETS = [SOURCE / folder / "assets" for folder in ("report/page", "view")]
SOURCES = {path.name: path.read_text() for folder in ASSETS for path in sorted(folder.glob("*.js"))}
ONLY_READ_BY_PYTHON = {
    "RunFigures": {
        "mean_low",
        "mean_high",
        "pass_low",
        "pass_high",
        "judge_cost",
        "ended",
        "seconds",
        "unplanned_results",
    },
}
"""Fields that sentences and the list of runs are made from."""
TYPED_ARRAYS = {"B": "Uint8Array", "H": "Uint16Array", "I": "Uint32Array", "f": "Float32Array", "d": "Float64Array"}


@pytest.mark.parametrize("path", page_contract.written_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_is_written_for_the_pages_is_up_to_date(path: Path) -> None:
    assert path.read_text() == page_contract.written_files()[path], "run `make schemas`"


STRUCTS = (
    *(EmbeddedPageMeta, EmbeddedRunMeta, LineBlocks, ComparisonMeta),
    *(RunFigures, EvaluatorRow, ErrorCount, Tokens, JudgeHealthFigures),
    *(IndexState, RunList, Run),
)


@pytest.mark.parametrize("struct", STRUCTS)
def test_every_field_is_read_by_a_page(struct: type[msgspec.Struct]) -> None:
    code = "\n".join(SOURCES.values())
    not_read = {name for name in struct.__struct_fields__ if not re.search(rf"\.{name}\b|[{{,]\s*{name}\b", code)}
    assert not_read <= ONLY_READ_BY_PYTHON.get(struct.__name__, set())


def constants(text: str) -> dict[str, object]:
    """The numbers, and lists of numbers, that a module declares."""
    found = re.findall(r"^(?:export )?const (\w+) = ([\d._]+|\[[\d., ]+\]);$", text, re.MULTILINE)
    return {name: json.loads(value.replace("_", "")) for name, value in found}


def test_the_thresholds_of_verdicts_are_edges_of_bins() -> None:
    assert {records.PASS, records.BORDERLINE} <= set(EDGES)
    verdicts = [{"fail": 0, "borderline": 1, "pass": 2}[scoring.verdict_of(edge)] for edge in (0.0, *EDGES)]
    assert constants(asset("constants.js"))["BIN_VERDICTS"] == verdicts


def test_flags_bins_and_thresholds_are_defined_once() -> None:
    numbers = re.compile(r"\b0\.[2468]\b(?!\d)")
    for name, text in SOURCES.items():
        code = re.sub(r"/\*(?:[^*]|\*(?!/))*\*/|//.*", "", text)
        places = [line.strip() for line in code.splitlines() if "score" in line.lower() and numbers.search(line)]
        assert places == [] or name == "constants.js", name
        assert not re.search(r"flags?(\[\w+\])? & \d", code), name


def test_the_columns_have_the_names_the_types_and_the_order_of_python() -> None:
    found = re.findall(r'^  column\("(\w+)", (\w+)(, true)?\),$', asset("columns.js"), re.MULTILINE)
    columns = index.RunIndex()
    expected = []
    for block, _ in columns.columns():
        attribute = block.replace("-", "_")
        name = re.sub(r"-(\w)", lambda letter: letter[1].upper(), block)
        values = getattr(columns, attribute)
        code = values.typecode if isinstance(values, array) else "B"
        is_per_evaluator = block.startswith("evaluator-") and block != "evaluator-counts"
        expected.append((name, TYPED_ARRAYS[code], ", true" if is_per_evaluator else ""))
    assert found == expected


def test_the_limits_of_labels_are_those_of_python() -> None:
    assert constants(SOURCES["review.js"])["MAX_NOTE"] == MAX_NOTE
    assert constants(SOURCES["reviewform.js"])["MAX_NAME"] == MAX_NAME
    assert constants(SOURCES["livepage.js"])["MAX_CHOSEN"] == MAX_CHOSEN
