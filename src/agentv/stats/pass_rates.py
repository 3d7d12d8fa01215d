"""Compute pass rates, pass@k and pass^k with their confidence intervals."""

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from random import Random

from agentv.stats.distributions import RESAMPLES, SEED, Interval, Z

NORMAL_ABOVE = 20
"""Mean above which a binomial number is drawn from the normal distribution."""


def wilson(passes: float, n: float) -> Interval:
    """Return the 95% Wilson interval of a pass rate, which is valid for few cases and for rates near 0 and 1."""
    if n == 0:
        return 0.0, 1.0
    rate = passes / n
    extra = Z * Z / n
    center = rate + extra / 2
    variance = rate * (1 - rate) / n
    variance += extra / n / 4
    half = Z * math.sqrt(variance)
    scale = 1 + extra
    low = (center - half) / scale
    high = (center + half) / scale
    return max(0.0, low), min(1.0, high)


def pass_at(
    k: int,
    passes: int,
    trials: int,
) -> float:
    """Return pass@k, the estimated probability that at least one of k trials passes; NaN if k exceeds `trials`."""
    if not 1 <= k <= trials:
        return math.nan
    all_fail = math.comb(trials - passes, k)
    choices = math.comb(trials, k)
    return 1 - all_fail / choices


def pass_all(
    k: int,
    passes: int,
    trials: int,
) -> float:
    """Return pass^k, the estimated probability that all of k trials pass; NaN if k exceeds `trials`."""
    if not 1 <= k <= trials:
        return math.nan
    all_pass = math.comb(passes, k)
    choices = math.comb(trials, k)
    return all_pass / choices


def bootstrap_interval(
    counts: Sequence[int],
    values: Sequence[float],
) -> Interval:
    """Return the 95% bootstrap interval of the mean over cases, of which `counts[i]` have the value `values[i]`.

    Cases with the same value are interchangeable, so each resample draws the counts instead of single cases.
    """
    n = sum(counts)
    means = []
    for drawn in _resample(tuple(counts)):
        total = sum(map(mul, drawn, values))
        means.append(total / n)
    means.sort()
    cut = round(RESAMPLES * 0.025)
    return means[cut], means[-1 - cut]


# Several metrics of one run have the same counts: the last resamples are kept for the next call.
@lru_cache(maxsize=1)
def _resample(counts: tuple[int, ...]) -> list[list[int]]:
    """Return the counts of `RESAMPLES` bootstrap resamples, which are the same in every process."""
    rng = Random(SEED)
    return [draw_counts(rng, counts) for _ in range(RESAMPLES)]


def draw_counts(rng: Random, counts: Sequence[int]) -> list[int]:
    """Return the counts of each kind in one resample with replacement, as large as the original."""
    remaining = sum(counts)
    drawn = []
    for share in _conditional_shares(tuple(counts)):
        count = _binomial(rng, remaining, share)
        drawn.append(count)
        remaining -= count
    return drawn


@lru_cache(maxsize=1)
def _conditional_shares(counts: tuple[int, ...]) -> list[float]:
    """Return the share of each kind among the cases that are not of an earlier kind."""
    remaining = sum(counts)
    shares = []
    for count in counts:
        share = 0.0
        if remaining:
            share = count / remaining
        shares.append(share)
        remaining -= count
    return shares


def _binomial(
    rng: Random,
    n: int,
    chance: float,
) -> int:
    """Return a binomial random number; for large means, from the normal approximation."""
    if chance > 0.5:
        return n - _binomial(rng, n, 1 - chance)
    mean = n * chance
    if mean > NORMAL_ABOVE:
        deviation = math.sqrt(mean * (1 - chance))
        count = round(rng.gauss(mean, deviation))
        return min(n, max(0, count))
    # inversion: walk through the probabilities of 0, 1, 2, ... until they add up to a random number
    rest = rng.random()
    odds = chance / (1 - chance)
    probability = (1 - chance) ** n
    count = 0
    while rest > probability and count < n:
        rest -= probability
        probability *= odds * (n - count) / (count + 1)
        count += 1
    return count
