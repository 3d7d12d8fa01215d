"""Accumulate the tokens, cost and duration of answers. Memory use is one float per answer."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentv.records import ExecutionMetrics, TokenUsage
from agentv.results.views import MetricsView, TokensView
from agentv.stats.quantiles import quantiles

Tokens = TokenUsage | TokensView
Metrics = ExecutionMetrics | MetricsView


class Total(NamedTuple):
    """A sum, and the number of answers that contributed to it."""

    sum: float = 0.0
    answers: int = 0

    def plus(self, value: float) -> "Total":
        """Return the total including one more answer."""
        return Total(self.sum + value, self.answers + 1)

    def plus_all(self, values: Sequence[float | None]) -> "Total":
        """Return the total including several more answers; unknown values (None) are ignored."""
        known = [value for value in values if value is not None]
        if not known:
            return self
        return Total(
            sum=self.sum + sum(known),
            answers=self.answers + len(known),
        )

    @property
    def mean(self) -> float | None:
        if not self.answers:
            return None
        return self.sum / self.answers


@dataclass(slots=True, eq=False)
class Usage:
    """Totals of tokens, cost and duration over many answers."""

    answers: int = 0
    input_tokens: Total = field(default_factory=Total)
    output_tokens: Total = field(default_factory=Total)
    reasoning_tokens: Total = field(default_factory=Total)
    cost_usd: Total = field(default_factory=Total)
    durations: "array[float]" = field(default_factory=lambda: array("d"))
    """Milliseconds, one entry per answer with a known duration."""

    def add(self, metrics: Metrics | None) -> None:
        """Count one answer."""
        self.answers += 1
        if metrics is None:
            return
        tokens = metrics.token_usage
        if tokens is not None:
            self._add_tokens(tokens)
        cost = metrics.cost_usd
        if cost is not None:
            self.cost_usd = self.cost_usd.plus(cost)
        duration = metrics.duration_ms
        if duration is not None:
            self.durations.append(max(0.0, duration))

    def _add_tokens(self, tokens: Tokens) -> None:
        if tokens.input is not None:
            self.input_tokens = self.input_tokens.plus(tokens.input)
        if tokens.output is not None:
            self.output_tokens = self.output_tokens.plus(tokens.output)
        if tokens.reasoning is not None:
            self.reasoning_tokens = self.reasoning_tokens.plus(tokens.reasoning)

    def add_all(self, metrics: Sequence[Metrics | None]) -> None:
        """Count several answers, one column at a time, which is faster than calling `add` for each."""
        self.answers += len(metrics)
        known = [each for each in metrics if each is not None]
        tokens = [each.token_usage for each in known if each.token_usage is not None]
        if tokens:
            self._add_all_tokens(tokens)
        costs = [each.cost_usd for each in known]
        self.cost_usd = self.cost_usd.plus_all(costs)
        for each in known:
            duration = each.duration_ms
            if duration is not None:
                self.durations.append(max(0.0, duration))

    def _add_all_tokens(self, tokens: Sequence[Tokens]) -> None:
        inputs = [each.input for each in tokens]
        outputs = [each.output for each in tokens]
        reasoning = [each.reasoning for each in tokens]
        self.input_tokens = self.input_tokens.plus_all(inputs)
        self.output_tokens = self.output_tokens.plus_all(outputs)
        self.reasoning_tokens = self.reasoning_tokens.plus_all(reasoning)

    @property
    def duration_quantiles(self) -> tuple[float, float] | None:
        """The median and the 95th percentile of the durations, in milliseconds."""
        if not self.durations:
            return None
        median, percentile_95 = quantiles(self.durations, (0.5, 0.95))
        return median, percentile_95
