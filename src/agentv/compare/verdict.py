"""Compute the statistics of paired scores and the verdict on their difference."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from agentv.compare.blocks import PASSED, UNSCORED
from agentv.compare.pairs import PairedScores
from agentv.compare.records import Bounds, Delta, Passes, Statistics, Test, Verdict
from agentv.stats.decimals import mean
from agentv.stats.distributions import SEED, Interval
from agentv.stats.inference import (
    BOOTSTRAP_BELOW,
    CONFIDENCE,
    MIN_PAIRS,
    POWER_Z,
    ClusterSums,
    bootstrap_mean,
    cluster_sums,
    estimate_mean,
    mcnemar,
    pass_difference,
    sign_flip,
)
from agentv.text import plural

LEVEL = 0.05
"""The significance level."""
MIN_FLIPS = 6
"""Minimum number of changed verdicts for McNemar's test to be significant at the 5% level."""


def paired_statistics(
    paired: PairedScores,
    margin: float,
    clusters: Sequence[int] | None,
) -> Statistics:
    """Return the figures of these pairs and the verdict; `clusters` holds the cluster of each case."""
    scored, bounds = _select_scored(paired)
    pairs = len(scored.numbers)
    if not pairs:
        return Statistics(
            pairs=0,
            bounds=bounds,
            margin=margin,
            verdict="cannot tell",
            notes=("no case has a score in both runs",),
        )
    sample = _make_sample(scored, clusters)
    delta = _delta(scored, sample)
    passes = _passes(scored.flags)
    interval = None
    if pairs >= MIN_PAIRS:
        interval = _interval(delta, pairs / len(paired.numbers), bounds)
    mde = None
    if delta.se and pairs >= MIN_PAIRS:
        mde = POWER_Z * delta.se
    return Statistics(
        pairs=pairs,
        mean1=mean(scored.first.pick_scores(scored.numbers)),
        mean2=mean(scored.second.pick_scores(scored.numbers)),
        delta=delta,
        tests=tuple(_tests(sample, passes)),
        passes=passes,
        mde=mde,
        bounds=bounds,
        interval=interval,
        margin=margin,
        verdict=_verdict(interval, margin),
        notes=tuple(_notes(delta, pairs, passes, is_identical=not any(scored.deltas))),
    )


def _select_scored(paired: PairedScores) -> tuple[PairedScores, Bounds]:
    """Return the pairs with a score on both sides, and the possible range of the mean difference of all pairs."""
    if not paired.numbers:
        return paired, Bounds(unscored=0, lower=0.0, upper=0.0)
    first = paired.first
    second = paired.second
    partial = first.partial.keys() | second.partial.keys()
    has_unscored = any((one | other) & UNSCORED for one, other in paired.flags)
    if not partial and not has_unscored:
        middle = paired.mean
        return paired, Bounds(unscored=0, lower=middle, upper=middle)
    scored = []
    known = []
    low = 0.0
    high = 0.0
    for place, number in enumerate(paired.numbers):
        flags = first.flags[number] | second.flags[number]
        is_scored = not flags & UNSCORED
        if is_scored:
            scored.append(place)
        if is_scored and number not in partial:
            known.append(paired.deltas[place])
        else:
            before_low, before_high = first.bounds(number)
            after_low, after_high = second.bounds(number)
            low = low + after_low - before_high
            high = high + after_high - before_low
    total = math.fsum(known)
    cases = len(paired.numbers)
    bounds = Bounds(
        unscored=cases - len(known),
        lower=(total + low) / cases,
        upper=(total + high) / cases,
    )
    return paired.select(scored), bounds


def _tests(sample: ClusterSums, passes: Passes) -> Iterator[Test]:
    """Yield the tests of the scores and of the pass rates."""
    flips = sign_flip(sample)
    seed = None
    if flips.resamples:
        seed = SEED
    yield Test(
        name="sign-flip permutation",
        p_value=flips.p_value,
        method=flips.method,
        resamples=flips.resamples,
        seed=seed,
    )
    yield Test(
        name="exact McNemar",
        p_value=mcnemar(passes.lost, passes.gained),
    )


def _passes(flags: Mapping[tuple[int, int], int]) -> Passes:
    """Return the pass rates of both sides, from the number of pairs by their flags."""
    counts: Counter[tuple[int, int]] = Counter()
    for (one, other), times in flags.items():
        counts[one & PASSED, other & PASSED] += times
    both = counts[PASSED, PASSED]
    lost = counts[PASSED, 0]
    gained = counts[0, PASSED]
    low, high = pass_difference(lost, gained, counts.total())
    return Passes(
        passed1=both + lost,
        passed2=both + gained,
        gained=gained,
        lost=lost,
        ci_lower=low,
        ci_upper=high,
    )


def _make_sample(
    scored: PairedScores,
    clusters: Sequence[int] | None,
) -> ClusterSums:
    """Return the differences, summed by cluster if any of the cases has one."""
    if clusters is None:
        return scored.sample
    keys = array("q", map(clusters.__getitem__, scored.numbers))
    if not any(keys):
        return scored.sample
    return cluster_sums(scored.deltas, keys)


def _delta(scored: PairedScores, sample: ClusterSums) -> Delta:
    """Return the mean difference with its confidence interval; `sample` holds the differences, perhaps clustered."""
    estimate = estimate_mean(sample)
    draws = len(sample)
    method = "paired t"
    clusters = None
    design_effect = None
    if sample is not scored.sample:
        method = "paired t, clustered"
        clusters = draws
        unclustered = estimate_mean(scored.sample)
        if unclustered.error and estimate.error is not None:
            design_effect = (estimate.error / unclustered.error) ** 2
    ci_lower = None
    ci_upper = None
    if estimate.low is not None and estimate.high is not None and estimate.error != 0:
        ci_lower = max(-1.0, estimate.low)
        ci_upper = min(1.0, estimate.high)
    bootstrap = None
    if 1 < draws < BOOTSTRAP_BELOW and estimate.error:
        bootstrap = bootstrap_mean(sample)
    return Delta(
        mean=scored.mean,
        se=estimate.error,
        ci_lower=ci_lower,
        ci_upper=ci_upper,
        method=method,
        df=estimate.df,
        clusters=clusters,
        design_effect=design_effect,
        bootstrap=bootstrap,
    )


def _interval(
    delta: Delta,
    share: float,
    bounds: Bounds,
) -> Interval | None:
    """Return the confidence interval, widened by the bounds; `share` is the share of pairs with a score."""
    if delta.se == 0:  # all differences are equal: an interval cannot be estimated, only the bounds are known
        return bounds.lower, bounds.upper
    if delta.ci_lower is None or delta.ci_upper is None:
        return None
    low = bounds.lower + (delta.ci_lower - delta.mean) * share
    high = bounds.upper + (delta.ci_upper - delta.mean) * share
    return low, high


def _verdict(interval: Interval | None, margin: float) -> Verdict:
    """Return the verdict that an interval of the difference supports."""
    if interval is None:
        return "cannot tell"
    low, high = interval
    if high < 0:
        return "worse"
    if low > 0:
        return "better"
    if low > -margin or low == 0:
        return "not worse"
    return "cannot tell"


def has_lower_pass_rate(passes: Passes) -> bool:
    """Return whether significantly more cases stopped passing than began to pass."""
    return passes.lost > passes.gained and mcnemar(passes.lost, passes.gained) < LEVEL


def corrected_verdict(statistics: Statistics, p_holm: float | None) -> Verdict:
    """Return the verdict on one of several groups. `better` and `worse` need a corrected p-value below 5%."""
    verdict = statistics.verdict
    is_significant = p_holm is not None and p_holm < LEVEL
    if is_significant or verdict not in ("better", "worse"):
        return verdict
    # the difference may be a coincidence: what remains is whether the interval is within the margin
    assert statistics.interval is not None
    low, _ = statistics.interval
    if low > -statistics.margin:
        return "not worse"
    return "cannot tell"


def max_share_of_different(pairs: int) -> float:
    """Return the upper 95% confidence bound of the share of cases that differ, if none of these pairs does."""
    return 1.0 - float((1.0 - CONFIDENCE) ** (1.0 / pairs))


def _percent(share: float) -> str:
    """Return a share as a percentage, with one significant digit below 1%."""
    if share >= 0.01:
        return f"{share:.0%}"
    return f"{float(f'{share * 100:.1g}'):f}".rstrip("0") + "%"


def _notes(
    delta: Delta,
    pairs: int,
    passes: Passes,
    *,
    is_identical: bool,
) -> Iterator[str]:
    """Yield the limitations of the figures. `is_identical` means that no score differs."""
    flips = passes.gained + passes.lost
    if pairs < MIN_PAIRS:
        counted = plural(pairs, "pair")
        yield f"too few cases to decide: {counted}, at least {MIN_PAIRS} needed"
    if delta.clusters == 1:
        yield "no confidence interval: all cases are in one cluster"
    if is_identical and flips:
        yield "no score differs, but verdicts do"
    elif is_identical:
        share = _percent(max_share_of_different(pairs))
        counted = plural(pairs, "identical pair")
        yield f"no pair differs: given {counted}, up to {share} of all cases could still differ (95% confidence)"
    elif delta.se == 0 and pairs > 1:
        yield "no confidence interval: all differences are equal"
    if has_lower_pass_rate(passes):
        lost = plural(passes.lost, "case no longer passes", "cases no longer pass")
        yield f"the pass rate is lower (exact McNemar): {lost}, {passes.gained} pass now; the verdict is about scores"
    if 0 < flips < MIN_FLIPS:
        changed = plural(flips, "verdict")
        yield f"{changed} changed: fewer than {MIN_FLIPS} changes cannot be significant at the 5% level"
