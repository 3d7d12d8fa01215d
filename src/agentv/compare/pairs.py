"""Pairs of scores -> what they allow to say of the difference."""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentv.compare.columns import PASSED, UNSCORED, Scores
from agentv.compare.records import Bounds, Delta, Passes, Statistics, Test, Word
from agentv.stats.decimals import difference, mean
from agentv.stats.distributions import SEED
from agentv.stats.inference import (
    FEW,
    POWER_Z,
    Sample,
    bootstrapped,
    clustered,
    estimate,
    mcnemar,
    pass_difference,
    sign_flip,
)

FEWEST_PAIRS, FEWEST_FLIPS = 10, 6


class PairedScores(NamedTuple):
    """Pairs of scores to work on: which cases, and how far apart their scores are."""

    first: Scores
    second: Scores
    numbers: Sequence[int]
    deltas: Sequence[float]

    def only(self, places: Sequence[int]) -> "PairedScores":
        """Some of the pairs."""
        numbers = array("I", map(self.numbers.__getitem__, places))
        return self._replace(numbers=numbers, deltas=array("d", map(self.deltas.__getitem__, places)))

    def statistics(self, margin: float, clusters: Sequence[int] | None) -> Statistics:
        """What the pairs allow to say."""
        kinds = self._kinds()
        scored, bounds = self._scored(kinds)
        pairs = len(scored.numbers)
        if not pairs:
            note = "no pair has a score on both sides"
            return Statistics(pairs=0, bounds=bounds, margin=margin, verdict="cannot tell", notes=(note,))
        delta, sample = _delta(scored, clusters)
        flips = sign_flip(sample.sums)
        seed = SEED if flips.resamples else None
        method = Test(
            name="sign-flip permutation",
            p_value=flips.p_value,
            method=flips.method,
            resamples=flips.resamples,
            seed=seed,
        )
        passes = _passes(kinds if scored is self else scored._kinds())
        interval = _interval(delta, pairs / len(self.numbers), bounds) if pairs >= FEWEST_PAIRS else None
        exact = Test(name="exact McNemar", p_value=mcnemar(passes.lost, passes.gained))
        return Statistics(
            pairs=pairs,
            mean1=mean(_scores(self.first, scored.numbers)),
            mean2=mean(_scores(self.second, scored.numbers)),
            delta=delta,
            tests=(method, exact),
            passes=passes,
            mde=POWER_Z * delta.se if delta.se else None,
            bounds=bounds,
            interval=interval,
            margin=margin,
            verdict=_verdict(interval, margin),
            notes=tuple(_notes(delta, pairs, passes)),
        )

    def _scored(self, kinds: Iterable[tuple[int, int]]) -> tuple["PairedScores", Bounds]:
        """The pairs with a score on both sides, and what all that was not scored could make of the mean."""
        first, second = self.first, self.second
        partly = first.partly.keys() | second.partly.keys()
        if not partly and not any((one | other) & UNSCORED for one, other in kinds):
            middle = mean(self.deltas) if self.deltas else 0.0
            return self, Bounds(unscored=0, lower=middle, upper=middle)
        flags = [(first.flags[number] | second.flags[number]) & UNSCORED for number in self.numbers]
        sure, low, high = [], 0.0, 0.0
        for at, number in enumerate(self.numbers):
            if flags[at] or number in partly:
                before, after = first.bounds(number), second.bounds(number)
                low, high = low + after[0] - before[1], high + after[1] - before[0]
            else:
                sure.append(self.deltas[at])
        known, cases = math.fsum(sure), len(self.numbers)
        bounds = Bounds(unscored=cases - len(sure), lower=(known + low) / cases, upper=(known + high) / cases)
        return self.only([at for at, flag in enumerate(flags) if not flag]), bounds

    def _kinds(self) -> Counter[tuple[int, int]]:
        """How many pairs have which flags on either side."""
        sides = (map(side.flags.__getitem__, self.numbers) for side in (self.first, self.second))
        return Counter(zip(*sides, strict=True))


def pair_scores(
    first: Scores, second: Scores, numbers: Sequence[int], deltas: Sequence[float] | None = None
) -> PairedScores:
    """The pairs of these cases; `deltas` are those of all their results, which mostly are those that were scored."""
    if deltas is None or first.partly or second.partly:
        deltas = array("d", map(difference, _scores(first, numbers), _scores(second, numbers)))
    return PairedScores(first, second, numbers, deltas)


def _scores(side: Scores, numbers: Sequence[int]) -> "array[float]":
    return array("d", map(side.score if side.partly else side.scores.__getitem__, numbers))


def _passes(kinds: Mapping[tuple[int, int], int]) -> Passes:
    counts: Counter[tuple[int, int]] = Counter()
    for (one, other), times in kinds.items():
        counts[one & PASSED, other & PASSED] += times
    both, lost, gained = counts[PASSED, PASSED], counts[PASSED, 0], counts[0, PASSED]
    low, high = pass_difference(lost, gained, counts.total())
    return Passes(passed1=both + lost, passed2=both + gained, gained=gained, lost=lost, ci_lower=low, ci_upper=high)


def _delta(scored: PairedScores, clusters: Sequence[int] | None) -> tuple[Delta, Sample]:
    """The mean difference, and the draws that it rests on."""
    plain = Sample(scored.deltas)
    keys = array("q", map(clusters.__getitem__, scored.numbers)) if clusters is not None else None
    sample = clustered(scored.deltas, keys) if keys is not None and any(keys) else plain
    found, draws = estimate(sample), len(sample)
    of_cases = estimate(plain).error if sample is not plain else None
    return (
        Delta(
            mean=mean(scored.deltas),
            se=found.error,
            ci_lower=None if found.low is None else max(-1.0, found.low),
            ci_upper=None if found.high is None else min(1.0, found.high),
            method="paired t" if sample is plain else "paired t, clustered",
            df=found.freedom,
            clusters=None if sample is plain else draws,
            design_effect=(found.error / of_cases) ** 2 if of_cases and found.error is not None else None,
            bootstrap=bootstrapped(sample) if 1 < draws < FEW and found.error else None,
        ),
        sample,
    )


def _interval(delta: Delta, share: float, bounds: Bounds) -> tuple[float, float] | None:
    """The confidence interval, as wide as what was not scored makes it; `share` is that of the pairs it is based on."""
    if delta.ci_lower is None or delta.ci_upper is None:
        return None
    low = bounds.lower + (delta.ci_lower - delta.mean) * share
    return low, bounds.upper + (delta.ci_upper - delta.mean) * share


def _verdict(interval: tuple[float, float] | None, margin: float) -> Word:
    if interval is None:
        return "cannot tell"
    low, high = interval
    if high < 0:
        return "worse"
    if low > 0:
        return "better"
    return "not worse" if low > -margin or low == 0 else "cannot tell"


def _notes(delta: Delta, pairs: int, passes: Passes) -> Iterator[str]:
    """What a reader should know before believing the figures."""
    if pairs < FEWEST_PAIRS:
        have = "1 pair" if pairs == 1 else f"{pairs} pairs"
        yield f"{have} cannot support a claim: at least {FEWEST_PAIRS} are needed"
    if delta.clusters == 1:
        yield "all the cases are one cluster: there is no interval"
    if delta.se == 0 and pairs > 1:
        yield "all the differences are the same: the interval has no width, and says nothing of cases unlike these"
    if 0 < passes.gained + passes.lost < FEWEST_FLIPS:
        flips = passes.gained + passes.lost
        yield f"{flips} changed between pass and fail: fewer than {FEWEST_FLIPS} can never be significant at 5%"
