"""All that is known of the judges of a run -> whether they can be trusted, and why."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from agentv.errors import AgentvError
from agentv.results.health.record import EvaluatorHealth, Flips, JudgeHealth
from agentv.results.labels.judge import JudgeFigures, judge_figures
from agentv.results.labels.match import find_labels
from agentv.results.runs import RunRecord
from agentv.stats.agreement import Figure, rate

TOO_MANY = 0.1
"""A judge is untrusted if surely more than this share of its judgements are bad in one of the ways that are counted."""
GOOD_KAPPA, GOOD_AGREEMENT = 0.6, 0.8
STRONG_CORRELATION = 0.5


def judge_verdict(known: JudgeHealth) -> JudgeHealth:
    """Return what is known with its verdict, the reasons for it, and what else a reader should know."""
    bad, warnings = tuple(_reasons_against(known)), tuple(_warnings(known))
    if bad:
        return msgspec.structs.replace(known, verdict="untrusted", reasons=bad, warnings=warnings)
    good = tuple(_reasons_for(known))
    needs_correction = _needs_correction(known)
    if needs_correction:
        verdict, good = "trusted with correction", (*good, needs_correction)
    elif good:
        verdict = "trusted"
    else:
        verdict, good = "not checked", ("no planted answers and no labels: run with --check-judge, or label answers",)
    return msgspec.structs.replace(known, verdict=verdict, reasons=good, warnings=warnings)


def _reasons_against(known: JudgeHealth) -> Iterator[str]:
    if (canaries := known.canaries) is not None and canaries.failed:
        yield f"canaries: {len(canaries.failed)} of {canaries.planted} planted answers were judged wrongly"
    if canaries is not None and is_too_many(canaries.unjudged, canaries.planted):
        yield f"canaries: {canaries.unjudged} of {canaries.planted} planted answers got no judgement"
    for each in known.evaluators:
        name = each.evaluator
        if is_too_many(each.unjudged, each.answers):
            yield f"no judgement: {name} has none of {each.unjudged} of {each.answers} answers"
        if is_too_many(each.contradictions, each.answers):
            yield f"contradictions: {name} gave {each.contradictions} of {each.answers} scores that its points deny"
        if each.repeats is not None and _flips_too_often(each.repeats):
            yield f"repeats: {_flipped(each.repeats)} of {name}"
    if known.rejudged is not None and _flips_too_often(known.rejudged):
        yield f"judged again: {_flipped(known.rejudged)}"
    if (labels := known.labels) is not None and labels.pass_rate.corrected.value is None:
        highest = labels.kappa.ci_upper
        if highest is not None and highest < GOOD_KAPPA:
            yield f"labels: kappa is at most {highest:.2f}, and nothing can correct the pass rate"


def _reasons_for(known: JudgeHealth) -> Iterator[str]:
    if (canaries := known.canaries) is not None and canaries.right:
        least = canaries.accuracy.ci_lower or 0.0
        judged = canaries.planted - canaries.unjudged
        yield f"canaries: {canaries.right} of {judged} right, so it is right in at least {least:.0%} of such"
    if (labels := known.labels) is not None and _agrees(labels):
        yield f"labels: kappa {labels.kappa.value:.2f}, agreement at least {labels.agreement.ci_lower:.2f}"


def _agrees(labels: JudgeFigures) -> bool:
    """Return whether a judge surely agrees with people; if it always does, kappa has no interval to tell."""
    if labels.kappa.ci_lower is not None:
        return labels.kappa.ci_lower >= GOOD_KAPPA
    return labels.kappa.value == 1 and (labels.agreement.ci_lower or 0.0) >= GOOD_AGREEMENT


def _needs_correction(known: JudgeHealth) -> str:
    """Return why the pass rate is to be taken from the labels; empty if it need not be, or cannot."""
    labels = known.labels
    if labels is None or labels.pass_rate.corrected.value is None or _agrees(labels):
        return ""
    return f"labels: kappa may be below {GOOD_KAPPA:g}; take the corrected pass rate"


def _warnings(known: JudgeHealth) -> Iterator[str]:
    for target in known.same_model:
        yield f"target {target!r} is judged by its own model, which may favour its own answers"
    for each in known.evaluators:
        if is_too_many(each.repaired + each.asked_again, each.answers):
            parts = f"{each.repaired} repaired, {each.asked_again} asked for again"
            yield f"{each.evaluator} often writes no valid JSON: {parts}, of {each.answers} answers"
        if _is_strong(each.length):
            yield f"scores of {each.evaluator} rise with the length of answers: it may like long ones, right or wrong"


def _is_strong(length: Figure | None) -> bool:
    if length is None or length.ci_lower is None:  # a few answers prove nothing
        return False
    return length.ci_lower > STRONG_CORRELATION


def is_too_many(bad: int, of: int) -> bool:
    """Return whether the share is above `TOO_MANY` even at the lower end of its interval."""
    if not bad or not of:
        return False
    found = rate({(1, 1.0): min(bad, of), (1, 0.0): max(0, of - bad)})
    return (found.ci_lower or 0.0) > TOO_MANY


def _flips_too_often(flips: Flips) -> bool:
    return is_too_many(flips.flipped, flips.answers)


def _flipped(flips: Flips) -> str:
    return f"{flips.flipped} of {flips.answers} verdicts changed"


def health_of(evaluators: tuple[EvaluatorHealth, ...], **known: object) -> JudgeHealth | None:
    """Return the health of the judges of a run, with its verdict; None if the run has none."""
    if not evaluators and known.get("canaries") is None:
        return None
    return judge_verdict(JudgeHealth(evaluators=evaluators, **known))  # type: ignore[arg-type]


def run_labels(results: Path | None, labels: Path, read_runs: Callable[[], Sequence[RunRecord]]) -> JudgeFigures | None:
    """Return how far the judge of a run agrees with the labels of its answers; None if there are none."""
    if results is None or not results.is_file() or not results.stat().st_size:
        return None
    book = find_labels(labels)
    if book is None:
        return None
    try:
        return judge_figures(results, book, None, read_runs())
    except AgentvError:
        return None  # none of them is for an answer of this run
