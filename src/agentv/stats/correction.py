"""Estimate the pass rate that humans would give, from labels of some answers and the judge's verdicts on all.

There is one method per source of labels: a random sample of this run's answers (`prediction_powered`), or answers of
other runs (`rogan_gladen`). The first is valid regardless of the judge's errors. The second assumes that the judge's
error rates are the same in this run as in the labelled runs; if no clusters are known, its interval allows for errors
that several answers share.

`powered_difference` applies the first method to the difference between two runs, and `labelled_difference` estimates
that difference from the labels alone.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentv.stats.agreement import (
    Clusters,
    Figure,
    count_answers,
    effective_size,
    mean_value,
    squared_deviations,
)
from agentv.stats.distributions import t_quantile

PREDICTION_POWERED = "prediction-powered (PPI++ with four pseudo-labels)"
POWERED_DIFFERENCE = "prediction-powered on paired differences (PPI++ with four pseudo-labels)"
LABELLED_DIFFERENCE = "paired, with four pseudo-labels"
ROGAN_GLADEN = "Rogan-Gladen, labels of other runs (interval of Lee et al.)"
NOT_IN_BOTH = "no case has randomly sampled labels in both runs for answers that differ"
MIN_JUDGED = 50
"""Minimum number of judged answers for the Rogan-Gladen correction; a cluster counts as one answer."""
MIN_LABELS_OF_A_KIND = 20
"""Minimum number of labels `pass`, and of labels `fail`; a cluster counts as one label."""
SHARED_BY = 5
"""Number of answers that are assumed to share each error of the judge if no clusters are known."""
Labelled = Mapping[tuple[int, float, float], int]
"""Clusters of labelled answers: (answers, sum of labels, sum of the judge's values) -> number of such clusters."""
_Groups = Labelled | Mapping[tuple[float, float, float], int]
_PSEUDO = (
    (1.0, 1.0),
    (1.0, 0.0),
    (0.0, 1.0),
    (0.0, 0.0),
)
"""Pseudo-labels, as (label, judge's value): they keep a few identical labels from looking certain."""
_PSEUDO_DIFFERENCES = (
    (1.0, 1.0),
    (1.0, -1.0),
    (-1.0, 1.0),
    (-1.0, -1.0),
)
"""Pseudo-labels for differences. Weaker ones give too low a coverage when the differences are rare and of one sign."""


_PRIOR_CLUSTERS = 2
"""Number of clusters of equal labels that are added when the design effect is estimated."""


class PairedCases(NamedTuple):
    """A cluster of cases, or a single case, in two runs. Differences are 1, 0 or -1 per case."""

    cases: int
    changed: int
    """Cases whose two answers differ. The remaining fields cover only these: equal texts should get equal labels."""
    labelled: int
    label: float
    """Sum of the differences between labels, over the labelled cases."""
    judge: float
    """Sum of the differences between verdicts, over the labelled cases."""
    rest: float
    """Sum of the differences between verdicts, over the unlabelled cases."""

    @property
    def unlabelled(self) -> int:
        """Number of cases whose answers differ and are not labelled."""
        return self.changed - self.labelled


class SplitCluster(NamedTuple):
    """A cluster that contains both labelled and unlabelled answers."""

    labelled: int
    label: float
    """Sum of the labels."""
    judge: float
    """Sum of the judge's values of the labelled answers."""
    others: int
    rest: float
    """Sum of the judge's values of the unlabelled answers."""


class _Rest(NamedTuple):
    """Mean of the judge's values of unlabelled answers, its variance, and its covariances with the labelled means."""

    mean: float
    variance: float
    label_covariance: float = 0.0
    judge_covariance: float = 0.0


class _Moments(NamedTuple):
    """Means of the labels and of the judge's values, with the variances and the covariance of these means."""

    label: float
    judge: float
    label_variance: float
    judge_variance: float
    covariance: float


def prediction_powered(
    labelled: Labelled,
    rest: Clusters,
    split: Mapping[SplitCluster, int] | None = None,
) -> Figure:
    """Return the mean label of all answers, from labels of some and the judge's values of all, each between 0 and 1.

    The labelled answers are a random sample, and `rest` holds the judge's values of the others. `split` repeats the
    clusters that contain answers of both kinds, whose means are correlated. The weight of the judge follows from its
    accuracy on the labelled answers (PPI++).
    """
    if not labelled:
        return Figure(note="no label is for an answer that was sampled at random from this run")
    if not rest:
        return Figure(note="every answer has a label: the pass rate is that of the labels")
    label_mean, judge_mean = _means(labelled)
    rest_mean, rest_variance = _mean(rest)
    label_covariance, judge_covariance = _covariances(
        split or {},
        label_mean=label_mean,
        judge_mean=judge_mean,
        rest_mean=rest_mean,
        sizes=_size(labelled) * count_answers(rest),
    )
    unlabelled = _Rest(rest_mean, rest_variance, label_covariance, judge_covariance)
    weight = _design_effect(labelled)  # that of each pseudo-label
    moments = _moments(labelled, _PSEUDO, weight)
    value, variance = _powered(moments, unlabelled)
    # The pseudo-labels count as clusters to the extent that they have the weight of one.
    clusters = sum(labelled.values()) + len(_PSEUDO) * weight / _cluster_size(labelled)
    half = t_quantile(0.975, clusters - 1) * math.sqrt(variance)
    return _clip(
        value,
        value - half,
        value + half,
        method=PREDICTION_POWERED,
    )


def powered_difference(groups: Mapping[PairedCases, int]) -> Figure:
    """Return the difference between the pass rates of two runs that humans would give, over all cases.

    The labelled cases are a random sample of the cases whose answers differ; a cluster may be labelled in part. The
    pseudo-labels widen the interval without moving the estimate.
    """
    labelled = _labelled(groups)
    if not labelled:
        return Figure(note=NOT_IN_BOTH)
    if all(group.unlabelled == 0 for group in groups):
        return Figure(note="every case that can differ has labels: the difference is that of the labels")
    moments = _difference_moments(labelled)
    value, variance = _powered(moments, _rest(groups, moments))
    return _among_all(value, variance, groups, POWERED_DIFFERENCE)


def labelled_difference(groups: Mapping[PairedCases, int]) -> Figure:
    """Return the same difference from the labels alone, without the judge's verdicts."""
    labelled = _labelled(groups)
    if not labelled:
        return Figure(note=NOT_IN_BOTH)
    moments = _difference_moments(labelled)
    return _among_all(
        moments.label,
        moments.label_variance,
        groups,
        LABELLED_DIFFERENCE,
    )


def _difference_moments(labelled: Labelled) -> _Moments:
    """Return the moments of differences: the means without, the variances with pseudo-labels."""
    label, judge = _means(labelled)
    moments = _moments(labelled, _PSEUDO_DIFFERENCES, _cluster_size(labelled))
    return moments._replace(label=label, judge=judge)


def _rest(
    groups: Mapping[PairedCases, int],
    moments: _Moments,
) -> _Rest:
    """Return the moments of the verdicts on unlabelled cases, some of which share a cluster with labelled ones."""
    others: Counter[tuple[int, float]] = Counter()
    split: dict[SplitCluster, int] = {}
    for group, times in groups.items():
        if not group.unlabelled:
            continue
        others[group.unlabelled, group.rest] += times
        if group.labelled:
            cluster = SplitCluster(
                labelled=group.labelled,
                label=group.label,
                judge=group.judge,
                others=group.unlabelled,
                rest=group.rest,
            )
            split[cluster] = times
    mean, variance = _mean(others, low=-1.0)
    label_covariance, judge_covariance = _covariances(
        split,
        label_mean=moments.label,
        judge_mean=moments.judge,
        rest_mean=mean,
        sizes=count_answers(others) * _size(_labelled(groups)),
    )
    return _Rest(mean, variance, label_covariance, judge_covariance)


def _covariances(
    split: Mapping[SplitCluster, int],
    label_mean: float,
    judge_mean: float,
    rest_mean: float,
    sizes: float,
) -> tuple[float, float]:
    """Return the covariances of the mean label, and of the judge's mean on labelled answers, with the rest's mean.

    `sizes` is the number of labelled answers times the number of unlabelled ones.
    """
    label_covariance = 0.0
    judge_covariance = 0.0
    for group, times in split.items():
        from_rest = times * (group.rest - group.others * rest_mean)
        from_label = group.label - group.labelled * label_mean
        from_judge = group.judge - group.labelled * judge_mean
        label_covariance += from_rest * from_label
        judge_covariance += from_rest * from_judge
    return label_covariance / sizes, judge_covariance / sizes


def _labelled(groups: Mapping[PairedCases, int]) -> Labelled:
    """Return the labelled cases of each cluster."""
    labelled: Counter[tuple[int, float, float]] = Counter()
    for group, times in groups.items():
        if group.labelled:
            labelled[group.labelled, group.label, group.judge] += times
    return labelled


def _among_all(
    value: float,
    variance: float,
    groups: Mapping[PairedCases, int],
    method: str,
) -> Figure:
    """Return the mean difference over all cases, given the one over cases whose answers differ."""
    shares: Counter[tuple[int, float]] = Counter()
    labelled_groups = 0
    for group, times in groups.items():
        shares[group.cases, float(group.changed)] += times
        if group.labelled:
            labelled_groups += times
    share, share_variance = _mean(shares)
    # the variance of a product of two independent estimates, to first order
    product_variance = share**2 * variance + value**2 * share_variance
    half = t_quantile(0.975, labelled_groups + 3) * math.sqrt(product_variance)
    difference = share * value
    return _clip(
        difference,
        difference - half,
        difference + half,
        method=method,
        lowest=-1.0,
    )


def _powered(
    moments: _Moments,
    rest: _Rest,
) -> tuple[float, float]:
    """Return the mean label of all answers and its variance.

    The weight of the judge, between 0 and 1, is the one that minimizes the variance.
    """
    both = moments.judge_variance + rest.variance - 2 * rest.judge_covariance
    gain = moments.covariance - rest.label_covariance
    weight = 0.0
    if both > 0:
        weight = min(1.0, max(0.0, gain / both))
    value = moments.label + weight * (rest.mean - moments.judge)
    variance = moments.label_variance - 2 * weight * gain + weight**2 * both
    return value, max(0.0, variance)


def _mean(
    clusters: Clusters,
    low: float = 0.0,
) -> tuple[float, float]:
    """Return the mean of values between `low` and 1, and its squared standard error.

    For a single cluster, the squared standard error is the largest possible one.
    """
    groups = sum(clusters.values())
    mean = mean_value(clusters)
    if groups < 2:
        return mean, (mean - low) * (1 - mean)
    size = count_answers(clusters)
    spread = squared_deviations(clusters, mean)
    return mean, groups / (groups - 1) * spread / size / size


def _means(labelled: _Groups) -> tuple[float, float]:
    """Return the means of the labels and of the judge's values."""
    labels = []
    verdicts = []
    for (_, label, judge), times in labelled.items():
        labels.append(label * times)
        verdicts.append(judge * times)
    size = _size(labelled)
    return sum(labels) / size, sum(verdicts) / size


def _size(labelled: _Groups) -> float:
    """Return the number of answers in all clusters."""
    sizes = []
    for (size, _, _), times in labelled.items():
        sizes.append(size * times)
    return sum(sizes)


def _cluster_size(labelled: Labelled) -> float:
    """Return the average number of answers in a cluster."""
    return _size(labelled) / sum(labelled.values())


def _design_effect(labelled: Labelled) -> float:
    """Return how many of the labelled answers are as informative as one independent label (the design effect).

    It is about 1 if the labels inside clusters are as different as those of different clusters, and the size of a
    cluster if they are all alike. A pseudo-label of this weight neither dominates varied clusters, where the interval
    would be up to 4.7 times as wide as that of the labels alone, nor vanishes beside clusters of equal labels, where
    the coverage would fall to 0.62. A few clusters may vary by chance: without `_PRIOR_CLUSTERS`, it could be 0.90.
    """
    labels: Counter[tuple[int, float]] = Counter()
    for (size, label, _), times in labelled.items():
        labels[size, label] += times
    observed = count_answers(labels) / effective_size(labels)
    clusters = sum(labels.values())
    prior = _PRIOR_CLUSTERS * _cluster_size(labelled)
    return (clusters * observed + prior) / (clusters + _PRIOR_CLUSTERS)


def _moments(
    labelled: Labelled,
    pseudo: Sequence[tuple[float, float]],
    weight: float,
) -> _Moments:
    """Return the moments of the labelled answers and the pseudo-labels; variances are divided by the real labels only.

    `weight` is the number of answers that each pseudo-label counts for.
    """
    known: Counter[tuple[float, float, float]] = Counter()
    for label, judge in pseudo:
        known[weight, weight * label, weight * judge] += 1
    for group, times in labelled.items():
        known[group] += times
    label_mean, judge_mean = _means(known)
    label_squares = 0.0
    judge_squares = 0.0
    products = 0.0
    for (answers, label, judge), times in known.items():
        from_label = label - answers * label_mean
        from_judge = judge - answers * judge_mean
        label_squares += from_label * from_label * times
        judge_squares += from_judge * from_judge * times
        products += from_label * from_judge * times
    groups = sum(known.values())
    scale = groups / (groups - 1) / _size(known) / _size(labelled)
    return _Moments(
        label=label_mean,
        judge=judge_mean,
        label_variance=label_squares * scale,
        judge_variance=judge_squares * scale,
        covariance=products * scale,
    )


def rogan_gladen(
    judged: Clusters,
    on_passes: Clusters,
    on_fails: Clusters,
) -> Figure:
    """Return the pass rate of a run without labels, corrected by the judge's accuracy on labels of other runs.

    `judged` holds the judge's verdicts in this run, 1 for a pass. `on_passes` holds, for answers of other runs that
    humans passed, 1 if the judge was right; `on_fails` does the same for answers that they failed.

    If all clusters have a single answer, the effective sample sizes are divided by `SHARED_BY`. Labels of other runs
    do not show errors that occur in clusters: an interval that assumed independent answers contained the true rate in
    as few as 62 of 100 runs.
    """
    note = _why_no_correction(judged, on_passes, on_fails)
    if note:
        return Figure(note=note)
    passing = mean_value(judged)
    sensitivity = mean_value(on_passes)
    specificity = mean_value(on_fails)
    shared_by = SHARED_BY
    if any(map(_has_clusters, (judged, on_passes, on_fails))):
        shared_by = 1
    n = effective_size(judged) / shared_by
    passes = effective_size(on_passes) / shared_by
    fails = effective_size(on_fails) / shared_by
    # few clusters, or few labels of a kind, widen the interval
    fewest = min(
        sum(judged.values()),
        sum(on_passes.values()),
        sum(on_fails.values()),
    )
    t = t_quantile(0.975, fewest - 1)

    # The interval of Lee et al. shrinks all three rates, each by its own pseudo-counts.
    seen = (n * passing + t * t / 2) / (n + t * t)
    right_on_passes = (passes * sensitivity + 1) / (passes + 2)
    right_on_fails = (fails * specificity + 1) / (fails + 2)
    power = right_on_fails + right_on_passes - 1
    if power <= 0:
        return Figure(note="too few labels of other runs to distinguish the judge from chance")
    center = (seen + right_on_fails - 1) / power
    fails_noise = right_on_fails * (1 - right_on_fails) / (fails + 2)
    passes_noise = right_on_passes * (1 - right_on_passes) / (passes + 2)
    shift = 2 * t * t * (center * passes_noise - (1 - center) * fails_noise)
    seen_noise = seen * (1 - seen) / (n + t * t)
    variance = seen_noise + (1 - center) ** 2 * fails_noise + center**2 * passes_noise
    error = math.sqrt(variance) / power
    return _clip(
        (passing + specificity - 1) / (specificity + sensitivity - 1),
        center + shift - t * error,
        center + shift + t * error,
        method=ROGAN_GLADEN,
    )


def _why_no_correction(
    judged: Clusters,
    on_passes: Clusters,
    on_fails: Clusters,
) -> str:
    """Return why the labels of other runs cannot correct a pass rate, or an empty string if they can."""
    answers = sum(judged.values())
    if answers < MIN_JUDGED:
        return f"too few: {answers} judged answers; with labels of other runs, at least {MIN_JUDGED} are needed"
    passes = sum(on_passes.values())
    fails = sum(on_fails.values())
    if min(passes, fails) < MIN_LABELS_OF_A_KIND:
        labels = f"{passes} labels 'pass' and {fails} 'fail' of other runs"
        return f"too few: {labels}; at least {MIN_LABELS_OF_A_KIND} of each are needed"
    if mean_value(on_passes) + mean_value(on_fails) <= 1:
        return "on labels of other runs, the judge is not better than chance: the pass rate cannot be corrected"
    return ""


def _has_clusters(clusters: Clusters) -> bool:
    """Return whether any cluster has more than one answer."""
    return any(size > 1 for size, _ in clusters)


def _clip(
    value: float,
    low: float,
    high: float,
    *,
    method: str,
    lowest: float = 0.0,
) -> Figure:
    """Return a figure limited to the range from `lowest` to 1, whose value lies inside its interval."""
    lower = min(1.0, max(lowest, low))
    upper = min(1.0, max(lowest, high))
    return Figure(
        value=min(upper, max(lower, value)),
        ci_lower=lower,
        ci_upper=upper,
        method=method,
    )
