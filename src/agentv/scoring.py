"""Combine the results of evaluators into the score and the verdict of a case."""

from collections.abc import Iterable, Iterator, Sequence

from agentv.records import BORDERLINE, PASS, EvaluatorResult, PassRule, Record, Texts, Verdict

SCORING = 3
"""The version of the scoring rules. Increase it when a change gives the same answer a different score or verdict.

1: results without a version. 2: judges give their reasons before the score. 3: a judge failure never passes.
"""


def verdict_of(score: float, pass_at: float = PASS) -> Verdict:
    """Return the verdict of a score: `pass` for at least `pass_at`, `borderline` for at least `BORDERLINE`."""
    if score >= pass_at:
        return "pass"
    if score >= BORDERLINE:
        return "borderline"
    return "fail"


class CaseScore(Record, frozen=True):
    """The combined outcome of the evaluators of a case."""

    score: float
    verdict: Verdict
    hits: Texts = ()
    misses: Texts = ()
    reasoning: str = ""
    is_judged: bool = True
    """False if an evaluator could not judge the answer, or if no evaluator applies to the case."""
    failed_required: Texts = ()
    """The names of the required evaluators that the answer failed."""


NOT_SCORED = CaseScore(score=0.0, verdict="fail")


def score_case(parts: Sequence[EvaluatorResult], rule: PassRule) -> CaseScore:
    """Return the score of a case, which is the weighted mean, and the verdict.

    This is the only place that decides the verdict of a result. Everything else reads it.
    """
    hits: list[str] = []
    misses: list[str] = []
    reasons: list[str] = []
    counted: list[EvaluatorResult] = []
    failed_required: list[str] = []
    is_judged = True
    for part in parts:
        hits.extend(part.hits)
        misses.extend(part.misses)
        if part.reasoning:
            reasons.append(part.reasoning)
        if not part.counts:
            continue
        counted.append(part)
        if part.failed:
            is_judged = False
        elif part.required is not False and _misses_requirement(part):
            failed_required.append(part.name)
    if not counted:
        is_judged = False
        misses.append(_why_not_judged(parts))
    score = weighted_mean(counted)
    if score is None:
        # Only required evaluators without a weight apply: the score is 1 if the answer meets them all, otherwise 0.
        score = float(is_judged and not failed_required)
    verdict: Verdict = "fail"
    if is_judged and not failed_required and not has_explicit_fail(counted):
        verdict = _verdict_by(rule, score, counted)
        if rule == "all":
            misses.extend(_unexplained(counted))
    return CaseScore(
        score=score,
        verdict=verdict,
        hits=tuple(hits),
        misses=tuple(misses),
        reasoning="\n".join(reasons),
        is_judged=is_judged,
        failed_required=tuple(failed_required),
    )


def _unexplained(counted: Sequence[EvaluatorResult]) -> Iterator[str]:
    """Yield a miss for each evaluator that neither passes nor reports a miss."""
    for part in counted:
        if part.verdict != "pass" and not part.misses:
            yield f"{part.name} {state_of(part)}: 'pass: all' needs 'pass'"


def state_of(part: EvaluatorResult) -> str:
    """Return the verdict and the score of an evaluator, for a miss."""
    return f"is {part.verdict!r} ({part.score:.2f})"


def has_explicit_fail(parts: Iterable[EvaluatorResult]) -> bool:
    """Return whether an evaluator explicitly fails the answer, regardless of its score."""
    return any(map(_fails_explicitly, parts))


def _fails_explicitly(part: EvaluatorResult) -> bool:
    """Return whether the verdict `fail` is explicit. Older results do not record this: compare with the score."""
    if part.verdict != "fail":
        return False
    if part.explicit_verdict or part.score is None:
        return part.explicit_verdict
    return part.verdict != verdict_of(part.score)


def weighted_mean(parts: Sequence[EvaluatorResult]) -> float | None:
    """Return the mean of the scores by weight, or None if no evaluator with a weight applies."""
    heaviest = 0.0
    for part in parts:
        if part.score is not None and part.weight > heaviest:
            heaviest = part.weight
    if not heaviest:
        return None
    total = 0.0
    weighted = 0.0
    for part in parts:
        if part.score is None:
            continue
        weight = part.weight / heaviest  # so that huge weights do not overflow
        total += weight
        weighted += weight * part.score
    return round(weighted / total, 12)  # the mean of 0.7, 0.8 and 0.9 is 0.8, not slightly less


def _why_not_judged(parts: Sequence[EvaluatorResult]) -> str:
    if any(part.applicable for part in parts):
        return "not judged: all evaluators that apply to this case have weight 0, and no evaluator is required"
    return "not judged: no evaluator applies to this case"


def _misses_requirement(part: EvaluatorResult) -> bool:
    """Return whether an answer fails a required evaluator that applies to it."""
    if part.score is None:
        return False
    if part.required is True:
        return part.verdict != "pass"
    return part.score < part.required


def _verdict_by(rule: PassRule, score: float, counted: Sequence[EvaluatorResult]) -> Verdict:
    if rule != "all":
        return verdict_of(score, rule)
    if all(part.verdict == "pass" for part in counted):
        return "pass"
    return "fail"
