"""`provider: replay`: stored answers, each for its own case."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentv.results.answers import StoredAnswers
from tests.kits.project import Write, a_case, agentv, flat

TARGETS = "targets: [{name: default, provider: replay, file: answers.jsonl}]\n"


@pytest.fixture
def project(write: Write) -> Write:
    write("evals/targets.yaml", TARGETS)
    write("evals/some.jsonl", [a_case("one"), a_case("two")])
    write("evals/some.yaml", "dataset: some\nevaluators: [{type: contains, value: Oslo}]\n")
    return write


def evaluate(*args: str, code: int = 0) -> dict[str, dict[str, Any]]:
    ran = agentv("eval", "evals/some.jsonl", "--out", "out.jsonl", "--include-trace", *args)
    assert ran.returncode == code, ran.stderr
    found = map(json.loads, Path("out.jsonl").read_text().splitlines())
    return {f"{result['eval_id']}/{result.get('trial', 1)}": result for result in found}


def refused(code: int = 2) -> str:
    ran = agentv("eval", "evals/some.jsonl", "--out", "out.jsonl")
    assert ran.returncode == code
    assert not Path("out.jsonl").exists()
    return flat(ran.stderr)


def test_batch_records_are_replayed_with_all_their_fields(project: Write) -> None:
    trace = [{"type": "tool_call", "name": "map", "input": {"q": "Norway"}}]
    one = {"id": "one", "text": "Oslo", "trace": trace, "tokenUsage": {"input": 7, "output": 2}, "cost_usd": 0.5}
    project(
        "evals/answers.jsonl", [one | {"duration_ms": 1234}, {"id": "two", "text": "Rome"}, {"id": "x", "text": ""}]
    )
    results = evaluate()
    assert [(results[key]["score"], results[key]["candidate_answer"]) for key in ("one/1", "two/1")] == [
        (1.0, "Oslo"),
        (0.0, "Rome"),
    ]
    metrics = results["one/1"]["execution_metrics"]
    told = {"token_usage": {"input": 7, "output": 2}, "cost_usd": 0.5, "duration_ms": 1234}
    assert metrics == {**told, "cached": True}  # it has cost this run nothing
    assert results["one/1"]["trace"][0]["name"] == "map"


@pytest.mark.parametrize("form", ["jsonl", "yaml"])
def test_results_of_an_earlier_run_are_answers(project: Write, form: str) -> None:
    project("evals/targets.yaml", "targets: [{name: default, provider: mock, response: It is Oslo.}]\n")
    evaluate()
    agentv("eval", "evals/some.jsonl", "--out", f"evals/answers.{form}", "--output-format", form)
    project("evals/targets.yaml", TARGETS.replace("answers.jsonl", f"answers.{form}"))
    Path("out.jsonl").unlink()
    assert {key: result["candidate_answer"] for key, result in evaluate().items()} == {
        "one/1": "It is Oslo.",
        "two/1": "It is Oslo.",
    }


def test_each_trial_has_its_own_answer_and_a_missing_one_is_an_error(project: Write) -> None:
    project("evals/answers.jsonl", [{"id": "one", "text": "Oslo"}, {"id": "one", "trial": 2, "text": "Rome"}])
    results = evaluate("--trials", "2", code=1)
    assert [results["one/1"]["score"], results["one/2"]["score"]] == [1.0, 0.0]
    assert results["two/1"]["error"] == "answers.jsonl has no answer to 'two'"
    assert results["two/2"]["error"] == "answers.jsonl has no answer to trial 2 of 'two'"


def test_cases_of_several_messages_are_found_by_their_dataset(project: Write) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Norway?"}]
    project("evals/some.jsonl", [a_case("one", input_messages=turns)])
    rows = [("other", "Rome"), ("some", "Oslo")]
    project(
        "evals/answers.jsonl",
        [{"eval_id": "one", "dataset": dataset, "score": 0, "candidate_answer": answer} for dataset, answer in rows],
    )
    assert evaluate()["one/1"]["score"] == 1.0


def test_a_stored_error_is_replayed_as_an_error(project: Write) -> None:
    stored = {"eval_id": "one", "dataset": "some", "score": 0, "error": "the agent was killed"}
    project("evals/answers.jsonl", [stored, {"eval_id": "two", "score": 1, "candidate_answer": "Oslo"}])
    results = evaluate(code=1)
    assert results["one/1"]["error"] == "the agent was killed"
    assert results["two/1"]["score"] == 1.0


def test_answers_are_found_by_dataset_or_by_a_unique_id(project: Write) -> None:
    def stored(dataset: str, id_: str, answer: str) -> dict[str, Any]:
        return {"eval_id": id_, "dataset": dataset, "score": 0, "candidate_answer": answer}

    answers = [stored("other", "one", "Rome"), stored("some", "one", "Oslo"), stored("renamed", "two", "Oslo")]
    project("evals/answers.jsonl", answers)
    assert [result["score"] for result in evaluate().values()] == [1.0, 1.0]
    project("evals/answers.jsonl", [*answers, stored("third", "two", "Rome")])
    error = evaluate(code=1)["two/1"]["error"]
    assert error == "answers.jsonl has answers to 'two' from several datasets, but not from 'some'"


def test_problems_of_the_file_are_errors_before_the_run(project: Write) -> None:
    assert "default': no such file: " in refused()
    project("evals/answers.jsonl", "")
    assert "target 'default' is not ready: " in refused()
    assert (
        "the file contains no answers (an answers file contains agentv results, or one JSON object with 'id' and 'text' per line)"
        in refused()
    )
    project("evals/answers.jsonl", [{"id": "one", "text": "a"}, {"id": "one", "text": "b"}])
    assert "answers.jsonl: duplicate answer for 'one'" in refused()
    project("evals/answers.jsonl", [{"id": "one", "text": "a"}, {"text": "b"}, {"id": 3}])
    assert "answers.jsonl:2: 'id' is missing or not a string: " in refused()
    project("evals/answers.jsonl", '{"id": "one", "text": "a"}\nnonsense\n')
    assert "answers.jsonl:2:1: Invalid JSON" in refused()


def test_many_answers_are_found_by_an_index_that_grows(project: Write) -> None:
    project("evals/answers.jsonl", [{"id": f"case-{number}", "text": str(number)} for number in range(5000)])
    with StoredAnswers(Path("evals/answers.jsonl")) as answers:
        assert len(answers) == 5000
        for number in range(5000):
            found = answers.find("some", f"case-{number}", 1)
            assert found is not None
            assert found["text"] == str(number)
        assert answers.find("some", "case-5000", 1) is None
