"""Scores of other tools -> ours, which are between 0 and 1."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from agentv.records import EvaluatorResult
from agentv.scoring import verdict_of, weighted_mean

WORDS = {
    "C": 1.0,
    "P": 0.5,
    "I": 0.0,
    "N": 0.0,
    "yes": 1.0,
    "true": 1.0,
    "no": 0.0,
    "false": 0.0,
}
"""What inspect's scorers may give in the place of a number."""


def fraction_of(value: Any) -> float | None:
    """Return a score between 0 and 1; the mean of several; None for what is neither."""
    if isinstance(value, str):
        value = WORDS.get(value, WORDS.get(value.lower(), value))
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        parts = [fraction_of(part) for part in value]
        known = [part for part in parts if part is not None]
        return sum(known) / len(known) if known and len(known) == len(parts) else None
    if not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value <= 1 else None


def evaluator_result(name: str, type_: str, score: float, **fields: Any) -> EvaluatorResult:
    """Return the score of another tool's scorer as that of an evaluator."""
    return EvaluatorResult(name=name, type=type_, score=score, weight=1.0, verdict=verdict_of(score), **fields)


def total_of(results: Iterable[EvaluatorResult]) -> dict[str, Any]:
    """Return the score and verdict of a case: the mean; without any score, the case counts as not judged."""
    parts = tuple(results)
    score = weighted_mean(parts)
    fields: dict[str, Any] = {"score": score, "verdict": verdict_of(score), "evaluator_results": parts}
    return fields if parts else fields | {"failure": "judge", "misses": ("there is no score between 0 and 1",)}
