"""Checks what an answer took: time, money, tokens."""

import math
from typing import Annotated, ClassVar

from msgspec import Meta

from agentv.errors import ConfigError
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Score, TokenUsage

Limit = Annotated[float, Meta(ge=0, le=1e15)]  # which infinity is not
Count = Annotated[int, Meta(ge=0)]


class Latency(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer took at most `threshold` milliseconds."""

    waits: ClassVar[bool] = False

    threshold: Limit

    async def evaluate(self, exchange: Exchange) -> Score:
        return _within(exchange.response.duration_ms, self.threshold, "duration", "took {:.10g} ms, limit {:.10g} ms")


class Cost(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer cost at most `budget` US dollars."""

    waits: ClassVar[bool] = False

    budget: Limit

    async def evaluate(self, exchange: Exchange) -> Score:
        return _within(exchange.response.cost_usd, self.budget, "cost", "cost {:.10g} USD, budget {:.10g} USD")


class TokenLimits(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer used no more tokens than each of the limits allows."""

    waits: ClassVar[bool] = False

    max_total: Count | None = None
    max_input: Count | None = None
    max_output: Count | None = None

    def open(self, context: EvaluatorContext) -> Evaluator:
        if self.max_total is None and self.max_input is None and self.max_output is None:
            raise ConfigError("no limit is set", hint="set max_total, max_input or max_output")
        return self

    async def evaluate(self, exchange: Exchange) -> Score:
        usage = exchange.response.token_usage or TokenUsage()
        total = None if usage.input is None or usage.output is None else usage.input + usage.output
        limits = (
            ("total", total, self.max_total),
            ("input", usage.input, self.max_input),
            ("output", usage.output, self.max_output),
        )
        scores = [
            _within(used, limit, f"{kind} tokens", f"{{}} {kind} tokens, limit {{}}")
            for kind, used, limit in limits
            if limit is not None
        ]
        return Score(
            score=min(score.score for score in scores),
            hits=tuple(hit for score in scores for hit in score.hits),
            misses=tuple(miss for score in scores for miss in score.misses),
            missing_data=any(score.missing_data for score in scores),
        )


def _within(figure: float | None, limit: float, name: str, template: str) -> Score:
    """Return 1 if the figure is within the limit; 0 if it is not, or was not reported."""
    if figure is None or not math.isfinite(figure):
        return Score(score=0.0, misses=(f"the target reported no {name}",), missing_data=True)
    point = (template.format(figure, limit),)
    return Score(score=1.0, hits=point) if figure <= limit else Score(score=0.0, misses=point)
