"""Pairs of scores -> what they allow to say of the difference."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from agentv.compare.blocks import PASSED, UNSCORED
from agentv.compare.pairs import PairedScores
from agentv.compare.records import Bounds, Delta, Passes, Statistics, Test, Verdict
from agentv.stats.decimals import mean
from agentv.stats.distributions import SEED
from agentv.stats.inference import (
    BOOTSTRAP_BELOW,
    POWER_Z,
    Sample,
    bootstrap_mean,
    cluster_sums,
    estimate_mean,
    mcnemar,
    pass_difference,
    sign_flip,
)

MIN_PAIRS, MIN_FLIPS = 10, 6


def paired_statistics(paired: PairedScores, margin: float, clusters: Sequence[int] | None) -> Statistics:
    """Return the figures of these pairs and the verdict; `clusters` tells which cases belong together."""
    scored, bounds = _select_scored(paired)
    pairs = len(scored.numbers)
    if not pairs:
        note = "no pair has a score on both sides"
        return Statistics(pairs=0, bounds=bounds, margin=margin, verdict="cannot tell", notes=(note,))
    delta, sample = _delta(scored, clusters)
    passes = _passes(scored.flags)
    interval = _interval(delta, pairs / len(paired.numbers), bounds) if pairs >= MIN_PAIRS else None
    return Statistics(
        pairs=pairs,
        mean1=mean(scored.first.pick_scores(scored.numbers)),
        mean2=mean(scored.second.pick_scores(scored.numbers)),
        delta=delta,
        tests=tuple(_tests(sample, passes)),
        passes=passes,
        mde=POWER_Z * delta.se if delta.se else None,
        bounds=bounds,
        interval=interval,
        margin=margin,
        verdict=_verdict(interval, margin),
        notes=tuple(_notes(delta, pairs, passes)),
    )


def _select_scored(paired: PairedScores) -> tuple[PairedScores, Bounds]:
    """Return the pairs with a score on both sides, and where the mean could be with all that was not scored."""
    first, second = paired.first, paired.second
    partial = first.partial.keys() | second.partial.keys()
    if not partial and not any((one | other) & UNSCORED for one, other in paired.flags):
        middle = paired.mean if paired.deltas else 0.0
        return paired, Bounds(unscored=0, lower=middle, upper=middle)
    flags = [(first.flags[number] | second.flags[number]) & UNSCORED for number in paired.numbers]
    sure, low, high = [], 0.0, 0.0
    for at, number in enumerate(paired.numbers):
        if flags[at] or number in partial:
            before, after = first.bounds(number), second.bounds(number)
            low, high = low + after[0] - before[1], high + after[1] - before[0]
        else:
            sure.append(paired.deltas[at])
    known, cases = math.fsum(sure), len(paired.numbers)
    bounds = Bounds(unscored=cases - len(sure), lower=(known + low) / cases, upper=(known + high) / cases)
    return paired.select([at for at, flag in enumerate(flags) if not flag]), bounds


def _tests(sample: Sample, passes: Passes) -> Iterator[Test]:
    flips = sign_flip(sample)
    yield Test(
        name="sign-flip permutation",
        p_value=flips.p_value,
        method=flips.method,
        resamples=flips.resamples,
        seed=SEED if flips.resamples else None,
    )
    yield Test(name="exact McNemar", p_value=mcnemar(passes.lost, passes.gained))


def _passes(flags: Mapping[tuple[int, int], int]) -> Passes:
    counts: Counter[tuple[int, int]] = Counter()
    for (one, other), times in flags.items():
        counts[one & PASSED, other & PASSED] += times
    both, lost, gained = counts[PASSED, PASSED], counts[PASSED, 0], counts[0, PASSED]
    low, high = pass_difference(lost, gained, counts.total())
    return Passes(passed1=both + lost, passed2=both + gained, gained=gained, lost=lost, ci_lower=low, ci_upper=high)


def _delta(scored: PairedScores, clusters: Sequence[int] | None) -> tuple[Delta, Sample]:
    """Return the mean difference, and the draws that it rests on."""
    plain = scored.sample
    keys = array("q", map(clusters.__getitem__, scored.numbers)) if clusters is not None else None
    sample = cluster_sums(scored.deltas, keys) if keys is not None and any(keys) else plain
    found, draws = estimate_mean(sample), len(sample)
    unclustered = estimate_mean(plain).error if sample is not plain else None
    has_interval = found.low is not None and found.high is not None and found.error != 0
    return (
        Delta(
            mean=scored.mean,
            se=found.error,
            ci_lower=max(-1.0, found.low or 0.0) if has_interval else None,
            ci_upper=min(1.0, found.high or 0.0) if has_interval else None,
            method="paired t" if sample is plain else "paired t, clustered",
            df=found.df,
            clusters=None if sample is plain else draws,
            design_effect=(found.error / unclustered) ** 2 if unclustered and found.error is not None else None,
            bootstrap=bootstrap_mean(sample) if 1 < draws < BOOTSTRAP_BELOW and found.error else None,
        ),
        sample,
    )


def _interval(delta: Delta, share: float, bounds: Bounds) -> tuple[float, float] | None:
    """Return the confidence interval, widened by what was not scored; `share` is that of the pairs with a score."""
    if delta.se == 0:  # no variation, hence no interval: all that is known is that every difference is this one
        return bounds.lower, bounds.upper
    if delta.ci_lower is None or delta.ci_upper is None:
        return None
    low = bounds.lower + (delta.ci_lower - delta.mean) * share
    return low, bounds.upper + (delta.ci_upper - delta.mean) * share


def _verdict(interval: tuple[float, float] | None, margin: float) -> Verdict:
    if interval is None:
        return "cannot tell"
    low, high = interval
    if high < 0:
        return "worse"
    if low > 0:
        return "better"
    return "not worse" if low > -margin or low == 0 else "cannot tell"


def _notes(delta: Delta, pairs: int, passes: Passes) -> Iterator[str]:
    """Yield what a reader should know before believing the figures."""
    if pairs < MIN_PAIRS:
        have = "1 pair" if pairs == 1 else f"{pairs} pairs"
        yield f"{have} cannot support a claim: at least {MIN_PAIRS} are needed"
    if delta.clusters == 1:
        yield "all the cases are one cluster: there is no interval"
    if delta.se == 0 and pairs > 1:
        yield "all the differences are the same: there is no variation to estimate an interval from"
    if 0 < passes.gained + passes.lost < MIN_FLIPS:
        flips = passes.gained + passes.lost
        yield f"{flips} changed between pass and fail: fewer than {MIN_FLIPS} can never be significant at 5%"
