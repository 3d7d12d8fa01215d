"""Decide whether an estimate with a confidence interval reaches a threshold."""

import math
from bisect import bisect_left
from typing import Literal, NamedTuple

from agentv.stats.distributions import Interval
from agentv.stats.pass_rates import wilson

MOST = 10**9


class Decision(NamedTuple):
    """The comparison of an estimate with a threshold."""

    verdict: Literal["reached", "missed", "undecided"]
    estimate: float
    interval: Interval
    cases: int
    needed: int | None = None
    """Approximate number of cases that would decide it; None if it is decided, or too close to estimate."""


def decide(
    estimate: float,
    interval: Interval | None,
    cases: int,
    bar: float,
) -> Decision:
    """Return whether the mean of numbers between 0 and 1 reaches `bar`, by its 95% interval.

    The Wilson interval replaces a missing interval, and one without width because all cases are equal: a few cases
    prove little, and no numbers between 0 and 1 vary more than zeros and ones.
    """
    is_share = False
    if interval is None or interval[1] <= interval[0]:
        is_share = True
        interval = wilson(estimate * cases, cases)
    low, high = interval
    if low >= bar:
        return Decision("reached", estimate, interval, cases)
    if high < bar:
        return Decision("missed", estimate, interval, cases)
    needed = None
    if estimate != bar and is_share:
        needed = _needed_for_share(estimate, cases, bar)
    elif estimate != bar:
        needed = _needed_for_mean(estimate, interval, cases, bar)
    return Decision("undecided", estimate, interval, cases, needed)


def _needed_for_share(
    estimate: float,
    cases: int,
    bar: float,
) -> int | None:
    """Return how many cases a decision would need if the share stayed the same."""

    def is_decided(n: int) -> bool:
        low, high = wilson(estimate * n, n)
        return low >= bar or high < bar

    return bisect_left(range(MOST), True, lo=cases, key=is_decided) or None


def _needed_for_mean(
    estimate: float,
    interval: Interval,
    cases: int,
    bar: float,
) -> int:
    """Return how many cases a decision would need if the mean stayed the same."""
    low, high = interval
    distance = bar - estimate
    half = high - estimate
    if estimate > bar:
        distance = estimate - bar
        half = estimate - low
    # the width of an interval shrinks with the square root of the number of cases
    needed = math.ceil(cases * (half / distance) ** 2)
    return max(needed, cases + 1)
