"""Scores and weights -> their mean and a verdict."""

from collections.abc import Iterable

from agentv.records import EvaluatorResult, Verdict

PASS, BORDERLINE = 0.8, 0.6


def verdict_of(score: float) -> Verdict:
    """`pass` from 0.8 on, `borderline` from 0.6 on, else `fail`."""
    if score >= PASS:
        return "pass"
    return "borderline" if score >= BORDERLINE else "fail"


def weighted_mean(scored: Iterable[EvaluatorResult]) -> float:
    """Mean of the scores by weight; 0 when nothing weighs anything."""
    total = weighted = 0.0
    for part in scored:
        total += part.weight
        weighted += part.weight * part.score
    return weighted / total if total else 0.0
