"""How often cases pass -> pass rates, pass@k and pass^k, with intervals."""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul
from random import Random

from agentv.stats.distributions import RESAMPLES, SEED, Z

NORMAL_ABOVE = 20


def wilson(passes: float, n: float) -> tuple[float, float]:
    """Return the 95% interval (Wilson) of a pass rate, which holds for few cases and for rates near 0 and 1 as well."""
    if n == 0:
        return 0.0, 1.0
    rate, extra = passes / n, Z * Z / n
    half = Z * math.sqrt(rate * (1 - rate) / n + extra / n / 4)
    low, high = ((rate + extra / 2 + side) / (1 + extra) for side in (-half, half))
    return max(0.0, low), min(1.0, high)


def pass_at(k: int, passes: int, trials: int) -> float:
    """Return pass@k, the estimated probability that one of k trials passes; NaN if k is more than there were."""
    if not 1 <= k <= trials:
        return math.nan
    return 1 - math.comb(trials - passes, k) / math.comb(trials, k)


def pass_all(k: int, passes: int, trials: int) -> float:
    """Return pass^k, the estimated probability that k trials all pass; NaN if k is more than there were."""
    if not 1 <= k <= trials:
        return math.nan
    return math.comb(passes, k) / math.comb(trials, k)


def bootstrap_interval(counts: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Return the 95% interval of the mean over cases, of which `counts[i]` have the value `values[i]`.

    Cases are drawn anew, `RESAMPLES` times. Only how many there are of each kind matters, and only that is drawn.
    """
    n = sum(counts)
    means = sorted(sum(map(mul, drawn, values)) / n for drawn in _resample(tuple(counts)))
    cut = round(RESAMPLES * 0.025)
    return means[cut], means[-1 - cut]


@lru_cache(maxsize=1)
def _resample(counts: tuple[int, ...]) -> list[list[int]]:
    """As many counts again and again, of as many cases drawn from these with replacement; always the same ones."""
    dice = Random(SEED)
    return [draw_counts(dice, counts) for _ in range(RESAMPLES)]


def draw_counts(dice: Random, counts: Sequence[int]) -> list[int]:
    """Return how many there are of each kind if as many cases are drawn from these, with replacement."""
    n, drawn = sum(counts), []
    for share in _shares(tuple(counts)):
        count = _binomial(dice, n, share)
        drawn.append(count)
        n -= count
    return drawn


@lru_cache(maxsize=1)
def _shares(counts: tuple[int, ...]) -> list[float]:
    """Return the share that each kind has of what those before it leave."""
    left = list(accumulate(reversed(counts)))[::-1]
    return [count / rest if rest else 0.0 for count, rest in zip(counts, left, strict=True)]


def _binomial(dice: Random, n: int, chance: float) -> int:
    """Return a binomial random number, by the normal distribution where the mean is large."""
    if chance > 0.5:
        return n - _binomial(dice, n, 1 - chance)
    mean = n * chance
    if mean > NORMAL_ABOVE:
        return min(n, max(0, round(dice.gauss(mean, math.sqrt(mean * (1 - chance))))))
    rest, odds = dice.random(), chance / (1 - chance)
    here, count = (1 - chance) ** n, 0
    while rest > here and count < n:
        rest -= here
        here *= odds * (n - count) / (count + 1)
        count += 1
    return count
