"""Measure how well raters agree: a judge with humans, or humans with each other.

An undefined estimate is a `Figure` without a value whose `note` gives the reason. No function returns NaN.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import mul
from random import Random
from typing import Literal

from agentv.stats.distributions import SEED, Interval, Z
from agentv.stats.fields import Fields
from agentv.stats.pass_rates import draw_counts, wilson

RESAMPLES = 2000
"""Number of bootstrap resamples behind each confidence interval."""
BOOTSTRAP = f"bootstrap, {RESAMPLES} resamples"
Table = Mapping[tuple[str, str], int]
"""Contingency table of two raters: pair of labels -> number of answers."""
Margin = Counter[str]
"""Label counts of one rater."""
Clusters = Mapping[tuple[int, float], int]
"""Clusters of dependent answers: (number of answers, sum of their values) -> number of such clusters."""
Scale = Literal["nominal", "interval"]


class Figure(Fields, frozen=True, kw_only=True):
    """An estimate with its 95% confidence interval. `note` explains why a part is missing."""

    value: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    method: str = ""
    note: str = ""


def rate(
    clusters: Clusters,
    nothing: str = "nothing to count",
) -> Figure:
    """Return the share of answers whose value is 1, with a Wilson interval at the effective sample size.

    `nothing` is the note of the figure without any answers.
    """
    if not count_answers(clusters):
        return Figure(note=nothing)
    share = mean_value(clusters)
    effective = effective_size(clusters)
    low, high = wilson(share * effective, effective)
    return Figure(
        value=share,
        ci_lower=min(low, share),
        ci_upper=max(high, share),
        method="Wilson",
    )


def count_answers(clusters: Clusters) -> int:
    """Return the number of answers in all clusters."""
    answers = 0
    for (size, _), times in clusters.items():
        answers += size * times
    return answers


def mean_value(clusters: Clusters) -> float:
    """Return the mean value of all answers."""
    totals = []
    for (_, total), times in clusters.items():
        totals.append(total * times)
    return sum(totals) / count_answers(clusters)


def squared_deviations(clusters: Clusters, mean: float) -> float:
    """Return the sum of the squared deviations of the cluster sums from their prediction by `mean`."""
    squares = []
    for (size, total), times in clusters.items():
        deviation = total - size * mean
        squares.append(deviation**2 * times)
    return sum(squares)


def effective_size(clusters: Clusters) -> float:
    """Return the effective sample size: how many independent answers would be as informative as these.

    It is at most the number of answers. If all answers have the same value, the correlation inside clusters cannot be
    estimated, and each cluster counts as one answer.
    """
    size = count_answers(clusters)
    groups = sum(clusters.values())
    if groups == size:
        return size
    share = mean_value(clusters)
    if groups < 2 or not 0 < share < 1:
        return groups
    spread = squared_deviations(clusters, share)
    if_independent = size * share * (1 - share)
    design_effect = groups / (groups - 1) * spread / if_independent
    return size / max(1.0, design_effect)


def kappa(clusters: Iterable[Table]) -> Figure:
    """Return Cohen's kappa of two raters, with a bootstrap interval that resamples clusters.

    Each table holds one case, or several cases of one cluster. Resampling shows no variation if the raters agree
    always or never, or if one rater gives a single label, which makes kappa 0 in every resample. In these cases, the
    interval is the Wilson interval of the agreement, converted to kappa at the observed chance agreement.
    """
    contents = (frozenset(table.items()) for table in clusters)
    kinds = Counter(contents)
    tables = [dict(kind) for kind in kinds]
    counts = list(kinds.values())
    whole = _add_tables(tables, counts)
    value = _kappa_value(whole)
    if value is None:
        return Figure(note=_why_no_kappa(whole))
    if _has_no_variation(whole):
        return _kappa_from_agreement(value, whole, kinds.total())
    if len(tables) == 1:
        return Figure(value=value, note="no interval: all clusters are alike")

    def kappa_of_resample(drawn: Sequence[int]) -> float | None:
        resample = _add_tables(tables, drawn)
        return _kappa_value(resample)

    low, high = _bootstrap(counts, kappa_of_resample)
    return Figure(
        value=value,
        ci_lower=low,
        ci_upper=high,
        method=BOOTSTRAP,
    )


def _has_no_variation(table: Table) -> bool:
    """Return whether the raters agree always or never, or one of them gives a single label."""
    agreed, _ = _agreement(table)
    if agreed in (0.0, 1.0):
        return True
    first, second = _margins(table)
    return len(+first) == 1 or len(+second) == 1  # unary plus drops labels with a count of 0


def _kappa_from_agreement(
    value: float,
    table: Table,
    groups: int,
) -> Figure:
    """Return kappa with the Wilson interval of the agreement, converted at the observed chance agreement."""
    agreed, chance = _agreement(table)
    low, high = wilson(agreed * groups, groups)
    beyond_chance = 1 - chance
    kappa_low = (low - chance) / beyond_chance
    kappa_high = (high - chance) / beyond_chance
    return Figure(
        value=value,
        ci_lower=max(-1.0, kappa_low),
        ci_upper=min(1.0, kappa_high),
        method="Wilson, at the chance agreement observed",
    )


def kappa_large_sample(table: Table) -> Figure:
    """Return Cohen's kappa with its large-sample interval (Fleiss, Cohen and Everitt 1969)."""
    value = _kappa_value(table)
    if value is None:
        return Figure(note=_why_no_kappa(table))
    n = sum(table.values())
    first, second = _margins(table)
    _, chance = _agreement(table)
    rest = 1 - value
    spread = 0.0
    for (a, b), count in table.items():
        if a == b:
            margins = first[a] + second[b]
            influence = 1 - margins / n * rest
        else:
            margins = second[a] + first[b]
            influence = margins / n * rest
        spread += count / n * influence**2
    inside = (value - chance * rest) ** 2
    variance = max(0.0, spread - inside) / n
    half = Z * math.sqrt(variance) / (1 - chance)
    return Figure(
        value=value,
        ci_lower=max(-1.0, value - half),
        ci_upper=min(1.0, value + half),
        method="large sample",
    )


def _add_tables(
    tables: Sequence[Table],
    counts: Sequence[int],
) -> Table:
    """Return the sum of the tables, where `counts[i]` is the multiplicity of `tables[i]`."""
    whole: dict[tuple[str, str], int] = {}
    for table, times in zip(tables, counts, strict=True):
        for pair, count in table.items():
            before = whole.get(pair, 0)
            whole[pair] = before + count * times
    return whole


def _margins(table: Table) -> tuple[Margin, Margin]:
    """Return the label counts of each rater."""
    first = Margin()
    second = Margin()
    for (a, b), count in table.items():
        first[a] += count
        second[b] += count
    return first, second


def _agreement(table: Table) -> tuple[float, float]:
    """Return the observed agreement, and the agreement expected by chance."""
    n = sum(table.values())
    first, second = _margins(table)
    agreed = 0
    for (a, b), count in table.items():
        if a == b:
            agreed += count
    by_chance = 0
    for label, count in first.items():
        by_chance += count * second[label]
    return agreed / n, by_chance / n / n


def _kappa_value(table: Table) -> float | None:
    """Return Cohen's kappa, or None if it is undefined."""
    if not any(table.values()):
        return None
    agreed, chance = _agreement(table)
    if chance >= 1:
        return None
    beyond_chance = 1 - chance
    return (agreed - chance) / beyond_chance


def _why_no_kappa(table: Table) -> str:
    if not any(table.values()):
        return "undefined: no item was rated by both"
    pairs = +Counter(table)  # unary plus drops pairs with a count of 0
    label, _ = next(iter(pairs))
    return f"undefined: both always say {label!r}, so agreement by chance is certain"


def _bootstrap(
    counts: Sequence[int],
    statistic: Callable[[Sequence[int]], float | None],
) -> Interval:
    """Return the 95% bootstrap interval of a statistic of the counts of each kind of case.

    Resamples whose statistic is undefined are skipped.
    """
    rng = Random(SEED)
    values = []
    for _ in range(RESAMPLES):
        drawn = draw_counts(rng, counts)
        value = statistic(drawn)
        if value is not None:
            values.append(value)
    values.sort()
    cut = int(len(values) * 0.025)
    return values[cut], values[-1 - cut]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Contribution of one unit to Krippendorff's alpha, as sums that can be added quickly across units."""

    size: int
    sums: tuple[float, ...]
    """Sum of the coordinates of the values, per axis."""
    squares: float
    """Sum of the squared lengths of the values."""
    disagreement: float
    """Squared distances between the values of the unit, divided by `size - 1`."""


def alpha(
    units: Iterable[Sequence[Hashable]],
    scale: Scale = "nominal",
) -> Figure:
    """Return Krippendorff's alpha, with a bootstrap interval that resamples units.

    A unit is one rated item, given by the values of its raters without missing ones. Units with fewer than two values
    are skipped. `nominal` values are equal or not, `interval` values are numbers.
    """
    rated: list[Sequence[Hashable]] = []
    for values in units:
        if len(values) > 1:
            rated.append(values)
    if not rated:
        return Figure(note="undefined: no item was rated twice")
    axes: list[Hashable] = []
    if scale == "nominal":
        distinct = set(chain.from_iterable(rated))
        axes = sorted(distinct, key=str)
        if len(axes) == 1:
            only = str(axes[0])
            return Figure(note=f"undefined: all ratings are {only!r}")
    kinds = Counter(_make_unit(values, axes) for values in rated)
    summands = list(kinds)
    counts = list(kinds.values())
    value = _alpha_value(summands, counts)
    if value is None:
        return Figure(note="undefined: all ratings are equal")
    statistic = partial(_alpha_value, summands)
    low, high = _bootstrap(counts, statistic)
    if low == high:
        reason = _why_no_alpha_interval(value, len(rated))
        return Figure(value=value, note=f"no interval: {reason}")
    return Figure(
        value=value,
        ci_lower=low,
        ci_upper=high,
        method=BOOTSTRAP,
    )


def _why_no_alpha_interval(value: float, units: int) -> str:
    if units == 1:
        return "only one unit"
    if value == 1:
        return "all ratings agree"
    return "all units are alike"


def _make_unit(
    values: Sequence[Hashable],
    axes: Sequence[Hashable],
) -> _Unit:
    """Return the sums of a unit.

    Each nominal value is a unit vector on its own axis, so that unequal values are equally far apart. Without `axes`,
    the values are numbers.
    """
    size = len(values)
    if axes:
        counts = Counter(values)
        sums = tuple(float(counts[axis]) for axis in axes)
        squares = float(size)
    else:
        numbers = [float(value) for value in values]  # type: ignore[arg-type]  # the caller passes numbers
        sums = (math.fsum(numbers),)
        squares = math.fsum(number * number for number in numbers)
    # the squared distances between all pairs of values, each pair counted once
    distances = size * squares - _sum_of_squares(sums)
    return _Unit(
        size=size,
        sums=sums,
        squares=squares,
        disagreement=distances / (size - 1),
    )


def _alpha_value(
    units: Sequence[_Unit],
    counts: Sequence[int],
) -> float | None:
    """Return Krippendorff's alpha, or None if the values do not vary."""
    size = 0.0
    disagreement = 0.0
    squares = 0.0
    sums = [0.0] * len(units[0].sums)
    for unit, times in zip(units, counts, strict=True):
        size += unit.size * times
        disagreement += unit.disagreement * times
        squares += unit.squares * times
        for axis, total in enumerate(unit.sums):
            sums[axis] += total * times
    expected = size * squares - _sum_of_squares(sums)
    # up to rounding, `expected` is 0 if all values are equal
    if expected <= 1e-12 * max(1.0, size * squares):
        return None
    return 1 - (size - 1) * disagreement / expected


def spearman(
    first: Sequence[float],
    second: Sequence[float],
) -> Figure:
    """Return Spearman's rank correlation, with the interval of Bonett and Wright."""
    n = len(first)
    if n < 2:
        return Figure(note="undefined: at least two values are needed")
    x = _centered_ranks(first)
    y = _centered_ranks(second)
    squares = _sum_of_squares(x) * _sum_of_squares(y)
    spread = math.sqrt(squares)
    if not spread:
        return Figure(note="undefined: one of the two variables is constant")
    products = sum(map(mul, x, y))
    rough = products / spread
    value = max(-1.0, min(1.0, rough))
    if n < 4 or abs(value) == 1:
        return Figure(value=value, note="no interval: too few values, or a perfect correlation")
    center = math.atanh(value)
    variance = (1 + value * value / 2) / (n - 3)
    half = Z * math.sqrt(variance)
    return Figure(
        value=value,
        ci_lower=math.tanh(center - half),
        ci_upper=math.tanh(center + half),
        method="Bonett and Wright",
    )


def _sum_of_squares(values: Iterable[float]) -> float:
    return sum(value * value for value in values)


def _centered_ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value minus the mean rank. Equal values share the mean of their ranks."""
    middle = (len(values) + 1) / 2
    value_at = values.__getitem__
    order = sorted(range(len(values)), key=value_at)
    ranks = [0.0] * len(values)
    start = 0
    for _, tied in groupby(order, key=value_at):
        places = list(tied)
        end = start + len(places)
        rank = (start + 1 + end) / 2
        for place in places:
            ranks[place] = rank - middle
        start = end
    return ranks
