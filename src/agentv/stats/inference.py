"""Compute confidence intervals and significance tests for the scores of cases.

The unit of analysis is the case, not the trial. Cases of one conversation or document are a cluster and count as one
draw: `ClusterSums` holds one sum per cluster.
"""

import math
import operator
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from agentv.stats.distributions import (
    RESAMPLES,
    SEED,
    Interval,
    Z,
    fair_coin_cdf,
    normal_two_sided,
    t_quantile,
)

CONFIDENCE = 0.95
UPPER_TAIL = (1 + CONFIDENCE) / 2
POWER_Z = Z + 0.8416212335729143
"""Minimum detectable effect in standard errors, for 80% power at the 5% level."""
MIN_PAIRS = 10
"""Minimum number of pairs for a verdict on a difference."""
BOOTSTRAP_BELOW = 200
"""Below this number of draws, a bootstrap interval is reported in addition to the t interval."""
MAX_FLIPPED = 2000
"""Above this number of nonzero differences, the sign-flip test uses the normal approximation."""
NO_VARIATION = 1e-9
"""A standard deviation below this is rounding error."""


@dataclass(frozen=True)
class ClusterSums:
    """The sum of the values of each cluster, and its number of cases. Without `sizes`, each cluster has one case."""

    sums: Sequence[float]
    sizes: Sequence[int] | None = None

    @cached_property
    def cases(self) -> int:
        """Number of cases in all clusters."""
        if self.sizes is None:
            return len(self.sums)
        return sum(self.sizes)

    @cached_property
    def total(self) -> float:
        """Sum of the values of all cases."""
        return math.fsum(self.sums)

    @property
    def mean(self) -> float:
        """Mean value of all cases."""
        return self.total / self.cases

    def __len__(self) -> int:
        """Return the number of clusters."""
        return len(self.sums)


def cluster_sums(
    values: Sequence[float],
    keys: Sequence[int],
) -> ClusterSums:
    """Return the values summed by cluster key. Each case with key 0 is a cluster of its own."""
    key_at = keys.__getitem__
    order = sorted(range(len(values)), key=key_at)
    sums = array("d")
    sizes = array("l")
    for key, members in groupby(order, key=key_at):
        inside = [values[number] for number in members]
        if key == 0:
            sums.extend(inside)
            sizes.extend([1] * len(inside))
        else:
            sums.append(math.fsum(inside))
            sizes.append(len(inside))
    return ClusterSums(sums, sizes)


class Estimate(NamedTuple):
    """A mean with its standard error and 95% t interval; a single draw has neither."""

    mean: float
    error: float | None = None
    df: int = 0
    low: float | None = None
    high: float | None = None


def estimate_mean(sample: ClusterSums) -> Estimate:
    """Return the mean of all cases, with a cluster-robust standard error."""
    mean = sample.mean
    draws = len(sample)
    if draws < 2:
        return Estimate(mean)
    expected = [mean] * draws
    if sample.sizes is not None:
        expected = [mean * size for size in sample.sizes]
    spread = math.dist(sample.sums, expected)
    df = draws - 1
    error = math.sqrt(draws / df) * spread / sample.cases
    if error < 1e-15:  # all values are equal, up to rounding
        error = 0.0
    half = t_quantile(UPPER_TAIL, df) * error
    return Estimate(
        mean=mean,
        error=error,
        df=df,
        low=mean - half,
        high=mean + half,
    )


def interval_of_mean(
    mean: float,
    deviation: float,
    cases: int,
) -> Interval | None:
    """Return the 95% t interval of a mean of scores between 0 and 1.

    Return None for a single case, or if all scores are equal: an interval cannot be estimated without variation.
    """
    if cases < 2 or deviation < NO_VARIATION:
        return None
    width = t_quantile(UPPER_TAIL, cases - 1) * deviation
    half = width / math.sqrt(cases)
    low = max(0.0, mean - half)
    high = min(1.0, mean + half)
    return low, high


def bootstrap_mean(sample: ClusterSums) -> Interval:
    """Return the 95% bootstrap interval of the mean. Clusters are resampled as a whole."""
    import random

    rng = random.Random(SEED)
    draws = len(sample)
    means = []
    for _ in range(RESAMPLES):
        drawn = rng.choices(range(draws), k=draws)
        total = sum(map(sample.sums.__getitem__, drawn))
        cases = draws
        if sample.sizes is not None:
            cases = sum(map(sample.sizes.__getitem__, drawn))
        means.append(total / cases)
    means.sort()
    tail = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return means[tail], means[-1 - tail]


class SignFlip(NamedTuple):
    """The p-value of a sign-flip test, and how it was computed."""

    p_value: float
    method: str
    resamples: int = 0


def sign_flip(sample: ClusterSums) -> SignFlip:
    """Test paired differences by flipping their signs; under the null hypothesis, each sign is equally likely.

    The sign of a cluster is flipped as a whole.
    """
    zeros = sample.sums.count(0.0)
    if len(sample) - zeros > MAX_FLIPPED:
        origin = [0.0] * len(sample)
        spread = math.dist(sample.sums, origin)
        p_value = normal_two_sided(sample.total / spread)
        return SignFlip(p_value, "normal approximation")
    nonzero = [value for value in sample.sums if value]
    # the same values, added in another order, may give a slightly smaller total
    tolerance = 1e-12 * math.fsum(map(abs, nonzero))
    observed = abs(sample.total) - tolerance
    if 2 ** len(nonzero) <= RESAMPLES:
        return _flip_exhaustively(nonzero, observed)
    return _flip_randomly(nonzero, observed)


def _flip_exhaustively(
    values: Sequence[float],
    observed: float,
) -> SignFlip:
    totals = _signed_sums(values)
    extreme = sum(abs(total) >= observed for total in totals)
    return SignFlip(extreme / len(totals), "exact")


def _flip_randomly(
    values: Sequence[float],
    observed: float,
) -> SignFlip:
    """Draw the signs of eight values at a time: a random byte selects one of their 256 signed sums."""
    import random

    padding = [0.0] * (-len(values) % 8)
    padded = [*values, *padding]
    tables = []
    for start in range(0, len(padded), 8):
        eight = padded[start : start + 8]
        tables.append(_signed_sums(eight))
    rng = random.Random(SEED)
    extreme = 0
    for _ in range(RESAMPLES):
        signs = rng.randbytes(len(tables))
        total = sum(map(operator.getitem, tables, signs))
        if abs(total) >= observed:
            extreme += 1
    p_value = (1 + extreme) / (1 + RESAMPLES)
    return SignFlip(p_value, "Monte Carlo", RESAMPLES)


def _signed_sums(values: Sequence[float]) -> list[float]:
    """Return the sum of the values under each choice of signs."""
    totals = [0.0]
    for value in values:
        added = [total + value for total in totals]
        subtracted = [total - value for total in totals]
        totals = added + subtracted
    return totals


def mcnemar(lost: int, gained: int) -> float:
    """Return the p-value of McNemar's exact test that cases are lost as often as gained."""
    one_sided = fair_coin_cdf(min(lost, gained), lost + gained)
    return min(1.0, 2 * one_sided)


def pass_difference(
    lost: int,
    gained: int,
    cases: int,
) -> Interval:
    """Return the 95% interval of the difference between two pass rates of the same cases (Agresti and Min)."""
    # Agresti and Min add half a case to each cell of the 2 x 2 table
    adjusted_lost = lost + 0.5
    adjusted_gained = gained + 0.5
    adjusted_cases = cases + 2
    difference = adjusted_gained - adjusted_lost
    spread = adjusted_lost + adjusted_gained - difference**2 / adjusted_cases
    middle = difference / adjusted_cases
    half = Z * math.sqrt(spread) / adjusted_cases
    low = max(-1.0, middle - half)
    high = min(1.0, middle + half)
    return low, high


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, adjusted for multiple testing by Holm's method."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, number in enumerate(order):
        remaining = len(order) - rank
        scaled = min(1.0, p_values[number] * remaining)
        highest = max(highest, scaled)
        adjusted[number] = highest
    return adjusted
