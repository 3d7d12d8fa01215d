"""Loading cases, beyond the seeds and invalid input: equal formats, lazy reading, flat memory."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentv import AgentvError, Message, collect_warnings, load_eval_cases
from tests.kits.generated import files
from tests.kits.project import PRINT_PEAK_KB, Write, a_case


class Dumper(yaml.SafeDumper):
    """Writes YAML 1.1, and quotes numbers of YAML 1.2."""


Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?$|0o[0-7]+$"), None)


@pytest.mark.slow  # generated values take seconds, few or many
@given(files, st.booleans())
def test_the_same_content_in_both_formats_gives_equal_cases(
    tmp_path_factory: pytest.TempPathFactory, written: list[dict[str, Any]], flow: bool
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    jsonl = folder / "data.jsonl"
    jsonl.write_text("".join(json.dumps(case, ensure_ascii=flow) + "\n" for case in written), encoding="utf-8")
    dumped = yaml.dump(
        {"evalcases": written}, Dumper=Dumper, allow_unicode=True, default_flow_style=flow, sort_keys=False
    )
    (folder / "other.yaml").write_text(dumped, encoding="utf-8")

    from_yaml, from_jsonl = list(load_eval_cases(folder / "other.yaml")), list(load_eval_cases(jsonl))

    assert from_yaml == from_jsonl
    assert [case.id for case in from_jsonl] == [case["id"] for case in written]


def test_cases_with_different_content_are_not_equal(write: Write) -> None:
    one, other = load_eval_cases(write("a.jsonl", [a_case("a"), a_case("b")]))
    (same,) = load_eval_cases(write("b.jsonl", [a_case("a")]))
    assert one == same
    assert one != other
    assert one != "one"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("on", "on"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("2026-11-15", "2026-11-15"),
        ("1_000", "1_000"),
        ("0777", 777),
        ("0o17", 15),
        ("0xff", 255),
        ("+3", 3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("TRUE", True),
        ("~", None),
        ("", None),
        ("'42'", "42"),
        ('"true"', "true"),
        ("!!str 42", "42"),
        ("!!int 42", 42),
        ("=", "="),
    ],
)
def test_yaml_types_are_those_of_the_core_schema(write: Write, text: str, value: object) -> None:
    path = write("a.yaml", f"evalcases:\n- id: a\n  outcome: x\n  input: y\n  metadata:\n    key: {text}\n    404: z\n")
    (case,) = load_eval_cases(path)
    assert case.metadata is not None
    assert (case.metadata["key"], type(case.metadata["key"])) == (value, type(value))
    assert case.metadata["404"] == "z"


def test_aliases_of_fields(write: Write) -> None:
    entry = {"id": "a", "outcome": "Goal", "input": "Hi", "expected_output": {"n": 1}}
    (case,) = load_eval_cases(write("a.jsonl", [entry]))
    assert case.expected_outcome == "Goal"
    assert case.input_messages == (Message(role="user", content="Hi"),)
    assert case.expected_messages == (Message(role="assistant", content={"n": 1}),)


def test_a_field_name_takes_precedence_over_its_alias(write: Write) -> None:
    entry = a_case(outcome="no", input="no", expected_output="no", expected_messages=[{"role": "tool", "content": "y"}])
    (case,) = load_eval_cases(write("a.jsonl", [entry]))
    assert case.expected_outcome == "Goal"
    assert case.input_messages[0].content == "Query"
    assert case.expected_messages == (Message(role="tool", content="y"),)


def test_null_equals_a_missing_field(write: Write) -> None:
    entry = a_case(conversation_id=None, execution=None, rubrics=None, description=None, expected_messages=None)
    assert list(load_eval_cases(write("a.jsonl", [entry]))) == list(load_eval_cases(write("b.jsonl", [a_case()])))


def test_evaluators_of_a_file_and_of_a_case(write: Write) -> None:
    write("a.yaml", "evaluators: [{type: file}]\n")
    entries = [
        a_case("none"),
        a_case("short", evaluators=[{"type": "case"}]),
        a_case("long", execution={"evaluators": [{"type": "case"}]}),
        a_case("empty", evaluators=[]),
    ]
    found = {case.id: case.evaluators for case in load_eval_cases(write("a.jsonl", entries))}
    own = ({"type": "case"},)
    assert found == {"none": ({"type": "file"},), "short": own, "long": own, "empty": ()}


def test_cases_come_one_by_one(write: Write) -> None:
    path = write("a.jsonl", json.dumps(a_case("first")) + "\nnot JSON\n")
    found = load_eval_cases(path)
    assert next(found).id == "first"
    with pytest.raises(AgentvError, match="Line 2: Invalid JSON"):
        next(found)


def test_skipped_cases_are_not_duplicates(write: Write) -> None:
    with collect_warnings() as warnings:
        found = list(load_eval_cases(write("a.jsonl", [a_case("a"), {"id": "a"}])))
    assert len(found) == 1
    assert [w.message for w in warnings] == ["Line 2: missing expected_outcome, input_messages; case 'a' is skipped"]


def test_uncollected_warnings_are_logged(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    path = write("a.jsonl", [a_case("a"), {"id": "b"}])
    list(load_eval_cases(path))
    (record,) = caplog.records
    assert record.name == "agentv"
    assert record.getMessage().startswith(f"{path}:2:1: Line 2: missing expected_outcome")


MEASURE = f"""
import sys
from agentv import load_eval_cases
print(sum(1 for _ in load_eval_cases(sys.argv[1])))
{PRINT_PEAK_KB}
"""


def peak_kb(path: Path, cases: int) -> int:
    with path.open("w") as file:
        for number in range(cases):
            file.write(json.dumps(a_case(f"case-{number}")) + "\n")
    run = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
    count, peak = map(int, run.stdout.split())
    assert count == cases
    return peak


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: Path) -> None:
    small, large = peak_kb(tmp_path / "small.jsonl", 10_000), peak_kb(tmp_path / "large.jsonl", 200_000)
    assert large - small < 10_000
