"""Scores the edit similarity of an answer and a text: 1 minus the Levenshtein distance divided by the longer length."""

from typing import ClassVar

from agentv.evaluators.checks.matching import CheckSettings, score_point
from agentv.evaluators.judging.payload import reference_answer
from agentv.evaluators.judging.reply import failed_score
from agentv.records import Exchange, Fraction, Score

MAX_CELLS = 400_000_000
"""The limit for the product of the lengths, which determines the duration. At the limit, it takes a few seconds."""
FIRST_REPLACEMENT = 0x20000
"""The first of the CJK ideographs that replace other characters: the library counts each of them as one."""
THRESHOLD = ", threshold "


class Similarity(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score the similarity to `value`, or else to the reference answer. With `threshold`, the score is 1 or 0."""

    waits: ClassVar[bool] = False

    value: str | None = None
    """The text to compare with. Defaults to the reference answer."""
    threshold: Fraction | None = None
    """The similarity from which the score is 1; below it, the score is 0."""
    case_sensitive: bool = True
    """Whether matching is case-sensitive."""

    @classmethod
    def negated_miss(cls, hit: str) -> str:
        similarity, found, threshold = hit.partition(THRESHOLD)
        if found:
            return f"{similarity}, expected below {threshold}"
        return super().negated_miss(hit)

    async def evaluate(self, exchange: Exchange) -> Score:
        answer = exchange.response.text
        wanted = self.value
        if wanted is None:
            wanted = reference_answer(exchange.case)
            if not wanted:
                return failed_score("nothing to compare with: no value and no reference answer")
        if len(answer) * len(wanted) > MAX_CELLS:
            return failed_score(f"too long to compare: {len(answer)} and {len(wanted)} characters")
        if not self.case_sensitive:
            answer = answer.casefold()
            wanted = wanted.casefold()
        return self._score(similarity(answer, wanted))

    def _score(self, similarity: float) -> Score:
        point = f"similarity {similarity:.3f}"
        if self.threshold is None:
            if similarity == 1:
                return Score(score=similarity, hits=(point,))
            return Score(score=similarity, misses=(point,))
        point = f"{point}{THRESHOLD}{self.threshold:g}"
        return score_point(similarity >= self.threshold, point)


def similarity(one: str, other: str) -> float:
    """Return 1 for equal texts, 0 for texts that have nothing in common."""
    if one == other:
        return 1.0
    import jellyfish

    one, other = _one_character_per_code_point(one, other)
    distance = jellyfish.levenshtein_distance(one, other)
    return 1 - distance / max(len(one), len(other))


def _one_character_per_code_point(one: str, other: str) -> tuple[str, str]:
    """Return the texts with replacements for characters that the library would count differently than `len`.

    It counts grapheme clusters (an emoji of five code points is one), and rejects lone surrogates. We count code
    points.
    """
    both = one + other
    if both.isascii() and "\r" not in both:
        return one, other
    replacements = {}
    for number, character in enumerate(dict.fromkeys(both)):
        replacements[ord(character)] = FIRST_REPLACEMENT + number
    return one.translate(replacements), other.translate(replacements)
