"""Simulated runs to compare: verdicts of a judge and of humans on the answers to the same cases."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from agentv.stats.agreement import Figure
from agentv.stats.correction import PairedCases, labelled_difference, powered_difference

RUNS = 2000


class PairSetting(NamedTuple):
    """How two runs differ, how often a judge sees it, and how many of the cases have labels of both answers."""

    lost: float
    """Of the cases whose answers differ: deserved to pass in the first run only; in the second only; in both."""
    gained: float
    both: float
    judge: tuple[float, float]
    """The judge's sensitivity and specificity."""
    cases: int
    labels: int
    judge_of_second: tuple[float, float] | None = None
    """The same for answers of the second run, if they are judged otherwise."""
    cluster: int = 1
    """So many cases share the judge's luck; if the method is told of them, also what they deserve."""
    told: bool = False
    shared: bool = True
    """Whether the judge has the same luck with both answers to a case."""
    same: float = 0.0
    """How many cases have the same answer in both runs."""

    @property
    def truth(self) -> float:
        return (self.gained - self.lost) * (1 - self.same)


class PairCoverage(NamedTuple):
    """How often the intervals have the truth in them, and how wide they are: by labels alone, and corrected."""

    alone: float
    corrected: float
    width_alone: float
    width_corrected: float


def pair_coverage(setting: PairSetting, runs: int = RUNS) -> PairCoverage:
    figures = list(difference_figures(setting, runs))
    hits, widths = [0, 0], [0.0, 0.0]
    for pair in figures:
        for which, each in enumerate(pair):
            assert each.ci_lower is not None and each.ci_upper is not None
            hits[which] += each.ci_lower - 1e-12 <= setting.truth <= each.ci_upper + 1e-12
            widths[which] += each.ci_upper - each.ci_lower
    return PairCoverage(*(hit / runs for hit in hits), *(width / runs for width in widths))


def difference_figures(setting: PairSetting, runs: int) -> Iterator[tuple[Figure, Figure]]:
    """The two figures of each of so many simulated comparisons."""
    dice = np.random.default_rng(20261117)
    deserved, judged, cluster = _draw(dice, setting, runs)
    changed = dice.random((runs, setting.cases), np.float32) >= setting.same
    is_labelled = np.zeros(setting.cases, bool)
    is_labelled[dice.permutation(setting.cases)[: setting.labels]] = True  # which ones they are tells nothing
    known, rest = changed & is_labelled, changed & ~is_labelled
    columns = [np.ones(changed.shape, bool), changed, known, deserved * known, judged * known, judged * rest]
    for found in _by_cluster(columns, cluster) if setting.told else _alone(columns):
        groups = {PairedCases(*row): times for row, times in found.items()}
        yield labelled_difference(groups), powered_difference(groups)


def _by_cluster(columns: Sequence[Any], cluster: Any) -> "Iterator[Counter[Any]]":
    """How often there are clusters with the same sums, in each run of the simulation."""
    for rows in zip(*columns, strict=True):
        yield Counter(zip(*(np.bincount(cluster, weights=row).tolist() for row in rows), strict=True))


def _alone(columns: Sequence[Any]) -> "Iterator[Counter[Any]]":
    """How often there are cases with the same numbers, each from -1 to 1, in each run of the simulation."""
    places = [3**place for place in range(len(columns))]
    codes = np.zeros(columns[0].shape, np.int16)
    for column, place in zip(columns, places, strict=True):
        codes += (column.astype(np.int16) + 1) * place
    kinds = [tuple(code // place % 3 - 1 for place in places) for code in range(3 ** len(columns))]
    for row in codes:
        counts = np.bincount(row)
        yield Counter({kinds[code]: int(counts[code]) for code in np.flatnonzero(counts)})


def _draw(dice: Any, setting: PairSetting, runs: int) -> tuple[Any, Any, Any]:
    """By how much labels and verdicts of each case differ, in each run of the simulation; and its cluster."""
    cluster = np.arange(setting.cases) // setting.cluster
    clusters, alone = (runs, cluster[-1] + 1), (runs, setting.cases)
    kind = dice.random(clusters, np.float32)[:, cluster] if setting.told else dice.random(alone, np.float32)
    is_first = (kind < setting.lost) | (kind >= setting.lost + setting.gained)
    passes = kind < setting.lost + setting.gained + setting.both
    first, second = is_first & passes, (kind >= setting.lost) & passes
    luck = dice.random(clusters, np.float32)[:, cluster]
    other = luck if setting.shared else dice.random(clusters, np.float32)[:, cluster]
    verdicts = [
        np.where(deserved, chance < judge[0], chance >= judge[1])
        for deserved, chance, judge in (
            (first, luck, setting.judge),
            (second, other, setting.judge_of_second or setting.judge),
        )
    ]
    return second.astype(np.int8) - first, verdicts[1].astype(np.int8) - verdicts[0], cluster
