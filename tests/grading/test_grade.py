"""`agentv grade`: stored answers are re-scored without calling the target."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.project import Write, a_case, agentv, flat

TARGETS = (
    "targets: [{name: default, provider: cli, command_template: 'touch asked; false'}, {name: judge, provider: mock}]\n"
)
EVALUATORS = "evaluators:\n- {type: contains, value: Oslo}\n- {type: icontains, value: '.', name: dot}\n"


def stored(id_: str, answer: str, **fields: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-01-01T00:00:00.000Z",
        "run_id": "20260101-000000-abcd",
        "eval_id": id_,
        "dataset": "some",
        "target": "default",
        "attempt": 2,
        "score": 0.25,
        "verdict": "fail",
        "question": "Query",
        "candidate_answer": answer,
        "evaluator_results": [
            {
                "name": "contains",
                "type": "contains",
                "score": 0,
                "weight": 1,
                "verdict": "fail",
                "hits": [],
                "misses": ["x"],
            },
            {
                "name": "dot",
                "type": "icontains",
                "score": 0.5,
                "weight": 1,
                "verdict": "fail",
                "hits": [],
                "misses": [],
            },
        ],
        "execution_metrics": {"token_usage": {"input": 3, "output": 4}, "cost_usd": 0.5, "duration_ms": 1234},
        "digests": {"case": "c", "target": "the-target", "evaluators": "before", "agentv": "0.0.1"},
    } | fields


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", TARGETS)
    write("evals/some.jsonl", [a_case("one"), a_case("two"), a_case("three")])
    write("evals/some.yaml", EVALUATORS)
    write("old.jsonl", [stored("one", "Oslo."), stored("two", "Rome."), stored("three", "Oslo")])
    return write


def grade(*args: str, code: int = 0, results: str = "old.jsonl") -> str:
    ran = agentv("grade", results, "evals", "--out", "new.jsonl", *args)
    assert ran.returncode == code, ran.stderr
    assert not Path("asked").exists()
    assert not Path("evals/asked").exists()
    return flat(ran.stderr + ran.stdout)


def graded() -> dict[str, dict[str, Any]]:
    found = map(json.loads, Path("new.jsonl").read_text().splitlines())
    return {f"{result['eval_id']}{result.get('trial', '')}": result for result in found}


def test_answers_are_rescored_and_other_fields_kept(project: Write) -> None:
    told = grade()
    results = graded()
    assert {name: result["score"] for name, result in results.items()} == {"one": 1.0, "two": 0.5, "three": 0.5}
    one = results["one"]
    before = stored("one", "Oslo.")
    for name in ("candidate_answer", "target", "attempt", "execution_metrics", "question"):
        assert one[name] == before[name]
    assert one["graded_from"] == {"run_id": "20260101-000000-abcd", "score": 0.25, "evaluators": "before"}
    assert one["digests"]["target"] == "the-target"
    assert one["digests"]["evaluators"] != "before"
    assert one["run_id"] != before["run_id"]
    assert "running 3 cases from 1 file on default (answers of old.jsonl)" in told
    assert "3 planned = 3 scored" in told
    assert "mean 0.667" in told


def test_missing_cases_and_results_are_counted_without_an_error(project: Write) -> None:
    project("old.jsonl", [stored("one", "Oslo."), stored("four", "Oslo."), stored("five", "Oslo.")])
    told = grade()
    assert "3 planned = 1 scored + 2 no answer" in told
    assert "2 answers do not match any case in these eval files" in told
    assert list(graded()) == ["one"]
    (record,) = (json.loads(path.read_text()) for path in Path(".agentv/runs").glob("*.json"))
    assert (record["ledger"]["no_answer"], record["ledger"]["no_case"]) == (2, 2)
    assert record["exit_code"] == 0


def test_answers_to_unselected_cases_are_not_reported_as_unknown(project: Write) -> None:
    told = grade("--eval-id", "one")
    assert list(graded()) == ["one"]
    assert "to no case" not in told


def test_one_evaluator_is_replaced_and_the_others_stay(project: Write) -> None:
    grade("--evaluator", "dot")
    one = graded()["one"]
    assert [(part["name"], part["score"]) for part in one["evaluator_results"]] == [("contains", 0.0), ("dot", 1.0)]
    assert (one["score"], one["verdict"]) == (0.5, "fail")
    told = grade("--evaluator", "dott", code=2)
    assert "no case has an evaluator named 'dott'" in told
    assert "did you mean 'dot'?" in told


def test_only_changes_what_it_names_and_writes_all(project: Write) -> None:
    failed = stored("two", "Oslo.", failure="judge", score=0)
    error = stored("three", "", error="the agent was killed", failure="timeout", score=0, evaluator_results=[])
    project("old.jsonl", [stored("one", "Oslo."), failed, error, stored("gone", "Oslo.")])
    told = grade("--only", "judge-failed", code=1)  # the file still has an error
    assert "error: 1 case ended in an error in the earlier run" in told
    assert "not judged" not in told
    results = graded()
    assert {name: result["score"] for name, result in results.items()} == {
        "two": 1.0,
        "one": 0.25,
        "three": 0.0,
        "gone": 0.25,
    }
    assert [name for name, result in results.items() if "graded_from" in result] == ["two"]
    assert results["one"] | stored("one", "Oslo.") == results["one"]
    assert "3 planned = 1 scored + 2 already done 1 answer does not match any case" in told
    told = grade("--only", "error", code=1)
    assert "error: 1 case was not judged; judge again with: agentv grade " in told
    three = graded()["three"]
    assert (three["error"], three["failure"], three["graded_from"]["score"]) == ("the agent was killed", "timeout", 0)
    assert graded()["two"] | failed == graded()["two"]


def test_cases_of_several_messages_and_files_are_graded_too(project: Write) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "file", "value": "a.txt"}]},
    ]
    project("evals/a.txt", "Norway?")
    project("evals/some.jsonl", [a_case("one", input_messages=turns), a_case("two"), a_case("three")])
    grade()
    assert graded()["one"]["score"] == 1.0
    Path("evals/a.txt").unlink()
    told = grade(code=1)
    assert "a.txt" in graded()["one"]["error"]
    assert "1 target error" in told


def test_errors_remain_errors(project: Write) -> None:
    error = stored("one", "", error="the agent was killed", failure="timeout", score=0, evaluator_results=[])
    project("old.jsonl", [error, stored("two", "Oslo."), stored("three", "Oslo.")])
    told = grade(code=1)
    assert (graded()["one"]["error"], graded()["one"]["failure"]) == ("the agent was killed", "timeout")
    assert "1 timeout" in told


def test_a_changed_question_is_reported_and_graded(project: Write) -> None:
    project("old.jsonl", [stored("one", "Oslo.", question="Another?"), stored("two", "x"), stored("three", "x")])
    told = grade()
    assert "warning: old.jsonl: 1 answer belongs to an earlier version of the question" in told
    assert (graded()["one"]["score"], graded()["one"]["question"]) == (1.0, "Another?")


def test_each_trial_is_graded(project: Write) -> None:
    rows = [stored("one", f"Oslo{'.' * number}", trial=number) for number in (1, 2)]
    project("old.jsonl", [*rows, stored("two", "Oslo.", trial=2)])
    told = grade()
    assert {name: result["score"] for name, result in graded().items()} == {"one1": 1.0, "one2": 1.0, "two2": 1.0}
    assert "6 runs planned (3 cases, 2 trials each) = 3 scored + 3 no answer" in told


def test_a_missing_trace_does_not_mean_that_no_tools_were_called(project: Write) -> None:
    project("evals/some.yaml", "evaluators: [{type: tool_trajectory, mode: any_order, minimums: {search: 1}}]\n")
    summary = {"eventCount": 1, "toolNames": ["search"], "toolCallsByName": {"search": 1}, "errorCount": 0}
    trace = [{"type": "tool_call", "name": "search"}]
    with_trace = stored("two", "x", trace_summary=summary, trace=trace)
    project("old.jsonl", [stored("one", "x", trace_summary=summary), with_trace, stored("three", "x")])
    told = grade(code=1)
    results = graded()
    assert (results["one"]["failure"], results["one"]["verdict"]) == ("judge", "fail")
    assert "error: 1 case was not judged" in told
    assert results["two"]["score"] == 1.0
    assert results["three"]["score"] == 0.0
    assert "failure" not in results["three"]
    assert "1 answer was stored without a trace: evaluators of tool calls cannot judge them" in told


def test_a_real_run_its_grading_and_their_comparison(project: Write) -> None:
    project("agent.py", "def answer(question):\n    open('asked', 'a').write('x')\n    return 'Oslo'\n")
    project("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    ran = agentv("eval", "evals", "--out", "old.jsonl")
    assert ran.returncode == 0, ran.stderr
    Path("asked").unlink()
    Path("agent.py").write_text("raise SystemExit('nobody may ask me')\n")
    project("evals/some.yaml", EVALUATORS.replace("'.'", "o"))
    grade()
    assert {result["score"] for result in graded().values()} == {1.0}
    compared = agentv("compare", "old.jsonl", "new.jsonl", "--format", "table")
    assert compared.returncode == 0, compared.stderr
    assert "both runs have the same answers" in flat(compared.stdout)
    assert "evaluators" in compared.stdout


def test_yaml_results_are_graded_too(project: Write) -> None:
    project("targets.yaml", "targets: [{name: default, provider: mock, response: Oslo.}]\n")
    assert agentv("eval", "evals", "--out", "old.yaml", "--output-format", "yaml").returncode == 0
    grade(results="old.yaml")
    assert {result["score"] for result in graded().values()} == {1.0}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "the file contains no answers"),
        ([{"eval_id": "one", "score": 1}], "old.jsonl:1:1: missing candidate_answer"),
        ([{"id": "one", "text": "x"}], "old.jsonl:1:1: missing eval_id"),
        ([stored("one", "a"), stored("one", "b")], "duplicate answer for 'one'"),
        (
            [stored("one", "a"), stored("one", "b", target="other")],
            "select the target with --target",
        ),
    ],
)
def test_files_that_cannot_be_graded(project: Write, rows: list[Any], message: str) -> None:
    project("old.jsonl", rows)
    assert message in grade(code=2)
    assert not Path("new.jsonl").exists()


def test_bad_usage(project: Write) -> None:
    assert "no such file" in grade(code=2, results="nowhere.jsonl")
    before = Path("old.jsonl").read_bytes()
    for flag in ("--out", "--junit", "--report"):
        ran = agentv("grade", "old.jsonl", "evals", flag, "./old.jsonl")
        assert (ran.returncode, f"{flag} is the results file to grade" in ran.stderr) == (2, True)
    assert Path("old.jsonl").read_bytes() == before
    assert "--only" in grade("--only", "some", code=2)
    truncated = Path("old.jsonl").read_text()[:-30]
    project("old.jsonl", truncated)
    assert (
        grade().count("the last line is truncated") == 1
    )  # though the file is read again, for the case without an answer
    assert sorted(graded()) == ["one", "two"]


def test_the_answers_of_one_target_of_several(project: Write) -> None:
    project("old.jsonl", [stored("one", "Oslo."), stored("one", "Rome.", target="other")])
    grade("--target", "other")
    assert (graded()["one"]["target"], graded()["one"]["score"]) == ("other", 0.5)
    told = grade("--target", "othr", code=2)
    assert "the file contains no answers of target 'othr'" in told
    assert "it contains answers of 'default', 'other'" in told
    assert "'other'" in told


def test_the_ledger_adds_up_where_results_of_other_cases_are_written(project: Write) -> None:
    """With `--only`, all results of the file are written; the ledger is about the cases of the run."""
    project("old.jsonl", [stored("one", "Oslo."), stored("gone", "Oslo.")])
    told = grade("--only", "error")
    assert "3 planned = 1 already done + 2 no answer" in told
    assert "1 answer does not match any case in these eval files" in told
    assert "not run" not in told
    assert sorted(graded()) == ["gone", "one"]
    told = grade("--only", "error", "--eval-id", "one")
    assert "1 planned = 1 already done" in told
    assert "not run" not in told
    assert sorted(graded()) == ["gone", "one"]


def test_a_cached_answer_does_not_replace_the_stored_one(project: Write) -> None:
    judge = """{name: judge, provider: mock, response: '{"score": 1, "hits": [], "misses": []}'}"""
    target = "{name: default, provider: mock, response: Rome, judge_target: judge}"
    project("targets.yaml", f"targets:\n- {target}\n- {judge}\n")
    project("evals/some.yaml", "evaluators:\n- {type: contains, value: Oslo}\n- {type: llm_judge}\n")
    agentv("eval", "evals", "--cache", "--out", "old.jsonl")
    Path("old.jsonl").write_text(Path("old.jsonl").read_text().replace("Rome", "Oslo"))
    grade("--cache")
    assert {id_: row["candidate_answer"] for id_, row in graded().items()} == dict.fromkeys(graded(), "Oslo")
    assert {row["score"] for row in graded().values()} == {1.0}
    assert all("graded_from" in row for row in graded().values())
