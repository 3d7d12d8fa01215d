"""The pass rate that people would give, from labels of a few answers and a judge's verdicts on all.

Two methods, for two ways to come by labels: of answers of the same run, drawn at random (`prediction_powered`), or of
answers of other runs (`rogan_gladen`). The first holds whatever errors the judge makes; the second needs errors that
are as frequent in this run as in those. Told of no clusters, it allows for errors that answers share unseen.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from agentv.stats.agreement import Clusters, Figure, effective_size
from agentv.stats.distributions import t_quantile

PREDICTION_POWERED = "prediction-powered (PPI++ with four pseudo-labels)"
ROGAN_GLADEN = "Rogan-Gladen, labels of other runs (interval of Lee et al.)"
MIN_JUDGED, MIN_LABELS_OF_A_KIND = 50, 20
"""Rogan and Gladen's correction needs so many answers, and so many labels of each kind; a cluster counts once."""
SHARED_BY = 5
"""Where nobody says which answers belong together, so many answers are taken to share each error of the judge."""
Labelled = Mapping[tuple[int, float, float], int]
"""Of answers that belong together: how many, the sums of labels and of the judge's values -> how many such clusters."""
_PSEUDO = ((1, 1.0, 1.0), (1, 1.0, 0.0), (1, 0.0, 1.0), (1, 0.0, 0.0))
"""Four labels that nobody gave: with them, few labels that are all alike do not look certain."""


class _Moments(NamedTuple):
    """Means of labels and of the judge's values, and the variances and covariance of these means."""

    label: float
    judge: float
    label_variance: float
    judge_variance: float
    covariance: float


def prediction_powered(labelled: Labelled, rest: Clusters) -> Figure:
    """Return the mean label of all answers, given labels of some and the judge's values of all; both from 0 to 1.

    The labelled answers are a random sample; `rest` are the judge's values of the others. The judge counts as much as
    it has proven to be worth on the labelled ones (PPI++).
    """
    labels = sum(size * times for (size, *_), times in labelled.items())
    if not labels:
        return Figure(note="no label is of an answer that was drawn at random from this run")
    if not rest:
        return Figure(note="every answer has a label: the labels alone are the pass rate")
    moments = _moments(labelled, labels)
    others = sum(size * times for (size, _), times in rest.items())
    mean = sum(total * times for (_, total), times in rest.items()) / others
    variance = _squared_error(rest, mean, others)
    both = moments.judge_variance + variance
    weight = min(1.0, max(0.0, moments.covariance / both)) if both else 0.0
    value = moments.label + weight * (mean - moments.judge)
    residual = moments.label_variance - 2 * weight * moments.covariance + weight**2 * moments.judge_variance
    half = t_quantile(0.975, sum(labelled.values()) + 3) * math.sqrt(max(0.0, weight**2 * variance + residual))
    return _within(value, value - half, value + half, PREDICTION_POWERED)


def _squared_error(clusters: Clusters, mean: float, size: int) -> float:
    """Return the squared standard error of a mean; of a single cluster it is as large as it can be."""
    groups = sum(clusters.values())
    if groups < 2:
        return mean * (1 - mean)
    spread = sum((total - n * mean) ** 2 * times for (n, total), times in clusters.items())
    return groups / (groups - 1) * spread / size / size


def _moments(labelled: Labelled, labels: int) -> _Moments:
    """Return the moments of the labelled answers and the pseudo-labels; of the latter, none is counted in divisors."""
    known = dict(labelled)
    for pair in _PSEUDO:
        known[pair] = known.get(pair, 0) + 1
    size, groups = labels + len(_PSEUDO), sum(known.values())
    label = sum(y * times for (_, y, _), times in known.items()) / size
    judge = sum(f * times for (_, _, f), times in known.items()) / size
    scale = groups / (groups - 1) / size / labels
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


def _within(value: float, low: float, high: float, method: str) -> Figure:
    """Return the figure cut to the range from 0 to 1, with the value inside of its interval."""
    low, high = (min(1.0, max(0.0, side)) for side in (low, high))
    return Figure(value=min(high, max(low, value)), ci_lower=low, ci_upper=high, method=method)
