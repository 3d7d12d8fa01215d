"""The verdict of a result: computed once when it is scored, and read from files in one way by all commands."""

import json

import msgspec
import pytest

from agentv.records import PASS, EvaluatorResult, Verdict
from agentv.results.views import EvaluatorView, ResultRow, TextRow
from agentv.scoring import score_case, verdict_of
from tests.kits.project import Write, agentv


def a_score(score: float, verdict: Verdict, weight: float = 1.0) -> EvaluatorResult:
    return EvaluatorResult(
        name="one",
        type="llm_judge",
        score=score,
        weight=weight,
        verdict=verdict,
    )


@pytest.mark.parametrize(
    ("score", "verdict"),
    [(1.0, "pass"), (0.8, "pass"), (0.79, "borderline"), (0.6, "borderline"), (0.59, "fail"), (0.0, "fail")],
)
def test_thresholds(score: float, verdict: Verdict) -> None:
    assert verdict_of(score) == verdict


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([a_score(0.9, "pass")], "pass"),
        ([a_score(0.9, "borderline")], "pass"),  # only `fail` overrides the score
        ([a_score(0.9, "fail")], "fail"),
        ([a_score(1.0, "pass"), a_score(0.9, "fail")], "fail"),
        ([a_score(1.0, "pass"), a_score(0.9, "fail", weight=0)], "pass"),  # it does not count
        ([a_score(1.0, "pass"), a_score(0.6, "borderline")], "pass"),
        ([a_score(1.0, "pass"), a_score(0.0, "fail")], "fail"),
        ([a_score(1.0, "pass", weight=3), a_score(0.4, "fail")], "pass"),  # this `fail` follows from its score
        ([], "fail"),
    ],
)
def test_a_case_fails_if_an_evaluator_overrides_its_own_score(
    scores: list[EvaluatorResult],
    verdict: Verdict,
) -> None:
    assert score_case(scores, PASS).verdict == verdict


@pytest.mark.parametrize("row", [ResultRow, TextRow])
@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"score": 0.9, "verdict": "fail"}, "fail"),
        ({"score": 0.1, "verdict": "pass"}, "pass"),
        ({"score": 0.8}, "pass"),
        ({"score": 0.7, "verdict": None}, "borderline"),
        ({"score": 0.9, "verdict": "excellent"}, "pass"),
    ],
)
def test_rows_derive_a_missing_or_unknown_verdict(
    row: type[ResultRow],
    fields: dict[str, object],
    verdict: Verdict,
) -> None:
    found = msgspec.json.decode(json.dumps({"eval_id": "a", **fields}), type=row)
    part = msgspec.json.decode(json.dumps({"name": "one", **fields}), type=EvaluatorView)

    assert (found.verdict, found.has_passed) == (verdict, verdict == "pass")
    assert part.verdict == verdict


def test_errors_and_failed_judges_never_pass() -> None:
    assert not ResultRow(eval_id="a", score=1.0, error="broken").has_passed
    assert not ResultRow(eval_id="a", score=1.0, failure="judge").has_passed


def test_commands_agree_on_results_without_a_verdict(write: Write) -> None:
    rows = [
        {"eval_id": "a", "score": 0.8, "dataset": "d"},
        {"eval_id": "b", "score": 0.79, "dataset": "d"},
        {"eval_id": "c", "score": 1.0, "dataset": "d", "verdict": "fail"},
    ]
    path = write("foreign.jsonl", rows)

    shown = agentv("show", path, "--failed", "--format", "json")
    exported = agentv("export", path, "--to", "csv")

    assert [json.loads(line)["eval_id"] for line in shown.stdout.splitlines()] == ["b", "c"]
    assert exported.stdout.splitlines()[1].split(",")[:6] == ["a", "d", "", "", "0.8", "pass"]


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ({"score": 0.9}, {"score": 0.9, "verdict": "fail"}, 0),
        ({"score": 0.9}, {"score": 0.2}, 1),
    ],
)
def test_exit_codes_of_a_comparison_follow_scores_not_verdicts(
    write: Write,
    before: dict[str, object],
    after: dict[str, object],
    code: int,
) -> None:
    first = write("first.jsonl", [{"eval_id": f"case-{number}", **before} for number in range(20)])
    second = write("second.jsonl", [{"eval_id": f"case-{number}", **after} for number in range(20)])

    assert agentv("compare", first, second).returncode == code
