"""Errors in the settings of an evaluator are located where the settings are written."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from agentv import load_eval_cases
from agentv.evaluators.build import EvaluatorBuilder
from agentv.records import Problem
from tests.kits.project import Write, agentv

MARK = "§"
"""Stands before the place that the problem should have."""
LINES = """\
{"id": "a", "outcome": "o", "input": "é?"}
{"id": "b", "outcome": "o", "input": "é?"}
"""
CASES = """\
evalcases:
  - {id: a, outcome: o, input: q}
  - {id: b, outcome: o, input: q}
"""
WEIGHT = "wieght: unknown field"
SETTINGS: dict[str, tuple[Mapping[str, str], str]] = {
    "the sidecar": (
        {"e.jsonl": LINES, "e.yaml": "dataset: d\nevaluators:\n  - type: contains\n    value: x\n    §wieght: 2\n"},
        f"evaluators[0].{WEIGHT}",
    ),
    "the sidecar's execution": (
        {"e.jsonl": LINES, "e.yaml": "execution:\n  evaluators:\n    - {type: contains, value: x, §wieght: 2}\n"},
        f"execution.evaluators[0].{WEIGHT}",
    ),
    "the sidecar, inside of a composite": (
        {
            "e.jsonl": LINES,
            "e.yaml": "evaluators:\n- type: composite\n  evaluators:\n  - {type: equals, value: x, §wieght: 2}\n",
        },
        f"evaluators[0].evaluators[0].{WEIGHT}",
    ),
    "the sidecar's evaluator": (
        {"e.jsonl": LINES, "e.yaml": "dataset: d\n§evaluator: latency\n"},
        "evaluator: missing threshold",
    ),
    "the file": (
        {"e.yaml": f"evaluators:\n  - type: contains\n    value: x\n    §wieght: 2\n{CASES}"},
        f"evaluators[0].{WEIGHT}",
    ),
    "the file's execution": (
        {"e.yaml": f"{CASES}execution:\n  evaluators:\n    - {{type: equals, value: x}}\n    - {{§type: equal}}\n"},
        "execution.evaluators[1]: unknown evaluator type 'equal'",
    ),
    "the file, inside of a composite": (
        {"e.yaml": f"{CASES}evaluators:\n- type: composite\n  evaluators:\n  - type: equals\n    §value: 1\n"},
        "evaluators[0].evaluators[0].value: expected a string or an array, got an integer",
    ),
    "the file's evaluator": (
        {"e.yaml": f"{CASES}§evaluator: latencey\n"},
        "evaluator: unknown evaluator type 'latencey'",
    ),
    "a case in YAML": (
        {
            "e.yaml": f"{CASES}    evaluators:\n    - type: contains\n      value: x\n      §wieght: 2\n".replace(
                "{id: b, outcome: o, input: q}", "id: b\n    outcome: o\n    input: q"
            )
        },
        f"case 'b': evaluators[0].{WEIGHT}",
    ),
    "the execution of a case in YAML": (
        {"e.yaml": CASES.replace("id: b,", "id: b, execution: {evaluators: [{type: equals, value: x, §wieght: 2}]},")},
        f"case 'b': execution.evaluators[0].{WEIGHT}",
    ),
    "a case in YAML, inside of a composite": (
        {
            "e.yaml": CASES.replace(
                "id: b,",
                "id: b, evaluators: [{type: composite, evaluators: [{type: is_json}, {type: equals, §value: []}]}],",
            )
        },
        "case 'b': evaluators[0].evaluators[1].value: must not be empty",
    ),
    "the rubrics of a case in YAML": (
        {"e.yaml": CASES.replace("id: b,", "id: b, rubrics: [clear, {description: short, §weight: -1}],")},
        "case 'b': rubrics[1].weight: must be at least 0, got -1",
    ),
    "the evaluator of a case in YAML": (
        {"e.yaml": CASES.replace("id: b,", "id: b, §evaluator: latency,")},
        "case 'b': evaluator: missing threshold",
    ),
    "a prompt of a case in YAML": (
        {"e.yaml": CASES.replace("id: b,", "id: b, evaluators: [{type: llm_judge, §prompt: none.md}],")},
        "case 'b': evaluators[0]: prompt: no such file: none.md",
    ),
    "a case in JSONL": (
        {"e.jsonl": LINES.replace('"b",', '"b", "evaluators": [{"type": "equals", "value": "x", §"wieght": 2}],')},
        f"case 'b': evaluators[0].{WEIGHT}",
    ),
    "the execution of a case in JSONL": (
        {"e.jsonl": LINES.replace('"b",', '"b", "execution": {"evaluators": [{§"type": "equal"}]},')},
        "case 'b': execution.evaluators[0]: unknown evaluator type 'equal'",
    ),
    "a case in JSONL with a sidecar": (
        {
            "e.jsonl": LINES.replace('"b",', '"b", "evaluators": [{"type": "equals", "value": "x", §"wieght": 2}],'),
            "e.yaml": "evaluators: [{type: contains, value: x}]\n",
        },
        f"case 'b': evaluators[0].{WEIGHT}",
    ),
    "the rubrics of a case in JSONL": (
        {
            "e.jsonl": LINES.replace(
                '"é?"}\n{"id": "b"', '"é?"}\n{"id": "b", "rubrics": ["é", {§"text": "x", "description": "y"}]'
            )
        },
        "case 'b': rubrics[1].text: unknown field",
    ),
    "the evaluator of a case in JSONL": (
        {"e.jsonl": LINES.replace('"b",', '"b", §"evaluator": "latency",')},
        "case 'b': evaluator: missing threshold",
    ),
    "a pattern in JSONL, inside of a composite": (
        {
            "e.jsonl": LINES.replace(
                '"b",', '"b", "evaluators": [{"type": "composite", "evaluators": [{"type": "regex", §"value": "("}]}],'
            )
        },
        "case 'b': evaluators[0].evaluators[0]: invalid pattern '('",
    ),
}


def written(write: Write, files: Mapping[str, str]) -> tuple[str, int, int]:
    """Write the files without their mark; the file, the line and the column that had it."""
    write("targets.yaml", "targets: [{name: default, provider: mock, judge_target: default}]\n")
    place = None
    for name, text in files.items():
        write(name, text.replace(MARK, ""))
        if MARK in text:
            before = text.partition(MARK)[0]
            place = name, before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    assert place is not None
    return place


@pytest.mark.parametrize(("files", "message"), SETTINGS.values(), ids=SETTINGS.keys())
def test_an_error_is_reported_once_with_its_location(write: Write, files: Mapping[str, str], message: str) -> None:
    file, line, column = written(write, files)
    first = next(iter(files))

    validated = [found for found in agentv("validate", first).stdout.splitlines() if " error: " in found]
    assert len(validated) == 1, validated
    assert validated[0].startswith(f"{file}:{line}:{column}: error: {message}")

    ran = agentv("eval", first)
    errors = [found for found in ran.stderr.splitlines() if found.startswith("error: ")]
    assert (ran.returncode, len(errors)) == (2, 1), ran.stderr
    place = f"{file}:{line}:{column}"
    assert errors[0].startswith(f"error: {place}: {message}")
    assert {(str(p.file), p.line, p.column) for p in planned(first)} == {(file, line, column)}


def planned(name: str) -> list[Problem]:
    """The problems that a run reports for the evaluators of each case."""
    builder = EvaluatorBuilder()
    return [problem for case in load_eval_cases(name) for problem in builder.problems(case, "default")]


def test_equal_errors_in_two_cases_are_reported_in_both(write: Write) -> None:
    wrong = '"evaluators": [{"type": "equals", "value": 1}]'
    write("e.jsonl", "\ufeff" + LINES.replace('"outcome": "o"', f'"outcome": "o", {wrong}'))
    found = [line.split(": ")[:3] for line in agentv("validate", "e.jsonl").stdout.splitlines()[:-1]]
    assert found == [["e.jsonl:1:63", "error", "case 'a'"], ["e.jsonl:2:63", "error", "case 'b'"]]


def test_errors_behind_an_alias_are_located_at_the_alias(write: Write) -> None:
    write(
        "e.yaml",
        "evaluators: &e [{type: equals, value: 1}]\nevalcases:\n- {id: a, outcome: o, input: q, evaluators: *e}\n",
    )
    assert [(p.line, p.column) for p in planned("e.yaml")] == [(3, 33)]


def test_a_warning_has_its_location(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, judge_target: default}]\n")
    write("e.jsonl", LINES)
    write("e.yaml", "evaluators:\n  - type: llm_judge\n    prompt: '{{ candidate_answer }} {{ taste }}'\n")
    ran = agentv("eval", "e.jsonl", "--dry-run")
    assert ran.stderr.count("unknown variable") == 1
    assert ran.stderr.count(": evaluators[0]: prompt: unknown variable {{ taste }}") == 1


def test_a_file_that_changed_in_the_meantime_gives_the_line_of_the_case(write: Write) -> None:
    wrong = '"evaluators": [{"type": "equals", "value": 1}]'
    write("e.jsonl", LINES.replace('"outcome": "o"', f'"outcome": "o", {wrong}'))
    cases = list(load_eval_cases("e.jsonl"))
    Path("e.jsonl").write_text("not JSON\n")
    found = [problem for case in cases for problem in EvaluatorBuilder().problems(case, "default")]
    assert [(p.line, p.column) for p in found] == [(1, 1), (2, 1)]
