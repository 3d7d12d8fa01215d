"""The figures of a run: Python and the browser compute the same from the same results.

`figures.json` has the vectors: the results of one run or of two, and what they come to. A case without results in a run
is null. The browser's module runs in Node.
"""

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentv.report.page.index import Rows, RunIndex
from agentv.report.page.sums import Cases, case_sums, count_flips
from agentv.results.views import PageView
from tests.kits.node import require_node

ROOT = Path(__file__).parent.parent.parent
ASSETS = ROOT / "src" / "agentv" / "report" / "page" / "assets"
RUNNER = ROOT / "tests" / "kits" / "figures.mjs"
VECTORS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("figures.json").read_text())
by_vector = pytest.mark.parametrize("vector", VECTORS, ids=[each["name"] for each in VECTORS])


def indexes_of(vector: dict[str, Any]) -> tuple[list[RunIndex], int]:
    """The columns of the runs of a vector, and how many rows their page has."""
    rows = Rows()
    indexes = []
    for run in vector["runs"]:
        index = RunIndex()
        for result in run["results"]:
            view = msgspec.convert(result, PageView)
            index.add(rows.number(view.eval_id, view.eval_id), view)
        indexes.append(index)
    return indexes, len(rows)


def comparable(sums: dict[str, Any]) -> dict[str, Any]:
    """Sums in which numbers are compared with a tolerance, and shares in any order."""
    shares = {round(share, 9): count for share, count in sums["shares"]}
    rounded = {name: round(value, 9) if isinstance(value, float) else value for name, value in sums.items()}
    evaluators = [
        {name: round(value, 9) if isinstance(value, float) else value for name, value in each.items()}
        for each in sums["evaluators"]
    ]
    return rounded | {"shares": shares, "evaluators": evaluators, "histogram": list(sums["histogram"])}


@by_vector
def test_figures_of_python(vector: dict[str, Any]) -> None:
    indexes, rows = indexes_of(vector)
    all_cases = [Cases(index, rows) for index in indexes]
    for run, index, cases in zip(vector["runs"], indexes, all_cases, strict=True):
        found = msgspec.to_builtins(case_sums(index, rows))
        assert comparable(found) == comparable(run["sums"])
        known = [case for case in run["cases"] if case is not None]
        scores = [case["score"] for case in known if case["score"] is not None]
        assert list(cases.means) == pytest.approx(scores)
        assert [bool(seen) for seen in cases.seen] == [case is not None for case in run["cases"]]
        passed = [case is not None and case["verdict"] == "pass" for case in run["cases"]]
        assert [bool(each) for each in cases.passed] == passed
    if len(indexes) == 2:
        assert msgspec.to_builtins(count_flips(*all_cases)) == vector["flips"]


@pytest.fixture(scope="module")
def from_browser() -> list[dict[str, Any]]:
    """The output of figures.js for all vectors."""
    vectors = []
    for vector in VECTORS:
        indexes, rows = indexes_of(vector)
        vectors.append([as_json(index, rows) for index in indexes])
    ran = subprocess.run(
        [require_node(), str(RUNNER), ASSETS.as_uri()],
        input=json.dumps(vectors),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def as_json(index: RunIndex, rows: int) -> dict[str, Any]:
    """The columns of a run as JSON; an unknown number is null."""
    columns = {}
    for block, _ in index.columns():
        values = getattr(index, block.replace("-", "_"))
        columns[block] = [None if isinstance(value, float) and math.isnan(value) else value for value in values]
    return {"columns": columns, "rows": rows, "evaluators": list(index.names.evaluators)}


@by_vector
def test_figures_of_the_browser(vector: dict[str, Any], from_browser: list[dict[str, Any]]) -> None:
    found = from_browser[VECTORS.index(vector)]
    for run, own in zip(vector["runs"], found["runs"], strict=True):
        assert comparable(own["sums"]) == comparable(run["sums"])
        for expected, case in zip(run["cases"], own["cases"], strict=True):
            assert (case is None) == (expected is None)
            if case is None:
                continue
            assert case["verdict"] == expected["verdict"]
            assert case["score"] == (expected["score"] and pytest.approx(expected["score"]))
            assert case["duration"] == (expected["duration"] and pytest.approx(expected["duration"]))
            assert case["cost"] == (expected["cost"] and pytest.approx(expected["cost"]))
    assert found["flips"] == vector.get("flips")
