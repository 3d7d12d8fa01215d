"""Numbers as they come -> what a sum of more of them will be, with a range."""

import math
from typing import NamedTuple

from agentv.stats.distributions import t_quantile

LEAST_HALF = 0.1
"""The range is at least so wide on both sides, as a share: the world is never quite as it was."""
FEW, FEW_HALF = 5, 0.5
"""With fewer numbers than these, it is at least so wide."""


class Range(NamedTuple):
    """What is expected, and the least and the most that is likely."""

    low: float
    expected: float
    high: float

    def __add__(self, other: "Range") -> "Range":  # type: ignore[override]  # sums, and does not join
        return Range(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, low: float, expected: float, high: float) -> "Range":
        """Return the range of a product."""
        return Range(self.low * low, self.expected * expected, self.high * high)


NOTHING = Range(0.0, 0.0, 0.0)


class Sample:
    """The count, the mean and the variance of numbers, of which none is held."""

    __slots__ = ("_squares", "count", "mean", "most")

    def __init__(self) -> None:
        self.count, self.mean, self._squares, self.most = 0, 0.0, 0.0, 0.0

    def add(self, value: float | None) -> None:
        """Count a number; None is none."""
        if value is None:
            return
        self.count += 1
        change = value - self.mean
        self.mean += change / self.count
        self._squares += change * (value - self.mean)
        self.most = max(self.most, value)

    @property
    def variance(self) -> float:
        return self._squares / (self.count - 1) if self.count > 1 else 0.0

    def sum_of(self, more: float) -> Range:
        """Return what `more` such numbers come to: a 95% interval of prediction, or somewhat more."""
        expected = more * self.mean
        half = (FEW_HALF if self.count < FEW else LEAST_HALF) * expected
        if self.count > 1 and more:
            error = math.sqrt(self.variance * (more + more * more / self.count))
            half = max(half, t_quantile(0.975, self.count - 1) * error)
        return Range(max(0.0, expected - half), expected, expected + half)
