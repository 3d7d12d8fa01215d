"""An estimate with its interval, and a bar -> whether the bar is reached, is missed, or nobody can tell yet."""

import math
from bisect import bisect_left
from typing import Literal, NamedTuple

from agentv.stats.pass_rates import wilson

MOST = 10**9


class Decision(NamedTuple):
    """What can be said of an estimate and a bar."""

    verdict: Literal["reached", "missed", "undecided"]
    estimate: float
    interval: tuple[float, float]
    cases: int
    needed: int | None = None
    """About how many cases would probably tell; None if it is decided, or too close to say."""


def decide(estimate: float, interval: tuple[float, float] | None, cases: int, bar: float) -> Decision:
    """Return whether the mean of numbers from 0 to 1 reaches a bar, by its 95% interval.

    Without an interval, or with one that has no width since no case differs from the others, it is that of a share
    (Wilson): few cases prove little, and no numbers from 0 to 1 vary more than zeros and ones.
    """
    is_share = interval is None or interval[1] <= interval[0]
    low, high = wilson(estimate * cases, cases) if interval is None or is_share else interval
    if low >= bar or high < bar:
        return Decision("reached" if low >= bar else "missed", estimate, (low, high), cases)
    return Decision("undecided", estimate, (low, high), cases, _needed(estimate, (low, high), cases, bar, is_share))


def _needed(estimate: float, interval: tuple[float, float], cases: int, bar: float, is_share: bool) -> int | None:
    """Return about how many cases would tell, if the estimate stayed as it is; None if it is on the bar."""
    distance = estimate - bar
    if not distance:
        return None
    if is_share:
        return bisect_left(range(MOST), True, lo=cases, key=lambda n: _tells(estimate, n, bar)) or None
    half = estimate - interval[0] if distance > 0 else interval[1] - estimate
    return max(math.ceil(cases * (half / distance) ** 2), cases + 1)


def _tells(estimate: float, cases: int, bar: float) -> bool:
    low, high = wilson(estimate * cases, cases)
    return low >= bar or high < bar
