"""The pass rate that people would give, from labels of a few answers and a judge's verdicts on all.

Two methods, for two ways to come by labels: of answers of the same run, drawn at random (`prediction_powered`), or of
answers of other runs (`rogan_gladen`). The first holds whatever errors the judge makes; the second needs errors that
are as frequent in this run as in those. Told of no clusters, it allows for errors that answers share unseen.

The first is also there for the difference of two runs (`powered_difference`), and beside it the labels alone.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentv.stats.agreement import Clusters, Figure, effective_size
from agentv.stats.distributions import t_quantile

PREDICTION_POWERED = "prediction-powered (PPI++ with four pseudo-labels)"
POWERED_DIFFERENCE = "prediction-powered on paired differences (PPI++ with four pseudo-labels)"
LABELLED_DIFFERENCE = "paired, with four pseudo-labels"
ROGAN_GLADEN = "Rogan-Gladen, labels of other runs (interval of Lee et al.)"
NOT_IN_BOTH = "no case has labels of both runs, drawn at random, of answers that differ"
MIN_JUDGED, MIN_LABELS_OF_A_KIND = 50, 20
"""Rogan and Gladen's correction needs so many answers, and so many labels of each kind; a cluster counts once."""
SHARED_BY = 5
"""Where nobody says which answers belong together, so many answers are taken to share each error of the judge."""
Labelled = Mapping[tuple[int, float, float], int]
"""Of answers that belong together: how many, the sums of labels and of the judge's values -> how many such clusters."""
_Groups = Labelled | Mapping[tuple[float, float, float], int]
_PSEUDO = ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0))
"""Four labels that nobody gave: with them, few labels that are all alike do not look certain."""
_PSEUDO_DIFFERENCES = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))
"""The same of differences. Weaker ones let intervals of rare differences that all have one sign cover too little."""


class PairedCases(NamedTuple):
    """Cases that belong together, or one alone, in two runs; a difference is 1, 0 or -1 for each."""

    cases: int
    changed: int
    """Of how many the two answers differ; what follows is of these. The same text deserves the same label."""
    labelled: int
    label: float
    """By how much labels differ, summed up over the labelled ones."""
    judge: float
    """By how much verdicts do, over the same."""
    rest: float
    """And over those that are not labelled."""


class SplitCluster(NamedTuple):
    """Answers that belong together, of which some are labelled and others not."""

    labelled: int
    label: float
    """The sum of the labels; then that of the judge's values of the same answers."""
    judge: float
    others: int
    rest: float
    """The sum of the judge's values of the others."""


class _Rest(NamedTuple):
    """The mean of the judge's values where there are no labels, its variance, and the covariances with `_Moments`."""

    mean: float
    variance: float
    with_label: float = 0.0
    with_judge: float = 0.0


class _Moments(NamedTuple):
    """Means of labels and of the judge's values, and the variances and covariance of these means."""

    label: float
    judge: float
    label_variance: float
    judge_variance: float
    covariance: float


def prediction_powered(labelled: Labelled, rest: Clusters, split: Mapping[SplitCluster, int] | None = None) -> Figure:
    """Return the mean label of all answers, given labels of some and the judge's values of all; both from 0 to 1.

    The labelled answers are a random sample; `rest` are the judge's values of the others. `split` has once more the
    clusters that have answers of both kinds: what these have in common is no news. The judge counts as much as it has
    proven to be worth on the labelled ones (PPI++).
    """
    if not labelled:
        return Figure(note="no label is of an answer that was drawn at random from this run")
    if not rest:
        return Figure(note="every answer has a label: the labels alone are the pass rate")
    means, others = _means(labelled), _mean(rest)
    sizes = _size(labelled) * sum(n * times for (n, _), times in rest.items())
    shared = _covariances(split or {}, means, others[0], sizes)
    value, variance = _powered(_moments(labelled, _PSEUDO), _Rest(*others, *shared))
    half = t_quantile(0.975, sum(labelled.values()) + 3) * math.sqrt(variance)
    return _within(value, value - half, value + half, PREDICTION_POWERED)


def powered_difference(groups: Mapping[PairedCases, int]) -> Figure:
    """Return by how much the pass rate of all cases differs between two runs, as people would say.

    Of the cases whose answers differ, the labelled ones are a random sample. The pseudo-labels widen the interval, and
    move nothing. Cases that belong together may be labelled in part.
    """
    labelled = _labelled(groups)
    if not labelled:
        return Figure(note=NOT_IN_BOTH)
    if all(group.changed == group.labelled for group in groups):
        return Figure(note="every case that can differ has labels: the labels alone are the difference")
    moments = _difference_moments(labelled)
    return _among_all(*_powered(moments, _rest(groups, moments)), groups, POWERED_DIFFERENCE)


def labelled_difference(groups: Mapping[PairedCases, int]) -> Figure:
    """Return the same from the labels alone, as if the judge had said nothing."""
    labelled = _labelled(groups)
    if not labelled:
        return Figure(note=NOT_IN_BOTH)
    moments = _difference_moments(labelled)
    return _among_all(moments.label, moments.label_variance, groups, LABELLED_DIFFERENCE)


def _difference_moments(labelled: Labelled) -> _Moments:
    """Return the moments of differences: the means without, the variances with pseudo-labels."""
    label, judge = _means(labelled)
    moments = _moments(labelled, _PSEUDO_DIFFERENCES)
    return moments._replace(label=label, judge=judge)


def _rest(groups: Mapping[PairedCases, int], moments: _Moments) -> _Rest:
    """Return what the judge says of cases without labels; some of them may belong together with labelled ones."""
    others: Counter[tuple[int, float]] = Counter()
    for group, times in groups.items():
        others.update({(group.changed - group.labelled, group.rest): times} if group.changed > group.labelled else {})
    mean, variance = _mean(others, low=-1.0)
    split = {
        SplitCluster(group.labelled, group.label, group.judge, group.changed - group.labelled, group.rest): times
        for group, times in groups.items()
        if 0 < group.labelled < group.changed
    }
    sizes = sum(n * times for (n, _), times in others.items()) * _size(_labelled(groups))
    return _Rest(mean, variance, *_covariances(split, (moments.label, moments.judge), mean, sizes))


def _covariances(
    split: Mapping[SplitCluster, int], means: tuple[float, float], rest: float, sizes: float
) -> tuple[float, float]:
    """Return the covariances of the mean label and of the judge's mean with that of the rest, of which `rest` is it.

    `sizes` is the number of all labelled answers, times that of the others.
    """
    with_label = with_judge = 0.0
    for group, times in split.items():
        from_rest = times * (group.rest - group.others * rest)
        with_label += from_rest * (group.label - group.labelled * means[0])
        with_judge += from_rest * (group.judge - group.labelled * means[1])
    return with_label / sizes, with_judge / sizes


def _labelled(groups: Mapping[PairedCases, int]) -> Labelled:
    """Return the cases with labels alone."""
    found: Counter[tuple[int, float, float]] = Counter()
    for group, times in groups.items():
        found.update({(group.labelled, group.label, group.judge): times} if group.labelled else {})
    return found


def _among_all(value: float, variance: float, groups: Mapping[PairedCases, int], method: str) -> Figure:
    """Return the mean difference of all cases, given that of those whose answers differ."""
    shares: Counter[tuple[int, float]] = Counter()
    for group, times in groups.items():
        shares[group.cases, float(group.changed)] += times
    share, share_variance = _mean(shares)
    draws = sum(times for group, times in groups.items() if group.labelled)
    half = t_quantile(0.975, draws + 3) * math.sqrt(share**2 * variance + value**2 * share_variance)
    return _within(share * value, share * value - half, share * value + half, method, lowest=-1.0)


def _powered(moments: _Moments, rest: _Rest) -> tuple[float, float]:
    """Return the mean label of all, and its variance.

    The judge counts as much as makes the variance least, from not at all to as if it were always right.
    """
    both = moments.judge_variance + rest.variance - 2 * rest.with_judge
    gain = moments.covariance - rest.with_label
    weight = min(1.0, max(0.0, gain / both)) if both > 0 else 0.0
    variance = moments.label_variance - 2 * weight * gain + weight**2 * both
    return moments.label + weight * (rest.mean - moments.judge), max(0.0, variance)


def _mean(clusters: Clusters, low: float = 0.0) -> tuple[float, float]:
    """Return the mean of values from `low` to 1, and its squared standard error.

    Of a single cluster it is as large as it can be.
    """
    groups = sum(clusters.values())
    size = sum(n * times for (n, _), times in clusters.items())
    mean = sum(total * times for (_, total), times in clusters.items()) / size
    if groups < 2:
        return mean, (mean - low) * (1 - mean)
    spread = sum((total - n * mean) ** 2 * times for (n, total), times in clusters.items())
    return mean, groups / (groups - 1) * spread / size / size


def _means(labelled: _Groups) -> tuple[float, float]:
    """Return the means of labels and of the judge's values."""
    size = _size(labelled)
    label = sum(y * times for (_, y, _), times in labelled.items()) / size
    return label, sum(f * times for (_, _, f), times in labelled.items()) / size


def _size(labelled: _Groups) -> float:
    return sum(n * times for (n, *_), times in labelled.items())


def _moments(labelled: Labelled, pseudo: Sequence[tuple[float, float]]) -> _Moments:
    """Return the moments of the labelled answers and the pseudo-labels; of the latter, none is counted in divisors.

    Each pseudo-label stands for as many answers as belong together on average: else, it would be lost among clusters.
    """
    size = _size(labelled) / sum(labelled.values())
    known = Counter((size, size * label, size * judge) for label, judge in pseudo)
    for group, times in labelled.items():
        known[group] += times
    groups = sum(known.values())
    label, judge = _means(known)
    scale = groups / (groups - 1) / _size(known) / _size(labelled)
    yy = yf = ff = 0.0
    for (n, y, f), times in known.items():
        from_label, from_judge = y - n * label, f - n * judge
        yy += from_label * from_label * times
        yf += from_label * from_judge * times
        ff += from_judge * from_judge * times
    return _Moments(label, judge, yy * scale, ff * scale, yf * scale)


def rogan_gladen(judged: Clusters, on_passes: Clusters, on_fails: Clusters) -> Figure:
    """Return the pass rate of a run whose answers have no labels, given how often the judge is right elsewhere.

    `judged` are the judge's verdicts in this run, 1 for a pass. `on_passes` says of answers that people passed
    elsewhere whether the judge was right, `on_fails` the same of those that they failed. Where no two answers are said
    to belong together, the interval is that of a fifth of them: labels of other runs show nothing of errors that come
    in clusters, and an interval that takes them for independent holds the truth as seldom as in 62 of 100 runs.
    """
    groups = [sum(clusters.values()) for clusters in (judged, on_passes, on_fails)]
    if groups[0] < MIN_JUDGED:
        return Figure(note=f"too few: {groups[0]} judged answers; labels of other runs are of use from {MIN_JUDGED} on")
    if min(groups[1:]) < MIN_LABELS_OF_A_KIND:
        found = f"{groups[1]} labels 'pass' and {groups[2]} 'fail' of other runs"
        return Figure(note=f"too few: {found}; it takes {MIN_LABELS_OF_A_KIND} of each")
    shares = [
        sum(total * times for (_, total), times in clusters.items())
        / sum(size * times for (size, _), times in clusters.items())
        for clusters in (judged, on_passes, on_fails)
    ]
    if shares[1] + shares[2] <= 1:
        return Figure(note="the judge is no better than chance on labels of other runs: nothing can be corrected by it")
    is_told = any(size > 1 for clusters in (judged, on_passes, on_fails) for size, _ in clusters)
    shared_by = 1 if is_told else SHARED_BY
    n, m1, m0 = (effective_size(clusters) / shared_by for clusters in (judged, on_passes, on_fails))
    t = t_quantile(0.975, min(groups) - 1)  # few clusters, or few labels of a kind, widen the interval
    passing, right1, right0 = shares
    seen = (n * passing + t * t / 2) / (n + t * t)
    q1, q0 = (m1 * right1 + 1) / (m1 + 2), (m0 * right0 + 1) / (m0 + 2)
    power = q0 + q1 - 1
    if power <= 0:
        return Figure(note="the labels of other runs are too few to tell the judge from chance")
    centre = (seen + q0 - 1) / power
    noise0, noise1 = q0 * (1 - q0) / (m0 + 2), q1 * (1 - q1) / (m1 + 2)
    shift = 2 * t * t * (centre * noise1 - (1 - centre) * noise0)
    error = math.sqrt(seen * (1 - seen) / (n + t * t) + (1 - centre) ** 2 * noise0 + centre**2 * noise1) / power
    value = (passing + right0 - 1) / (right0 + right1 - 1)
    return _within(value, centre + shift - t * error, centre + shift + t * error, ROGAN_GLADEN)


def _within(value: float, low: float, high: float, method: str, lowest: float = 0.0) -> Figure:
    """Return the figure cut to the range from `lowest` to 1, with the value inside of its interval."""
    low, high = (min(1.0, max(lowest, side)) for side in (low, high))
    return Figure(value=min(high, max(low, value)), ci_lower=low, ci_upper=high, method=method)
