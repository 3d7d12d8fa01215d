"""Cases that a function yields."""

from pathlib import Path

import pytest

from tests.kits.project import Write, agentv
from tests.kits.runs import results

CODE = """
import pathlib

def cases():
    calls = pathlib.Path(__file__).with_name("calls")
    times = len(calls.read_text()) if calls.exists() else 0
    calls.write_text("." * (times + 1))
    for n in range(4):
        yield {"id": f"c{n}", "input": "{{ vars.n }}", "outcome": "x", "vars": {"n": n}}
"""
FILE = "cases_from: make.py:cases\nevaluators: [{type: contains, value: '{{ vars.n }}'}]\n"


@pytest.fixture
def project(write: Write) -> Path:
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    write("agent.py", "def answer(question): return question")
    write("make.py", CODE)
    return write("a.yaml", FILE)


def test_a_function_is_called_once_to_check_and_once_to_run(project: Path) -> None:
    ran = agentv("eval", project, "--out", "out.jsonl")
    assert ran.returncode == 0
    assert [(row["eval_id"], row["score"], row["vars"]) for row in results("out.jsonl")] == [
        (f"c{n}", 1.0, {"n": n}) for n in range(4)
    ]
    assert project.with_name("calls").read_text() == ".."


@pytest.mark.parametrize(
    ("change", "count", "message"),
    [
        ("n if n != 2 else times", 2, "case 3 differs from the one that was checked"),
        ("n}}\n    if times: yield {'id': 'more', 'input': 'x', 'outcome': 'x", 4, "case 5 differs from the one"),
        (
            "n}}\n        if times and n == 1: return\n        {'a': {'b': 1",
            2,
            "the function yielded 2 cases, but 4 when",
        ),
    ],
)
def test_a_run_stops_at_the_first_difference(
    project: Path, write: Write, change: str, count: int, message: str
) -> None:
    write("make.py", CODE.replace('{"n": n}}', f'{{"n": {change}}}}}').replace("'x}}", "'x'}"))
    ran = agentv("eval", project, "--out", "out.jsonl")
    assert ran.returncode == 1
    assert f"a.yaml:1:1: cases_from: {message}" in ran.stderr
    assert len(results("out.jsonl")) == count


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def cases(): yield 5", "cases_from: case 1 is not a mapping but int"),
        ("def cases(): yield {'id': '\\ud800'}", "cases_from: case 1 cannot be written as JSON"),
        (
            "def cases(): raise ValueError('no data')",
            "cases_from: make.py:cases failed: make.py:1 in cases: ValueError: no data",
        ),
        ("def cases(): yield {'id': 'a'}", "cases_from: case 1: missing expected_outcome, input_messages"),
        (
            "def cases(): yield {'id': 'a', 'outcome': 'x', 'input': '{{ vars.x }}'}",
            "cases_from: case 1: input: unknown variable {{ vars.x }}",
        ),
        ("def cases(): return [{'id': 'a', 'outcome': 'x', 'input': 'y'}] * 2", "duplicate id 'a', first on line 1"),
        ("async def cases(): yield {}", "cases_from: make.py:cases is async"),
        ("def case(): yield {}", "cases_from: make.py has no function 'cases'"),
    ],
)
def test_problems_of_a_function_are_located_where_it_is_named(
    project: Path, write: Write, code: str, message: str
) -> None:
    write("make.py", code)
    ran = agentv("eval", project, "--strict")
    assert ran.returncode == 2
    assert f"a.yaml:1:1: {message}" in ran.stderr


def test_validate_does_not_call_the_function(project: Path, write: Write) -> None:
    ran = agentv("validate", project)
    assert ran.returncode == 0
    assert not project.with_name("calls").exists()
    write("a.yaml", FILE.replace("make.py:cases", "make.py:case"))
    ran = agentv("validate", project)
    assert ran.returncode == 1
    assert "a.yaml:1:1: error: cases_from: make.py has no function 'case' (did you mean 'cases'?)" in ran.stdout


def test_cases_of_the_file_come_before_those_of_the_function(project: Path, write: Write) -> None:
    write("a.yaml", FILE + "evalcases: [{id: first, input: '7', outcome: x, vars: {n: 7}}]\n")
    agentv("eval", project, "--out", "out.jsonl")
    assert [row["eval_id"] for row in results("out.jsonl")] == ["first", "c0", "c1", "c2", "c3"]


def test_resume_keeps_the_results_of_a_function_s_cases(project: Path) -> None:
    agentv("eval", project, "--out", "out.jsonl", "--limit", "2")
    ran = agentv("eval", project, "--out", "out.jsonl", "--resume")
    assert ran.returncode == 0
    assert len(results("out.jsonl")) == 4


def test_a_function_that_exits_is_an_error(project: Path, write: Write) -> None:
    write("make.py", "def cases(): raise SystemExit(3)")
    ran = agentv("eval", project)
    assert ran.returncode == 2
    assert "a.yaml:1:1: cases_from: make.py:cases failed: " in ran.stderr
    assert "SystemExit: 3" in ran.stderr
