"""Scores and weights -> their mean and a verdict."""

from collections.abc import Iterable

from agentv.records import Score, Verdict

PASS, BORDERLINE = 0.8, 0.6


def verdict_of(score: float) -> Verdict:
    """`pass` from 0.8 on, `borderline` from 0.6 on, else `fail`."""
    if score >= PASS:
        return "pass"
    return "borderline" if score >= BORDERLINE else "fail"


def weighted_mean(scored: Iterable[tuple[float, Score]]) -> float:
    """Mean of the scores by weight; 0 when nothing weighs anything."""
    pairs = list(scored)
    total = sum(weight for weight, _ in pairs)
    return sum(weight * score.score for weight, score in pairs) / total if total else 0.0
