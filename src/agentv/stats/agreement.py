"""How well raters agree: a judge with people, or people with each other.

What is undefined is a `Figure` without a value, and its `note` says why in words; nothing here returns NaN.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from agentv.stats.distributions import SEED, Z
from agentv.stats.pass_rates import draw_counts, wilson

RESAMPLES = 2000
"""How often cases are drawn anew for an interval."""
Table = Mapping[tuple[str, str], int]
"""How often two raters gave each pair of labels."""
Clusters = Mapping[tuple[int, float], int]
"""How many answers belong together, and what their values sum up to -> how many such clusters there are."""
Metric = Literal["nominal", "interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """An estimate with its 95% interval; `note` says in words why something is missing."""

    value: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    method: str = ""
    note: str = ""


def rate(clusters: Clusters, nothing: str = "there is nothing to count") -> Figure:
    """Return the share of answers whose value is 1, with Wilson's interval; `nothing` is the note if there is none.

    Answers that belong together count for fewer.
    """
    size = sum(n * times for (n, _), times in clusters.items())
    if not size:
        return Figure(note=nothing)
    share = sum(total * times for (_, total), times in clusters.items()) / size
    effective = effective_size(clusters)
    low, high = wilson(share * effective, effective)
    return Figure(value=share, ci_lower=min(low, share), ci_upper=max(high, share), method="Wilson")


def effective_size(clusters: Clusters) -> float:
    """Return how many independent answers would tell as much as these, at most as many as there are.

    If all have the same value, nothing is known of how alike those of a cluster are: then each cluster counts once.
    """
    size = sum(n * times for (n, _), times in clusters.items())
    groups = sum(clusters.values())
    if groups == size:
        return size
    share = sum(total * times for (_, total), times in clusters.items()) / size
    if groups < 2 or not 0 < share < 1:
        return groups
    spread = sum((total - n * share) ** 2 * times for (n, total), times in clusters.items())
    design_effect = groups / (groups - 1) * spread / (size * share * (1 - share))
    return size / max(1.0, design_effect)


def kappa(clusters: Iterable[Table]) -> Figure:
    """Return Cohen's kappa of two raters, with an interval by drawing the cases anew.

    Each table is a case, or several that belong together. Drawing anew tells nothing if the raters always agree, or
    never, or if one of them always says the same, whose kappa is 0 in each draw: the interval is then that of their
    agreement (Wilson), at the chance agreement that was observed.
    """
    kinds = Counter(frozenset(table.items()) for table in clusters)
    tables = [dict(kind) for kind in kinds]
    whole = _add_up(tables, list(kinds.values()))
    value = _kappa_of(whole)
    if value is None:
        return Figure(note=_why_no_kappa(whole))
    agreed, chance = _agreement(whole)
    if agreed in (0.0, 1.0) or any(len(+labels) == 1 for labels in _margins(whole)):
        groups = kinds.total()
        low, high = ((side - chance) / (1 - chance) for side in wilson(agreed * groups, groups))
        method = "Wilson, at the chance agreement observed"
        return Figure(value=value, ci_lower=max(-1.0, low), ci_upper=min(1.0, high), method=method)
    if len(tables) == 1:
        return Figure(value=value, note="no interval: all that belongs together is alike")
    interval = _bootstrap(list(kinds.values()), lambda counts: _kappa_of(_add_up(tables, counts)))
    return Figure(value=value, ci_lower=interval[0], ci_upper=interval[1], method=f"bootstrap, {RESAMPLES} resamples")


def kappa_large_sample(table: Table) -> Figure:
    """Return Cohen's kappa with the interval of its standard error for many cases (Fleiss, Cohen and Everitt 1969)."""
    value, n = _kappa_of(table), sum(table.values())
    if value is None:
        return Figure(note=_why_no_kappa(table))
    first, second = _margins(table)
    chance = _agreement(table)[1]
    rest = 1 - value
    inside = (value - chance * rest) ** 2
    spread = 0.0
    for (a, b), count in table.items():
        if a == b:
            spread += count / n * (1 - (first[a] + second[b]) / n * rest) ** 2
        else:
            spread += count / n * ((second[a] + first[b]) / n * rest) ** 2
    half = Z * math.sqrt(max(0.0, spread - inside) / n) / (1 - chance)
    return Figure(value=value, ci_lower=max(-1.0, value - half), ci_upper=min(1.0, value + half), method="large sample")


def _add_up(tables: Sequence[Table], counts: Sequence[int]) -> dict[tuple[str, str], int]:
    """Return the sum of the tables, each as often as its count says."""
    whole: dict[tuple[str, str], int] = {}
    for table, times in zip(tables, counts, strict=True):
        for pair, count in table.items():
            whole[pair] = whole.get(pair, 0) + count * times
    return whole


def _margins(table: Table) -> tuple[Counter[str], Counter[str]]:
    """Return how often each of the raters gave each label."""
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for (a, b), count in table.items():
        first[a] += count
        second[b] += count
    return first, second


def _agreement(table: Table) -> tuple[float, float]:
    """Return how often the raters agree, and how often they would by chance."""
    n = sum(table.values())
    first, second = _margins(table)
    agreed = sum(count for (a, b), count in table.items() if a == b) / n
    return agreed, sum(count * second[label] for label, count in first.items()) / n / n


def _kappa_of(table: Table) -> float | None:
    if not any(table.values()):
        return None
    agreed, chance = _agreement(table)
    return (agreed - chance) / (1 - chance) if chance < 1 else None


def _why_no_kappa(table: Table) -> str:
    if not any(table.values()):
        return "undefined: nothing was rated by both"
    label = next(a for (a, _), count in table.items() if count)
    return f"undefined: both say {label!r} every time, so that chance alone would agree as well"


def _bootstrap(counts: Sequence[int], figure_of: Callable[[Sequence[int]], float | None]) -> tuple[float, float]:
    """Return the 95% interval of a figure of cases, drawn anew; there are `counts[i]` of each kind of case.

    Draws of which the figure is undefined are left out.
    """
    dice = Random(SEED)
    found = (figure_of(draw_counts(dice, counts)) for _ in range(RESAMPLES))
    values = sorted(value for value in found if value is not None)
    cut = int(len(values) * 0.025)
    return values[cut], values[-1 - cut]


@dataclass(frozen=True, slots=True)
class _Unit:
    """What the values of one unit add to Krippendorff's alpha: sums, by which units can be added up quickly."""

    size: int
    sums: tuple[float, ...]
    squares: float
    apart: float
    """How far the values of the unit are from each other."""


def alpha(units: Iterable[Sequence[Hashable]], metric: Metric = "nominal") -> Figure:
    """Return Krippendorff's alpha, with an interval by drawing the units anew.

    A unit is what was rated, with the values that raters gave it; a rater who gave none is left out, and so is a unit
    with less than two values. `nominal` values are equal or not, `interval` values are numbers.
    """
    rated = [tuple(values) for values in units if len(values) > 1]
    if not rated:
        return Figure(note="undefined: nothing was rated by two")
    axes = sorted({value for values in rated for value in values}, key=str) if metric == "nominal" else []
    if metric == "nominal" and len(axes) == 1:
        return Figure(note=f"undefined: everybody says {str(axes[0])!r} every time")
    kinds = Counter(_unit(values, axes) for values in rated)
    summands, counts = list(kinds), list(kinds.values())
    value = _alpha_of(summands, counts)
    if value is None:
        return Figure(note="undefined: everybody gives the same value every time")
    low, high = _bootstrap(counts, lambda drawn: _alpha_of(summands, drawn))
    if low == high:
        why = "one unit alone" if len(rated) == 1 else "they always agree" if value == 1 else "all units are alike"
        return Figure(value=value, note=f"no interval: {why}")
    return Figure(value=value, ci_lower=low, ci_upper=high, method=f"bootstrap, {RESAMPLES} resamples")


def _unit(values: Sequence[Hashable], axes: Sequence[Hashable]) -> _Unit:
    """Return the sums of a unit. Nominal values are points on axes of their own: unequal ones are equally far."""
    size = len(values)
    if axes:
        counts = Counter(values)
        sums = tuple(float(counts[axis]) for axis in axes)
        squares = float(size)
    else:
        numbers = [float(value) for value in values]  # type: ignore[arg-type]  # the caller says that they are numbers
        sums, squares = (math.fsum(numbers),), math.fsum(number * number for number in numbers)
    apart = (size * squares - sum(total * total for total in sums)) / (size - 1)
    return _Unit(size, sums, squares, apart)


def _alpha_of(units: Sequence[_Unit], counts: Sequence[int]) -> float | None:
    size = apart = squares = 0.0
    sums = [0.0] * len(units[0].sums)
    for unit, times in zip(units, counts, strict=True):
        size += unit.size * times
        apart += unit.apart * times
        squares += unit.squares * times
        for axis, total in enumerate(unit.sums):
            sums[axis] += total * times
    expected = size * squares - sum(total * total for total in sums)
    if expected <= 1e-12 * max(1.0, size * squares):
        return None
    return 1 - (size - 1) * apart / expected


def spearman(first: Sequence[float], second: Sequence[float]) -> Figure:
    """Return Spearman's rank correlation, with the interval of Bonett and Wright."""
    n = len(first)
    if n < 2:
        return Figure(note="undefined: it takes two or more")
    ranks = _ranks(first), _ranks(second)
    middle = (n + 1) / 2
    x, y = ([rank - middle for rank in found] for found in ranks)
    spread = math.sqrt(sum(value * value for value in x) * sum(value * value for value in y))
    if not spread:
        return Figure(note="undefined: one of the two is always the same")
    value = max(-1.0, min(1.0, sum(a * b for a, b in zip(x, y, strict=True)) / spread))
    if n < 4 or abs(value) == 1:
        return Figure(value=value, note="no interval: too few, or in perfect order")
    centre, half = math.atanh(value), Z * math.sqrt((1 + value * value / 2) / (n - 3))
    low, high = math.tanh(centre - half), math.tanh(centre + half)
    return Figure(value=value, ci_lower=low, ci_upper=high, method="Bonett and Wright")


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, from 1 on; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + 1 + end) / 2
        start = end
    return ranks
