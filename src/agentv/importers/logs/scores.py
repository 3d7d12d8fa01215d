"""Convert scores of other tools to agentv's, which are between 0 and 1."""

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
"""Words that Inspect's scorers use instead of numbers."""


def fraction_of(value: Any) -> float | None:
    """Return a score between 0 and 1, or None if the value is not one. A list or an object counts as its mean."""
    if isinstance(value, str):
        return _fraction_of_text(value)
    if isinstance(value, Mapping):
        return _mean(list(value.values()))
    if isinstance(value, list):
        return _mean(value)
    if not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or not 0 <= value <= 1:
        return None
    return float(value)


def _fraction_of_text(text: str) -> float | None:
    word = WORDS.get(text, WORDS.get(text.lower()))
    if word is not None:
        return word
    try:
        return fraction_of(float(text))
    except ValueError:
        return None


def _mean(values: list[Any]) -> float | None:
    """Return the mean of scores, or None if there are none or one of the values is not a score."""
    if not values:
        return None
    scores = []
    for value in values:
        score = fraction_of(value)
        if score is None:
            return None
        scores.append(score)
    return sum(scores) / len(scores)


def evaluator_result(
    name: str,
    type_: str,
    score: float,
    **fields: Any,
) -> EvaluatorResult:
    """Return the score of another tool's scorer as an evaluator result."""
    return EvaluatorResult(
        name=name,
        type=type_,
        score=score,
        weight=1.0,
        verdict=verdict_of(score),
        **fields,
    )


def total_score_fields(results: Iterable[EvaluatorResult]) -> dict[str, Any]:
    """Return the score fields of a result, with the mean score. Without any score, the result is a judge failure."""
    parts = tuple(results)
    score = weighted_mean(parts) or 0.0
    fields: dict[str, Any] = {
        "score": score,
        "verdict": verdict_of(score),
        "evaluator_results": parts,
    }
    if not parts:
        fields["failure"] = "judge"
        fields["misses"] = ("no score between 0 and 1",)
    return fields
