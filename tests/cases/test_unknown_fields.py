"""Unknown fields: an error in `validate`, a warning in `eval`, in both formats."""

import json
from pathlib import Path

import pytest

from agentv.cases.expand import Inspection
from agentv.cases.read import read_eval_file
from agentv.records import Problem
from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import ANY, MOCK, evaluate

METADATA = "put custom data under 'metadata', which is copied to the result"


def write_case(write: Write, name: str, **fields: object) -> Path:
    write("targets.yaml", MOCK)
    case = a_case("a", evaluators=[ANY], **fields)
    if name == "a.yaml":
        lines = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in case.items())
        return write(name, "evalcases:\n  - \n" + lines)
    return write(name, [case])


def unknown(path: Path) -> list[Problem]:
    found: list[Problem] = []
    list(read_eval_file(path, found.append, Inspection(found.append)))
    return found


@pytest.mark.parametrize("name", ["a.yaml", "a.jsonl"])
@pytest.mark.parametrize(
    ("key", "message", "hint"),
    [
        ("setup", "unknown field", METADATA),
        ("executon", "unknown field", "did you mean 'execution'?"),
        ("target", "unknown field", "move it to 'execution:', for example 'execution: {target: …}'"),
        ("hooks", "unknown field", METADATA),
        ("question", "unknown field", "did you mean 'input'?"),
        ("ideal", "unknown field", "did you mean 'expected_output'?"),
        ("assert", "unknown field", "did you mean 'evaluators'?"),
    ],
)
def test_an_unknown_field_of_a_case(write: Write, name: str, key: str, message: str, hint: str) -> None:
    path = write_case(write, name, **{key: {"target": "other"}})
    (problem,) = unknown(path)
    text = path.read_text()
    line = text[: text.index(key)].count("\n") + 1
    column = len(text[: text.index(key)].rpartition("\n")[2]) + 1
    if name == "a.jsonl":
        column -= 1  # the quote
    place = f"{name}:{line}:{column}"
    assert (problem.line, problem.column) == (line, column)
    checked = agentv("validate", name)
    assert checked.returncode == 1
    assert f"{place}: error: {key}: {message} ({hint})\n" in checked.stdout
    ran = evaluate(name)
    assert f"warning: {place}: {key}: {message}, ignored" in flat(ran.stderr)
    assert hint in flat(ran.stderr)


@pytest.mark.parametrize("name", ["a.yaml", "a.jsonl"])
def test_an_unknown_field_of_execution(write: Write, name: str) -> None:
    path = write_case(write, name, execution={"targt": "other"})
    (problem,) = unknown(path)
    assert (problem.message, problem.hint) == ("execution.targt: unknown field", "did you mean 'target'?")


def test_a_repeated_field_is_one_warning_with_a_count_and_an_example(write: Write) -> None:
    write("targets.yaml", MOCK)
    count = 3000
    cases = [a_case(str(number), evaluators=[ANY], source="web", topic=number) for number in range(count)]
    path = write("a.jsonl", [a_case("first", evaluators=[ANY]), *cases])
    found = unknown(path)
    assert [(problem.line, problem.message) for problem in found] == [
        (2, "source: unknown field (in 3,000 cases)"),
        (2, "topic: unknown field (in 3,000 cases)"),
    ]
    ran = evaluate("a.jsonl", "--limit", "1")
    assert flat(ran.stderr).count("source: unknown field (in 3,000 cases), ignored") == 1
    assert ran.stderr.count("warning: ") == 2


def test_many_different_names_are_cut_off(write: Write) -> None:
    path = write("a.jsonl", [a_case(str(number), **{f"column {number}": 1}) for number in range(30)])
    found = unknown(path)
    assert len(found) == 21
    assert found[-1].message == "more than 20 different unknown fields"


@pytest.mark.parametrize("name", ["a.yaml", "a.jsonl"])
def test_fields_that_are_accepted(write: Write, name: str) -> None:
    path = write_case(
        write,
        name,
        conversation_id="c",
        execution={"target": "default"},
        rubrics=["polite"],
        description="d",
        metadata={"anything": {"tags": ["x"]}},
        expected_output="x",
        **{"x-note": "my own", "pass": "all"},
    )
    assert unknown(path) == []


def test_fields_of_a_file_and_of_a_sidecar(write: Write) -> None:
    write("targets.yaml", MOCK)
    case = "evalcases: [{id: a, expected_outcome: x, input: x, evaluators: [{type: contains, value: ''}]}]\n"
    write("a.yaml", f"$schema: x\nx-shared: 1\nhook: {{before_all: 'true'}}\nowner: me\n{case}")
    assert [(problem.line, problem.message) for problem in unknown(Path("a.yaml"))] == [
        (3, "hook: unknown field"),
        (4, "owner: unknown field"),
    ]
    write("b.jsonl", [a_case(evaluators=[ANY])])
    write("b.yaml", "dataset: b\nowner: me\n")
    ran = evaluate("b.jsonl")
    assert "warning: b.yaml:2:1: owner: unknown field, ignored" in flat(ran.stderr)
    assert (
        "known fields: $schema, dataset, description, evaluator, evaluators, execution, hooks, metrics, pass"
        in flat(ran.stderr)
    )
