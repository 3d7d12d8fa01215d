"""Ranges of expected values, and their prediction from a sample of numbers."""

import math
from typing import NamedTuple

from agentv.stats.distributions import t_quantile

MIN_MARGIN = 0.1
"""The minimum distance of both bounds from the expected value, as a share of it: conditions change between runs."""
SMALL_SAMPLE = 5
SMALL_SAMPLE_MARGIN = 0.5
"""The same for samples of fewer than `SMALL_SAMPLE` numbers."""


class Range(NamedTuple):
    """An expected value, and the bounds between which the value is likely to be."""

    low: float
    expected: float
    high: float

    def __add__(self, other: "Range") -> "Range":  # type: ignore[override]  # adds values instead of concatenating
        return Range(
            self.low + other.low,
            self.expected + other.expected,
            self.high + other.high,
        )

    def times(
        self,
        low: float,
        expected: float,
        high: float,
    ) -> "Range":
        """Return the product with a factor that has a range itself."""
        return Range(
            self.low * low,
            self.expected * expected,
            self.high * high,
        )

    def times_exactly(self, factor: float) -> "Range":
        """Return the product with a known factor."""
        return self.times(factor, factor, factor)


ZERO = Range(0.0, 0.0, 0.0)


class RunningSample:
    """The count, mean and variance of numbers, without storing them (Welford's algorithm)."""

    __slots__ = ("_squares", "count", "largest", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.largest = 0.0
        self._squares = 0.0

    def add(self, value: float | None) -> None:
        """Count a number; ignore `None`."""
        if value is None:
            return
        self.count += 1
        change = value - self.mean
        self.mean += change / self.count
        self._squares += change * (value - self.mean)
        self.largest = max(self.largest, value)

    @property
    def variance(self) -> float:
        if self.count < 2:
            return 0.0
        return self._squares / (self.count - 1)

    def predict_sum(self, count: float) -> Range:
        """Return the sum of `count` further numbers, with a 95% prediction interval or a wider one."""
        expected = count * self.mean
        margin = MIN_MARGIN * expected
        if self.count < SMALL_SAMPLE:
            margin = SMALL_SAMPLE_MARGIN * expected
        if self.count > 1 and count:
            # the variance of the further numbers, and that of the estimated mean
            error = math.sqrt(self.variance * (count + count * count / self.count))
            margin = max(margin, t_quantile(0.975, self.count - 1) * error)
        return Range(
            max(0.0, expected - margin),
            expected,
            expected + margin,
        )
