"""Scores how alike the answer and a text are: 1 less the share of characters that an edit has to touch."""

from typing import ClassVar

from agentv.judges.payload import reference_answer
from agentv.protocols import EvaluatorSettings
from agentv.records import Exchange, Fraction, Score

MAX_CELLS = 400_000_000
"""The work of a comparison is the product of the lengths; this much takes some seconds."""


class Similarity(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores the edit similarity to `value`, else to the reference answer; with `threshold` 1 or 0."""

    waits: ClassVar[bool] = False

    value: str | None = None
    threshold: Fraction | None = None
    case_sensitive: bool = True

    async def evaluate(self, exchange: Exchange) -> Score:
        wanted = reference_answer(exchange.case) if self.value is None else self.value
        if self.value is None and not wanted:
            return _failure("there is nothing to compare with: neither a value nor a reference answer")
        answer = exchange.response.text
        if len(answer) * len(wanted) > MAX_CELLS:
            return _failure(f"too long to compare: {len(answer)} characters with {len(wanted)}")
        alike = similarity(answer, wanted) if self.case_sensitive else similarity(answer.casefold(), wanted.casefold())
        point = f"similarity {alike:.3f}"
        if self.threshold is None:
            return Score(score=alike, hits=(point,) if alike == 1 else (), misses=() if alike == 1 else (point,))
        if alike < self.threshold:
            return Score(score=0.0, misses=(f"{point}, threshold {self.threshold:g}",))
        return Score(score=1.0, hits=(f"{point}, threshold {self.threshold:g}",))


def similarity(one: str, other: str) -> float:
    """Return 1 for equal texts, 0 for texts that have nothing in common."""
    if one == other:
        return 1.0
    import jellyfish

    return 1 - jellyfish.levenshtein_distance(*_plain(one, other)) / max(len(one), len(other))


def _plain(one: str, other: str) -> tuple[str, str]:
    """Return the texts, with other characters in the place of those that the library counts in its own way.

    It counts what a reader sees as one (an emoji of five code points), and refuses lone surrogates. We count code
    points, as `len` does.
    """
    both = one + other
    if both.isascii() and "\r" not in both:
        return one, other
    replacements = {ord(character): 0x20000 + number for number, character in enumerate(dict.fromkeys(both))}
    return one.translate(replacements), other.translate(replacements)


def _failure(reason: str) -> Score:
    return Score(score=0.0, misses=(reason,), failed=True)
