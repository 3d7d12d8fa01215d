"""Simulated verdicts of judges and humans."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from agentv.stats.agreement import Figure, rate
from agentv.stats.correction import SplitCluster, prediction_powered, rogan_gladen

RUNS = 2000


class Setting(NamedTuple):
    """How many answers deserve to pass, how often a judge sees it, and how many of the answers have labels."""

    truth: float
    sensitivity: float
    specificity: float
    answers: int
    labels: int
    cluster: int = 1
    """So many answers share the judge's luck."""
    told: bool = False
    """Whether the method knows the clusters."""
    alike: bool = False
    """Whether all answers of a cluster deserve the same, as trials of a case often do."""
    alike_in_part: float = 0.0
    """The correlation of what answers of a cluster deserve, if it is neither 0 nor 1."""
    whole: bool = False
    """Whether clusters are labelled as a whole, instead of single answers."""
    truth_elsewhere: float = 0.5
    """The pass rate of other runs, whose labels are used."""


def draw(dice: Any, setting: Setting, answers: int, truth: float) -> tuple[Any, Any, Any]:
    """Whether each answer deserves to pass, whether the judge passes it, and its cluster."""
    cluster = np.arange(answers) // setting.cluster
    chance: Any = truth
    if setting.alike_in_part:
        spread = (1 - setting.alike_in_part) / setting.alike_in_part
        chance = dice.beta(truth * spread, (1 - truth) * spread, cluster[-1] + 1)[cluster]
    deserved = (dice.random(cluster[-1] + 1)[cluster] if setting.alike else dice.random(answers)) < chance
    luck = dice.random(cluster[-1] + 1)[cluster]
    passed = np.where(deserved, luck < setting.sensitivity, luck >= setting.specificity)
    return deserved, passed, cluster


def clusters_of(values: Any, cluster: Any, told: bool) -> "Counter[tuple[int, float]]":
    if not told:
        right = int(values.sum())
        return Counter({(1, 0.0): len(values) - right, (1, 1.0): right})
    sizes, sums = np.bincount(cluster), np.bincount(cluster, weights=values)
    return Counter((int(n), float(total)) for n, total in zip(sizes, sums, strict=True) if n)


def pairs_of(labels: Any, verdicts: Any, cluster: Any, told: bool) -> "Counter[tuple[int, float, float]]":
    if not told:
        cells = np.bincount(2 * labels + verdicts, minlength=4)
        return Counter(
            {(1, float(cell // 2), float(cell % 2)): int(times) for cell, times in enumerate(cells) if times}
        )
    sums = [np.bincount(cluster, weights=values) for values in (np.ones(len(cluster)), labels, verdicts)]
    return Counter((int(n), float(y), float(f)) for n, y, f in zip(*sums, strict=True) if n)


def choose(dice: Any, setting: Setting, cluster: Any) -> Any:
    """Whether each answer has a label."""
    if setting.whole:
        clusters = dice.permutation(cluster[-1] + 1)[: setting.labels // setting.cluster]
        return np.isin(cluster, clusters)
    chosen = np.zeros(setting.answers, bool)
    chosen[dice.permutation(setting.answers)[: setting.labels]] = True
    return chosen


def labels_alone(dice: Any, setting: Setting) -> Figure:
    """The pass rate by the labels only, for the same draws as `corrected_by_own_labels`."""
    deserved, _, cluster = draw(dice, setting, setting.answers, setting.truth)
    chosen = choose(dice, setting, cluster)
    return rate(clusters_of(deserved[chosen], cluster[chosen], setting.told))


def corrected_by_own_labels(dice: Any, setting: Setting) -> Figure:
    deserved, passed, cluster = draw(dice, setting, setting.answers, setting.truth)
    chosen = choose(dice, setting, cluster)
    labelled = pairs_of(deserved[chosen], passed[chosen], cluster[chosen], setting.told)
    rest = clusters_of(passed[~chosen], cluster[~chosen], setting.told)
    return prediction_powered(
        labelled, rest, split_clusters(chosen, deserved, passed, cluster) if setting.told else None
    )


def split_clusters(chosen: Any, deserved: Any, passed: Any, cluster: Any) -> "Counter[SplitCluster]":
    """The clusters of which some answers are labelled and others not."""
    sums = [
        np.bincount(cluster, weights=values)
        for values in (chosen, deserved & chosen, passed & chosen, ~chosen, passed & ~chosen)
    ]
    return Counter(
        SplitCluster(int(n), y, f, int(others), rest)
        for n, y, f, others, rest in zip(*sums, strict=True)
        if n and others
    )


def corrected_by_other_labels(dice: Any, setting: Setting) -> Figure:
    answers = setting.labels if setting.cluster == 1 else 5 * setting.labels
    deserved, passed, cluster = draw(dice, setting, answers, setting.truth_elsewhere)
    chosen = dice.permutation(answers)[: setting.labels]
    deserved, right, cluster = deserved[chosen], (deserved == passed)[chosen], cluster[chosen]
    known = [clusters_of(right[which], cluster[which], setting.told) for which in (deserved, ~deserved)]
    _, verdicts, groups = draw(dice, setting, setting.answers, setting.truth)
    return rogan_gladen(clusters_of(verdicts, groups, setting.told), *known)


class Coverage(NamedTuple):
    """How often the interval has the truth in it, how wide it is, and how often there is one."""

    share: float
    width: float
    given: float


def coverage(method: Any, setting: Setting, runs: int = RUNS) -> Coverage:
    dice = np.random.default_rng(20261117)
    figures = [method(dice, setting) for _ in range(runs)]
    found = [(each.ci_lower, each.ci_upper) for each in figures if each.value is not None]
    hits = sum(low - 1e-12 <= setting.truth <= high + 1e-12 for low, high in found)
    given = max(1, len(found))
    return Coverage(hits / given, sum(high - low for low, high in found) / given, len(found) / runs)
