"""Checks what an answer took: time, money, tokens."""

import math
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.protocols import Evaluator, Workshop
from agentv.records import Exchange, Score, TokenUsage

Limit = Annotated[float, Meta(ge=0, le=1e15)]  # which infinity is not
Count = Annotated[int, Meta(ge=0)]


class Latency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer took at most `threshold` milliseconds."""

    waits: ClassVar[bool] = False

    threshold: Limit

    async def evaluate(self, exchange: Exchange) -> Score:
        took = exchange.response.duration_ms
        if took is None or not math.isfinite(took):
            return Score(score=0.0, misses=("the target reported no duration",))
        return _verdict(took <= self.threshold, f"took {took:.10g} ms, limit {self.threshold:.10g} ms")


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer cost at most `budget` US dollars."""

    waits: ClassVar[bool] = False

    budget: Limit

    async def evaluate(self, exchange: Exchange) -> Score:
        cost = exchange.response.cost_usd
        if cost is None or not math.isfinite(cost):
            return Score(score=0.0, misses=("the target reported no cost",))
        return _verdict(cost <= self.budget, f"cost {cost:.10g} USD, budget {self.budget:.10g} USD")


class TokenLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the answer used no more tokens than each of the limits allows."""

    waits: ClassVar[bool] = False

    max_total: Count | None = None
    max_input: Count | None = None
    max_output: Count | None = None

    def open(self, workshop: Workshop) -> Evaluator:
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
        scores = [_tokens(kind, used, limit) for kind, used, limit in limits if limit is not None]
        return Score(
            score=min(score.score for score in scores),
            hits=tuple(hit for score in scores for hit in score.hits),
            misses=tuple(miss for score in scores for miss in score.misses),
        )


def _tokens(kind: str, used: int | None, limit: int) -> Score:
    if used is None:
        return Score(score=0.0, misses=(f"the target reported no {kind} tokens",))
    return _verdict(used <= limit, f"{used} {kind} tokens, limit {limit}")


def _verdict(passed: bool, words: str) -> Score:
    return Score(score=1.0, hits=(words,)) if passed else Score(score=0.0, misses=(words,))
