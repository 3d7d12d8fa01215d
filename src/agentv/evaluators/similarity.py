"""Scores how alike the answer and a text are: 1 less the share of characters that an edit has to touch."""

from typing import ClassVar

import msgspec

from agentv.judges.payload import reference_answer
from agentv.records import Exchange, Fraction, Score

MOST_CELLS = 400_000_000
"""The work of a comparison is the product of the lengths; this much takes some seconds."""


class Similarity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        if len(answer) * len(wanted) > MOST_CELLS:
            return _failure(f"too long to compare: {len(answer)} characters with {len(wanted)}")
        alike = similarity(answer, wanted) if self.case_sensitive else similarity(answer.casefold(), wanted.casefold())
        words = f"similarity {alike:.3f}"
        if self.threshold is None:
            return Score(score=alike, hits=(words,) if alike == 1 else (), misses=() if alike == 1 else (words,))
        if alike < self.threshold:
            return Score(score=0.0, misses=(f"{words}, threshold {self.threshold:g}",))
        return Score(score=1.0, hits=(f"{words}, threshold {self.threshold:g}",))


def similarity(one: str, other: str) -> float:
    """1 for equal texts, 0 for texts that have nothing in common."""
    if one == other:
        return 1.0
    import jellyfish

    return 1 - jellyfish.levenshtein_distance(*_plain(one, other)) / max(len(one), len(other))


def _plain(one: str, other: str) -> tuple[str, str]:
    """The texts with stand-ins for their characters, if they need any.

    The library counts what a reader sees as one (an emoji of five characters), and takes no halves of characters; we
    count characters, as the lengths do.
    """
    both = one + other
    if both.isascii() and "\r" not in both:
        return one, other
    stand_ins = {ord(character): 0x20000 + number for number, character in enumerate(dict.fromkeys(both))}
    return one.translate(stand_ins), other.translate(stand_ins)


def _failure(reason: str) -> Score:
    return Score(score=0.0, misses=(reason,), failed=True)
