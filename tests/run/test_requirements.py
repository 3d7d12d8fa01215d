"""`--require`: cases that must pass."""

import asyncio

import pytest

import agentv as package
from agentv.errors import AgentvError
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK, evaluate, results

MISS = {"type": "contains", "value": "goodbye"}


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", MOCK)
    cases = [
        a_case("one", tags=["critical"], evaluators=[HELLO]),
        a_case("two", tags=["critical", "new"], evaluators=[MISS]),
        a_case("three", evaluators=[MISS]),
        a_case("four", tags=["off"], skip="later", evaluators=[HELLO]),
    ]
    write("a.jsonl", cases)
    return write


def missed(*args: str, code: int = 1) -> list[str]:
    """Return the lines about gates that were missed."""
    ran = agentv("eval", "a.jsonl", *args)
    assert ran.returncode == code, ran.stderr
    return [line for line in ran.stderr.splitlines() if line.startswith("error: ")]


def test_all_required_cases_must_pass(project: Write) -> None:
    assert missed("--require", "id:one", code=0) == []
    assert missed("--require", "tag:critical") == ["error: --require 'tag:critical': 1 case did not pass: two"]


def test_each_missed_gate_is_a_line(project: Write) -> None:
    assert missed("--require", "tag:critical", "--require", "-tag:critical", "--require", "id:one") == [
        "error: --require 'tag:critical': 1 case did not pass: two",
        "error: --require '-tag:critical': 1 case did not pass: three",
    ]


def test_long_lists_of_cases_are_shortened(project: Write) -> None:
    project("a.jsonl", [a_case(str(number), tags=["x"], evaluators=[MISS]) for number in range(9)])
    assert missed("--require", "tag:x") == ["error: --require 'tag:x': 9 cases did not pass: 0, 1, 2, 3, 4 and 4 more"]


@pytest.mark.parametrize("condition", ["tag:none", "tag:off"])
def test_a_gate_without_cases_is_an_error(project: Write, condition: str) -> None:
    ran = agentv("eval", "a.jsonl", "--require", condition, "--out", "out.jsonl")
    assert ran.returncode == 2
    assert ran.stderr == (
        f"error: --require '{condition}': no selected case matches\n"
        "hint: matching is case-sensitive; a field that is absent matches nothing\n"
    )


def test_only_selected_cases_are_required(project: Write) -> None:
    assert missed("--require", "tag:critical", "--filter", "id:one", code=0) == []
    assert missed("--require", "tag:new", "--filter", "id:one", code=2) == [
        "error: --require 'tag:new': no selected case matches"
    ]


def test_all_trials_of_a_required_case_must_pass(project: Write) -> None:
    project("agent.py", "def answer(request):\n    return 'hello' if request.trial < 3 else 'goodbye'\n")
    project("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    assert missed("--require", "id:one", "--trials", "2", code=0) == []
    assert missed("--require", "id:one", "--trials", "3") == ["error: --require 'id:one': 1 case did not pass: one"]


def test_the_gate_covers_the_results_that_a_run_resumes(project: Write) -> None:
    evaluate("a.jsonl", "--out", "out.jsonl")
    assert missed("--require", "tag:critical", "--out", "out.jsonl", "--resume") == [
        "error: --require 'tag:critical': 1 case did not pass: two"
    ]
    assert missed("--require", "id:one", "--out", "out.jsonl", "--resume", code=0) == []


def test_a_shard_answers_for_its_own_cases(project: Write) -> None:
    codes = [agentv("eval", "a.jsonl", "--require", "id:two", "--shard", f"{n}/3").returncode for n in (1, 2, 3)]
    assert sorted(codes) == [0, 0, 1]


def test_a_case_that_was_not_judged_does_not_satisfy_the_gate(project: Write) -> None:
    project("agent.py", "def answer(question):\n    raise ValueError('no')\n")
    project("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    assert "error: --require 'id:one': 1 case did not pass: one" in missed("--require", "id:one")


def test_grade_has_the_same_gate(project: Write) -> None:
    evaluate("a.jsonl", "--out", "out.jsonl")
    graded = agentv(
        "grade", "out.jsonl", "a.jsonl", "--require", "tag:critical", "--filter", "id:t*", "--out", "g.jsonl"
    )
    assert graded.returncode == 1
    assert "error: --require 'tag:critical': 1 case did not pass: two\n" in graded.stderr
    assert [result["eval_id"] for result in results("g.jsonl")] == ["two", "three"]
    assert "do not match any case" not in graded.stdout
    graded = agentv("grade", "out.jsonl", "a.jsonl", "--require", "id:one", "--out", "g.jsonl")
    assert graded.returncode == 0, graded.stderr


def test_grade_selects_by_stored_results_as_well(project: Write) -> None:
    evaluate("a.jsonl", "--out", "out.jsonl")

    def graded(*filters: str) -> list[str]:
        options = [part for text in filters for part in ("--filter", text)]
        ran = agentv("grade", "out.jsonl", "a.jsonl", *options, "--out", "g.jsonl")
        assert ran.returncode == 0, ran.stderr
        assert "not match any case" not in ran.stdout
        return [result["eval_id"] for result in results("g.jsonl")]

    assert graded("verdict:fail") == ["two", "three"]
    assert graded("verdict:fail", "tag:critical") == ["two"]
    assert graded("score>0.5 -tag:new") == ["one"]
    ran = agentv("grade", "out.jsonl", "a.jsonl", "--filter", "error:yes")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: out.jsonl: no result matches the filter 'error:yes'\n")


def test_a_required_case_without_a_stored_answer_is_missing(project: Write) -> None:
    evaluate("a.jsonl", "--filter", "id:two", "--out", "out.jsonl")
    graded = agentv("grade", "out.jsonl", "a.jsonl", "--require", "id:one")
    assert graded.returncode == 1
    assert "error: --require 'id:one': 1 result missing\n" in graded.stderr


def test_invalid_requirements_are_errors_in_python(project: Write) -> None:
    with pytest.raises(AgentvError, match="no selected case matches"):
        asyncio.run(package.evaluate("a.jsonl", require="tag:none"))
    report = asyncio.run(package.evaluate("a.jsonl", require=["tag:critical"]))
    assert len(report.results) == 3
