"""Checks the duration, the cost and the tokens of an answer against limits."""

import math
from typing import Annotated, ClassVar

from msgspec import Meta

from agentv.errors import ConfigError
from agentv.evaluators.checks.matching import CheckSettings, no_data_score, score_point
from agentv.protocols import Evaluator, EvaluatorContext
from agentv.records import Exchange, Score, TokenUsage

Limit = Annotated[float, Meta(ge=0, le=1e15)]  # excludes infinity
Count = Annotated[int, Meta(ge=0)]


class _Limits(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the settings whose hits state a figure and its limit."""

    @classmethod
    def negated_miss(cls, hit: str) -> str:
        figure, _, limit = hit.partition(", ")  # such as "took 5 ms" and "limit 10 ms"
        _, _, number = limit.partition(" ")
        return f"{figure}, expected more than {number}"


class Latency(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer took at most `threshold` milliseconds."""

    waits: ClassVar[bool] = False

    threshold: Limit
    """The limit in milliseconds."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return _within(
            exchange.response.duration_ms,
            self.threshold,
            name="duration",
            template="took {:.10g} ms, limit {:.10g} ms",
        )


class Cost(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer cost at most `budget` US dollars."""

    waits: ClassVar[bool] = False

    budget: Limit
    """The limit in US dollars."""

    async def evaluate(self, exchange: Exchange) -> Score:
        return _within(
            exchange.response.cost_usd,
            self.budget,
            name="cost",
            template="cost {:.10g} USD, budget {:.10g} USD",
        )


class TokenLimits(_Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the answer used no more tokens than each of the limits allows."""

    waits: ClassVar[bool] = False

    max_total: Count | None = None
    """The limit for input and output together."""
    max_input: Count | None = None
    """The limit for input tokens."""
    max_output: Count | None = None
    """The limit for output tokens."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        if self.max_total is None and self.max_input is None and self.max_output is None:
            raise ConfigError("token_usage has no limit", hint="set max_total, max_input or max_output")
        return self

    async def evaluate(self, exchange: Exchange) -> Score:
        usage = exchange.response.token_usage or TokenUsage()
        total = None
        if usage.input is not None and usage.output is not None:
            total = usage.input + usage.output
        limits = (
            ("total", total, self.max_total),
            ("input", usage.input, self.max_input),
            ("output", usage.output, self.max_output),
        )
        passed = True
        missing_data = False
        hits: list[str] = []
        misses: list[str] = []
        for kind, used, limit in limits:
            if limit is None:
                continue
            score = _within(
                used,
                limit,
                name=f"{kind} tokens",
                template=f"{{}} {kind} tokens, limit {{}}",
            )
            hits += score.hits
            misses += score.misses
            if score.score == 0:
                passed = False
            if score.missing_data:
                missing_data = True
        return Score(
            score=float(passed),
            hits=tuple(hits),
            misses=tuple(misses),
            missing_data=missing_data,
        )


def _within(
    figure: float | None,
    limit: float,
    *,
    name: str,
    template: str,
) -> Score:
    """Return 1 if the figure is within the limit; 0 if it is not, or was not reported."""
    if figure is None or not math.isfinite(figure):
        return no_data_score(f"the target reported no {name}")
    point = template.format(figure, limit)
    return score_point(figure <= limit, point)
