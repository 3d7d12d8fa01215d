"""Scores and weights -> their mean and a verdict."""

from collections.abc import Iterable

from agentv.records import EvaluatorResult, Verdict

PASS, BORDERLINE = 0.8, 0.6
SCORING = 2
"""The version of scoring. It grows with each change of agentv that changes what equal answers score: 2 asks judges for
their reasons before the score. Results without a version are of the first."""


def verdict_of(score: float) -> Verdict:
    """Return `pass` from 0.8 on, `borderline` from 0.6 on, else `fail`."""
    if score >= PASS:
        return "pass"
    return "borderline" if score >= BORDERLINE else "fail"


def weighted_mean(scored: Iterable[EvaluatorResult]) -> float:
    """Return the mean of the scores by weight; 0 if all weights are 0."""
    parts = tuple(scored)
    if len(parts) == 1:
        return round(parts[0].score, 12) if parts[0].weight else 0.0
    heaviest = max((part.weight for part in parts), default=0.0)
    if not heaviest:
        return 0.0
    total = weighted = 0.0
    for part in parts:
        weight = part.weight / heaviest  # so that huge weights do not overflow
        total += weight
        weighted += weight * part.score
    return round(weighted / total, 12)  # 0.7, 0.8 and 0.9 are 0.8, not a little less
