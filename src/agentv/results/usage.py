"""Results as they come -> what their answers took: tokens, money, time. What is held is one number a case."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agentv.stats.quantiles import quantiles


class Tokens(Protocol):
    """Tokens that a target reported."""

    @property
    def input(self) -> float | None: ...
    @property
    def output(self) -> float | None: ...
    @property
    def reasoning(self) -> float | None: ...


class Metrics(Protocol):
    """What one answer took, as far as it is known."""

    @property
    def token_usage(self) -> Tokens | None: ...
    @property
    def cost_usd(self) -> float | None: ...
    @property
    def duration_ms(self) -> float | None: ...
    @property
    def cached(self) -> bool: ...


class Total(NamedTuple):
    """A sum, and of how many answers it is known."""

    sum: float = 0.0
    answers: int = 0

    def plus(self, value: float) -> "Total":
        """Return the total with one answer more."""
        return Total(self.sum + value, self.answers + 1)

    def plus_all(self, values: Sequence[float | None]) -> "Total":
        """Return the total with more answers; None is not known."""
        known = [value for value in values if value is not None]
        return Total(self.sum + sum(known), self.answers + len(known)) if known else self

    @property
    def mean(self) -> float | None:
        return self.sum / self.answers if self.answers else None


class Usage:
    """Sums up what answers took."""

    def __init__(self) -> None:
        self.answers = 0
        self.input_tokens = self.output_tokens = self.reasoning_tokens = self.cost_usd = Total()
        self.durations = array("d")
        """Milliseconds, one for each answer of which they are known."""

    def add(self, metrics: Metrics | None) -> None:
        """Count an answer."""
        self.answers += 1
        if metrics is None:
            return
        if metrics.token_usage is not None:
            tokens = metrics.token_usage
            if tokens.input is not None:
                self.input_tokens = self.input_tokens.plus(tokens.input)
            if tokens.output is not None:
                self.output_tokens = self.output_tokens.plus(tokens.output)
            if tokens.reasoning is not None:
                self.reasoning_tokens = self.reasoning_tokens.plus(tokens.reasoning)
        if metrics.cost_usd is not None:
            self.cost_usd = self.cost_usd.plus(metrics.cost_usd)
        if metrics.duration_ms is not None:
            self.durations.append(max(0.0, metrics.duration_ms))

    def add_all(self, metrics: Sequence[Metrics | None]) -> None:
        """Count several answers."""
        self.answers += len(metrics)
        known = [each for each in metrics if each is not None]
        tokens = [each.token_usage for each in known if each.token_usage is not None]
        if tokens:
            self.input_tokens = self.input_tokens.plus_all([each.input for each in tokens])
            self.output_tokens = self.output_tokens.plus_all([each.output for each in tokens])
            self.reasoning_tokens = self.reasoning_tokens.plus_all([each.reasoning for each in tokens])
        self.cost_usd = self.cost_usd.plus_all([each.cost_usd for each in known])
        self.durations.extend([max(0.0, each.duration_ms) for each in known if each.duration_ms is not None])

    @property
    def duration_quantiles(self) -> tuple[float, float] | None:
        """The median and the 95% quantile of the milliseconds."""
        if not self.durations:
            return None
        p50, p95 = quantiles(self.durations, [0.5, 0.95])
        return p50, p95
