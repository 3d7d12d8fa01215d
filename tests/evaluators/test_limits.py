"""Limits on time, cost and tokens."""

import pytest

from agentv.errors import ConfigError
from agentv.evaluators.checks.limits import Cost, Latency, TokenLimits
from agentv.records import Score, TokenUsage
from tests.kits.evaluators import made, misfit, score


def test_latency() -> None:
    limit = made(Latency, threshold=500)
    assert score(limit, "", duration_ms=500.0) == Score(score=1.0, hits=("took 500 ms, limit 500 ms",))
    assert score(limit, "", duration_ms=500.5) == Score(score=0.0, misses=("took 500.5 ms, limit 500 ms",))
    assert score(made(Latency, threshold=0), "", duration_ms=0.0).score == 1.0


def test_cost() -> None:
    limit = made(Cost, budget=0.01)
    assert score(limit, "", cost_usd=0.01) == Score(score=1.0, hits=("cost 0.01 USD, budget 0.01 USD",))
    assert score(limit, "", cost_usd=0.0123) == Score(score=0.0, misses=("cost 0.0123 USD, budget 0.01 USD",))


def test_token_usage() -> None:
    limits = made(TokenLimits, max_total=100, max_output=10)
    used = TokenUsage(input=80, output=15)
    assert score(limits, "", token_usage=used) == Score(
        score=0.0, hits=("95 total tokens, limit 100",), misses=("15 output tokens, limit 10",)
    )
    assert score(made(TokenLimits, max_input=80), "", token_usage=used).score == 1.0


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_figure_that_was_not_reported_scores_zero(value: float | None) -> None:
    latency = score(made(Latency, threshold=1), "", duration_ms=value)
    assert latency == Score(score=0.0, misses=("the target reported no duration",), missing_data=True)
    cost = score(made(Cost, budget=1), "", cost_usd=value)
    assert cost == Score(score=0.0, misses=("the target reported no cost",), missing_data=True)


def test_tokens_that_were_not_reported_score_zero() -> None:
    limits = made(TokenLimits, max_total=9, max_input=9)
    words = ("the target reported no total tokens", "the target reported no input tokens")
    assert score(limits, "") == Score(score=0.0, misses=words, missing_data=True)
    half = score(limits, "", token_usage=TokenUsage(input=5))
    assert half == Score(score=0.0, hits=("5 input tokens, limit 9",), misses=words[:1], missing_data=True)


def test_token_usage_without_a_limit_is_an_error_before_the_run() -> None:
    with pytest.raises(ConfigError, match="token_usage has no limit"):
        made(TokenLimits)


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), "much", None])
def test_a_limit_is_a_finite_number(value: object) -> None:
    assert misfit(Latency, threshold=value)
    assert misfit(Cost, budget=value)
    assert value is None or misfit(TokenLimits, max_total=value)
