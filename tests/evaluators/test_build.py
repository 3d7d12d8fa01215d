"""Building evaluators: text checks, weights and crashes."""

import asyncio
from typing import Any

import pytest

from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.checks.text import Contains, Equals
from agentv.evaluators.score import ConfiguredEvaluator
from agentv.protocols import Evaluator
from agentv.records import EvalCase, Exchange, Message, ProviderRequest, ProviderResponse, Score
from agentv.scoring import verdict_of, weighted_mean


def an_exchange(text: str) -> Exchange:
    case = EvalCase("id", "outcome", (Message(role="user", content="q"),))
    return Exchange(
        case=case, request=ProviderRequest(eval_id="id", question="q"), response=ProviderResponse(text=text)
    )


def score(evaluator: Any, text: str) -> Score:
    found: Score = asyncio.run(evaluator.evaluate(an_exchange(text)))
    return found


def test_contains() -> None:
    assert score(Contains(value="Paris"), "It is Paris.") == Score(score=1.0, hits=("contains 'Paris'",))
    assert score(Contains(value="Paris"), "paris") == Score(score=0.0, misses=("does not contain 'Paris'",))
    assert score(Contains(value="PARIS", case_sensitive=False), "paris").score == 1.0
    assert score(Contains(value=("a", "b")), "a") == Score(
        score=0.0, hits=("contains 'a'",), misses=("does not contain 'b'",)
    )
    assert score(Contains(value=("a", "b"), require="any"), "a").score == 1.0
    assert score(Contains(value="x", negate=True), "abc") == Score(score=1.0, hits=("does not contain 'x'",))
    assert score(Contains(value="a", negate=True), "abc") == Score(score=0.0, misses=("contains 'a'",))


def test_equals() -> None:
    assert score(Equals(value="42"), " 42\n").score == 1.0
    assert score(Equals(value="42"), "42.") == Score(score=0.0, misses=("does not equal '42'",))
    assert score(Equals(value=("yes", "no"), require="any", case_sensitive=False), "NO").score == 1.0


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(1.0, "pass"), (0.8, "pass"), (0.79, "borderline"), (0.6, "borderline"), (0.59, "fail"), (0, "fail")],
)
def test_verdicts(value: float, verdict: str) -> None:
    assert verdict_of(value) == verdict


class Fixed(Evaluator):
    def __init__(self, given: Any):
        self._given = given

    async def evaluate(self, exchange: Exchange) -> Score:
        if isinstance(self._given, Exception):
            raise self._given
        return Score(score=self._given)


def result(given: Any, weight: float = 1.0) -> Any:
    return asyncio.run(ConfiguredEvaluator("n", "t", weight, Fixed(given)).result(an_exchange("x")))


def test_the_weighted_mean() -> None:
    assert weighted_mean([result(1.0, 3), result(0.0, 1)]) == 0.75
    assert weighted_mean([result(1.0, 0), result(1.0, 0)]) is None
    assert weighted_mean([]) is None


@pytest.mark.parametrize("broken", [ValueError("oops"), float("nan"), float("inf")])
def test_an_evaluator_that_crashes_scores_zero_with_a_reason(broken: Any) -> None:
    found = result(broken)
    assert (found.score, found.failed, found.verdict) == (0.0, True, "fail")
    assert found.misses[0].startswith("the evaluator failed: ")


@pytest.mark.parametrize(("given", "quoted"), [(1.5, "1.5"), (-2.0, "-2"), (87, "87"), (1.00000001, "1.00000001")])
def test_a_score_outside_of_the_scale_is_a_judge_failure(given: float, quoted: str) -> None:
    found = result(given)
    assert (found.score, found.failed, found.off_scale) == (0.0, True, given)
    assert found.misses == (f"the evaluator failed: the score is {quoted}, which is not between 0 and 1",)


@pytest.mark.parametrize(("given", "kept"), [(1 + 1e-10, 1.0), (-1e-10, 0.0)])
def test_a_rounding_error_is_not_outside_of_the_scale(given: float, kept: float) -> None:
    assert (result(given).score, result(given).failed) == (kept, False)


def test_evaluators_with_equal_settings_are_shared() -> None:
    builder = EvaluatorBuilder(dry_run=True)
    case = an_exchange("x").case
    assert builder.build(case, "default") is builder.build(case, "default")
    assert [evaluator.type for evaluator in builder.build(case, "default").evaluators] == ["llm_judge"]
