"""Scores of cases -> confidence intervals and tests.

The unit is the case, never one of its trials. Cases that belong together (one conversation, one document) are a
cluster, and count as one draw: `Sample` holds a sum for each.
"""

import math
import operator
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from agentv.stats.distributions import RESAMPLES, SEED, Z, fair_coin_cdf, normal_two_sided, t_quantile

CONFIDENCE = 0.95
POWER_Z = Z + 0.8416212335729143
"""How many standard errors a difference must be to be found in 80% of such experiments, at a level of 5%."""
BOOTSTRAP_BELOW = 200
"""Below so many cases or clusters, a bootstrap interval is given beside that of the t distribution."""
MAX_FLIPPED = 2000
"""Beyond so many differences, the normal distribution is as good as flipping signs at random."""

NO_VARIATION = 1e-9
"""A standard deviation below this is rounding."""


@dataclass(frozen=True)
class Sample:
    """Numbers by cluster: the sum of each, and how many cases it has (one each, without `sizes`)."""

    sums: Sequence[float]
    sizes: Sequence[int] | None = None

    @cached_property
    def cases(self) -> int:
        return len(self.sums) if self.sizes is None else sum(self.sizes)

    @cached_property
    def total(self) -> float:
        """The sum of the numbers of all cases."""
        return math.fsum(self.sums)

    @property
    def mean(self) -> float:
        return self.total / self.cases

    def __len__(self) -> int:  # how many clusters
        return len(self.sums)


def cluster_sums(values: Sequence[float], keys: Sequence[int]) -> Sample:
    """Return the values summed by cluster; cases with the same key are one, but each with key 0 stands alone."""
    order = sorted(range(len(values)), key=keys.__getitem__)
    sums, sizes = array("d"), array("l")
    for key, members in groupby(order, key=keys.__getitem__):
        inside = [values[number] for number in members]
        sums.extend(inside if key == 0 else [math.fsum(inside)])
        sizes.extend([1] * len(inside) if key == 0 else [len(inside)])
    return Sample(sums, sizes)


class Estimate(NamedTuple):
    """A mean, its standard error and its 95% interval by Student's t; one draw alone has no such thing."""

    mean: float
    error: float | None = None
    df: int = 0
    low: float | None = None
    high: float | None = None


def estimate_mean(sample: Sample) -> Estimate:
    """Return the mean of all cases, with the standard error that allows for clusters."""
    cases, draws = sample.cases, len(sample)
    mean = sample.mean
    if draws < 2:
        return Estimate(mean)
    expected = [mean] * draws if sample.sizes is None else [mean * size for size in sample.sizes]
    error = math.sqrt(draws / (draws - 1)) * math.dist(sample.sums, expected) / cases
    if error < 1e-15:  # rounding: all are the same
        error = 0.0
    half = t_quantile((1 + CONFIDENCE) / 2, draws - 1) * error
    return Estimate(mean, error, draws - 1, mean - half, mean + half)


def interval_of_mean(mean: float, deviation: float, cases: int) -> tuple[float, float] | None:
    """Return the 95% interval of a mean of scores from 0 to 1, by Student's t.

    Return None if there is no variation to estimate it from: of a single case, or if all the scores are the same.
    """
    if cases < 2 or deviation < NO_VARIATION:
        return None
    half = t_quantile((1 + CONFIDENCE) / 2, cases - 1) * deviation / math.sqrt(cases)
    return max(0.0, mean - half), min(1.0, mean + half)


def bootstrap_mean(sample: Sample) -> tuple[float, float]:
    """Return the 95% interval of the mean by resampling cases, or whole clusters."""
    import random

    pick, draws = random.Random(SEED), len(sample)
    sizes = sample.sizes or [1] * draws
    means = []
    for _ in range(RESAMPLES):
        drawn = pick.choices(range(draws), k=draws)
        total = sum(map(sample.sums.__getitem__, drawn))
        means.append(total / (draws if sample.sizes is None else sum(map(sizes.__getitem__, drawn))))
    means.sort()
    tail = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return means[tail], means[-1 - tail]


class SignFlip(NamedTuple):
    """The result of a sign-flip test: the p-value, and how it was computed."""

    p_value: float
    method: str
    resamples: int = 0


def sign_flip(sample: Sample) -> SignFlip:
    """Return the permutation test of paired differences: if there is no difference, a change of sign changes nothing.

    Clusters change their sign as a whole.
    """
    if len(sample) - sample.sums.count(0.0) > MAX_FLIPPED:
        spread = math.dist(sample.sums, [0.0] * len(sample))
        return SignFlip(normal_two_sided(sample.total / spread), "normal approximation")
    moved = [value for value in sample.sums if value]
    size = math.fsum(map(abs, moved))
    found = abs(sample.total) - 1e-12 * size  # sums in another order may end a little lower
    if 2 ** len(moved) <= RESAMPLES:
        totals = [0.0]
        for value in moved:
            totals = [total + signed for signed in (value, -value) for total in totals]
        return SignFlip(sum(abs(total) >= found for total in totals) / len(totals), "all choices of signs")
    import random

    tables = [_signed_sums(moved[start : start + 8]) for start in range(0, len(moved), 8)]
    draw = random.Random(SEED).randbytes
    extreme = sum(abs(sum(map(operator.getitem, tables, draw(len(tables))))) >= found for _ in range(RESAMPLES))
    return SignFlip((1 + extreme) / (1 + RESAMPLES), "signs chosen at random", RESAMPLES)


def _signed_sums(values: Sequence[float]) -> list[float]:
    """Return the sum of up to eight values under each choice of signs, one bit for each."""
    totals = [0.0]
    for value in [*values, *[0.0] * (8 - len(values))]:
        totals = [total + signed for signed in (value, -value) for total in totals]
    return totals


def mcnemar(lost: int, gained: int) -> float:
    """Return the p-value of the exact test: of the cases that changed sides, as many are lost as gained."""
    return min(1.0, 2 * fair_coin_cdf(min(lost, gained), lost + gained))


def pass_difference(lost: int, gained: int, cases: int) -> tuple[float, float]:
    """Return the 95% interval of the difference of two pass rates of the same cases (Agresti and Min)."""
    lost_, gained_, cases_ = lost + 0.5, gained + 0.5, cases + 2
    middle = (gained_ - lost_) / cases_
    half = Z * math.sqrt(lost_ + gained_ - (gained_ - lost_) ** 2 / cases_) / cases_
    return max(-1.0, middle - half), min(1.0, middle + half)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, adjusted by Holm's method for testing all of them."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, number in enumerate(order):
        highest = max(highest, min(1.0, p_values[number] * (len(order) - rank)))
        adjusted[number] = highest
    return adjusted
