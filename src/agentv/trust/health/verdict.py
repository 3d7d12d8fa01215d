"""Decide whether the judges of a run can be trusted, and give the reasons."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from agentv.errors import AgentvError
from agentv.results.runs import RunRecord
from agentv.stats.agreement import Figure, rate
from agentv.trust.health.record import Canaries, EvaluatorHealth, Flips, JudgeHealth, Trust
from agentv.trust.labels.judge import JudgeFigures, judge_figures
from agentv.trust.labels.match import find_labels

TOO_MANY = 0.1
"""A judge is untrusted if significantly more than this share of its judgements have the same kind of fault."""
GOOD_KAPPA = 0.6
GOOD_AGREEMENT = 0.8
STRONG_CORRELATION = 0.5


def judge_verdict(known: JudgeHealth) -> JudgeHealth:
    """Return the health with its verdict, the reasons for it, and warnings."""
    reasons = tuple(_reasons_against(known))
    verdict: Trust = "untrusted"
    if not reasons:
        reasons = tuple(_reasons_for(known))
        verdict = "trusted"
        needs_correction = _needs_correction(known)
        if needs_correction:
            reasons = (*reasons, needs_correction)
            verdict = "trusted with correction"
        elif not reasons:
            reasons = (_why_not_checked(known),)
            verdict = "not checked"
    return msgspec.structs.replace(
        known,
        verdict=verdict,
        reasons=reasons,
        warnings=tuple(_warnings(known)),
    )


def _why_not_checked(known: JudgeHealth) -> str:
    if known.canaries is None:
        return "no planted answers and no labels: run with --check-judge, or label answers"
    return "no planted answer was judged and there are no labels: add reference answers or examples, or label answers"


def _reasons_against(known: JudgeHealth) -> Iterator[str]:
    if known.canaries is not None:
        yield from _failed_canaries(known.canaries)
    for each in known.evaluators:
        yield from _faults(each)
    if known.rejudged is not None and _flips_too_often(known.rejudged):
        yield f"re-judged: {_flipped(known.rejudged)}"
    labels = known.labels
    if labels is not None and labels.pass_rate.corrected.value is None:
        highest = labels.kappa.ci_upper
        if highest is not None and highest < GOOD_KAPPA:
            yield f"labels: kappa is at most {highest:.2f}, and the pass rate cannot be corrected"


def _failed_canaries(canaries: Canaries) -> Iterator[str]:
    if canaries.failed:
        yield f"canaries: {len(canaries.failed)} of {canaries.planted} planted answers were misjudged"
    if is_too_many(canaries.unjudged, canaries.planted):
        yield f"canaries: {canaries.unjudged} of {canaries.planted} planted answers got no judgement"


def _faults(health: EvaluatorHealth) -> Iterator[str]:
    """Yield the faults that an evaluator has too often."""
    name = health.evaluator
    answers = health.answers
    if is_too_many(health.unjudged, answers):
        yield f"no judgement: {name} returned none for {health.unjudged} of {answers} answers"
    if is_too_many(health.contradictions, answers):
        yield f"contradictions: {health.contradictions} of {answers} scores of {name} contradict its hits and misses"
    if health.repeats is not None and _flips_too_often(health.repeats):
        yield f"repeats: {_flipped(health.repeats)} of {name}"


def _reasons_for(known: JudgeHealth) -> Iterator[str]:
    canaries = known.canaries
    if canaries is not None and canaries.right:
        least = canaries.accuracy.ci_lower or 0.0
        judged = canaries.planted - canaries.unjudged
        correct = f"{canaries.right} of {judged} judged correctly"
        yield f"canaries: {correct}, so its accuracy on such answers is at least {least:.0%}"
    labels = known.labels
    if labels is not None and _agrees(labels):
        yield f"labels: kappa {labels.kappa.value:.2f}, agreement at least {labels.agreement.ci_lower:.2f}"


def _agrees(labels: JudgeFigures) -> bool:
    """Return whether the judge significantly agrees with the human labels."""
    if labels.kappa.ci_lower is not None:
        return labels.kappa.ci_lower >= GOOD_KAPPA
    # kappa has no interval if the judge always agrees
    return labels.kappa.value == 1 and (labels.agreement.ci_lower or 0.0) >= GOOD_AGREEMENT


def _needs_correction(known: JudgeHealth) -> str:
    """Return why the pass rate should be corrected by labels; empty if it need not or cannot be corrected."""
    labels = known.labels
    if labels is None or labels.pass_rate.corrected.value is None:
        return ""
    if _agrees(labels):
        return ""
    return f"labels: kappa may be below {GOOD_KAPPA:g}; use the corrected pass rate"


def _warnings(known: JudgeHealth) -> Iterator[str]:
    for target in known.same_model:
        yield f"target {target!r} is judged by its own model, which may favour its own answers"
    for each in known.evaluators:
        if is_too_many(each.repaired + each.asked_again, each.answers):
            parts = f"{each.repaired} repaired, {each.asked_again} retried"
            yield f"{each.evaluator} often returns invalid JSON: {parts}, out of {each.answers} answers"
        if _is_strong(each.length):
            yield f"scores of {each.evaluator} rise with the length of answers: it may favour long answers"


def _is_strong(length: Figure | None) -> bool:
    """Return whether a correlation is significantly strong."""
    if length is None or length.ci_lower is None:  # without an interval, there are too few answers
        return False
    return length.ci_lower > STRONG_CORRELATION


def is_too_many(bad: int, of: int) -> bool:
    """Return whether the lower confidence bound of the share is above `TOO_MANY`."""
    if not bad or not of:
        return False
    found = rate({(1, 1.0): min(bad, of), (1, 0.0): max(0, of - bad)})
    return (found.ci_lower or 0.0) > TOO_MANY


def _flips_too_often(flips: Flips) -> bool:
    return is_too_many(flips.flipped, flips.answers)


def _flipped(flips: Flips) -> str:
    return f"{flips.flipped} of {flips.answers} verdicts changed"


def health_of(evaluators: tuple[EvaluatorHealth, ...], **known: object) -> JudgeHealth | None:
    """Return the health of the judges of a run with its verdict, or None for a run without judges."""
    if not evaluators and known.get("canaries") is None:
        return None
    return judge_verdict(JudgeHealth(evaluators=evaluators, **known))  # type: ignore[arg-type]


def run_labels(
    results: Path | None,
    labels: Path,
    read_runs: Callable[[], Sequence[RunRecord]],
) -> JudgeFigures | None:
    """Return the agreement of the judge of a run with human labels, or None without labels for its answers."""
    if results is None or not results.is_file() or not results.stat().st_size:
        return None
    book = find_labels(labels)
    if book is None:
        return None
    try:
        return judge_figures(results, book, None, read_runs())
    except AgentvError:
        return None  # no label is for an answer of this run
