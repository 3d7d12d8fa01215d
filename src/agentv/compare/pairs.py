"""Pair the cases that are in both runs, with their scores and differences."""

import math
import operator
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest, nsmallest
from itertools import compress
from typing import overload

from agentv.compare.blocks import PASSED, SEEN, UNSCORED
from agentv.compare.columns import Numbers, Scores, pick, pick_bytes
from agentv.compare.records import Outcome, Pair
from agentv.stats.decimals import differences, round_mean
from agentv.stats.inference import Sample

CHUNK = 1000
_PASSED = SEEN | PASSED
_PLAIN = bytes([SEEN, _PASSED])
"""Flags of results that just passed or failed."""


def in_both(first: Scores, second: Scores) -> Numbers:
    """Return the numbers of the cases that have a result on both sides, in ascending order."""
    numbers = range(len(first))
    if first.cases == second.cases == len(first):
        return numbers
    has_both = map(operator.and_, first.flags, second.flags)
    return array("I", compress(numbers, has_both))


@dataclass(frozen=True)
class PairedScores:
    """Scores of the same cases on two sides; `deltas` are the second scores minus the first."""

    first: Scores
    second: Scores
    numbers: Numbers
    deltas: Sequence[float]

    @cached_property
    def sample(self) -> Sample:
        """The differences, with one draw per case."""
        return Sample(self.deltas)

    @property
    def mean(self) -> float:
        """The mean difference."""
        return round_mean(self.sample.mean)

    @cached_property
    def flags(self) -> Counter[tuple[int, int]]:
        """Number of pairs by the flags of both sides."""
        first = pick_bytes(self.first.flags, self.numbers)
        second = pick_bytes(self.second.flags, self.numbers)
        if first.translate(None, _PLAIN) or second.translate(None, _PLAIN):
            return Counter(zip(first, second, strict=True))
        # Nearly always, all results just passed or failed. One operation on two huge integers then compares all pairs.
        passed = int.from_bytes(first) & int.from_bytes(second)
        both = passed.to_bytes(len(first)).count(_PASSED)
        lost = first.count(_PASSED) - both
        gained = second.count(_PASSED) - both
        counts = Counter(
            {
                (SEEN, SEEN): len(first) - both - lost - gained,
                (_PASSED, SEEN): lost,
                (SEEN, _PASSED): gained,
                (_PASSED, _PASSED): both,
            }
        )
        return +counts  # without those that are 0

    def select(self, places: Sequence[int]) -> "PairedScores":
        """Return the pairs at these places, which are in ascending order."""
        numbers = array("I", map(self.numbers.__getitem__, places))
        deltas = array("d", map(self.deltas.__getitem__, places))
        return PairedScores(self.first, self.second, numbers, deltas)


def pair_scores(
    first: Scores,
    second: Scores,
    numbers: Numbers,
    deltas: Sequence[float] | None = None,
) -> PairedScores:
    """Return the pairs of these cases. `deltas` are the differences of their scores, if already known.

    The known differences are not used if some results have no score, as they include these.
    """
    if deltas is None or first.partial or second.partial:
        before = first.pick_scores(numbers)
        after = second.pick_scores(numbers)
        deltas = differences(before, after)
    return PairedScores(first, second, numbers, deltas)


class Pairs(Sequence[Pair]):
    """The cases that are in both files, in the order of the first. Records are created on access."""

    def __init__(
        self,
        ids: Sequence[str],
        numbers: Numbers,
        sides: tuple[Scores, Scores],
        threshold: float,
    ):
        self._ids = ids
        self.numbers = numbers
        # with a threshold of 0, equal scores must still be a tie
        self._threshold = threshold or math.nextafter(0, 1)
        before, after = sides
        self._before = pick(before.scores, numbers)
        self._after = pick(after.scores, numbers)
        self.deltas = differences(self._before, self._after)
        self._flags_before = pick_bytes(before.flags, numbers)
        self._flags_after = pick_bytes(after.flags, numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> list[Pair]: ...
    def __getitem__(self, at: int | slice) -> Pair | list[Pair]:
        if isinstance(at, slice):
            return self._make_pairs(at)
        place = range(len(self))[at]  # a negative index counts from the end; IndexError beyond it
        (pair,) = self._make_pairs(slice(place, place + 1))
        return pair

    def __iter__(self) -> Iterator[Pair]:
        for chunk in self.chunks():
            yield from chunk

    def chunks(self) -> Iterator[list[Pair]]:
        """Yield all pairs in chunks."""
        for start in range(0, len(self), CHUNK):
            yield self._make_pairs(slice(start, start + CHUNK))

    def _make_pairs(self, at: slice) -> list[Pair]:
        threshold = self._threshold
        deltas = self.deltas[at]
        outcomes: list[Outcome] = []
        for delta in deltas:
            if delta >= threshold:
                outcomes.append("win")
            elif delta <= -threshold:
                outcomes.append("loss")
            else:
                outcomes.append("tie")
        ids = map(self._ids.__getitem__, self.numbers[at])
        before = self._before[at]
        after = self._after[at]
        return list(map(Pair, ids, before, after, deltas, outcomes))

    def count_wins_and_losses(self) -> tuple[int, int]:
        """Return the number of wins and of losses. A difference equal to the threshold counts."""
        win = self._threshold
        loss = -self._threshold
        # summing a list is faster than a loop: there may be a million pairs
        wins = sum([delta >= win for delta in self.deltas])
        losses = sum([delta <= loss for delta in self.deltas])
        return wins, losses

    def flips(self) -> tuple[list[int], list[int]]:
        """Return the places of the pairs that passed only before, and of those that passed only after."""
        lost: list[int] = []
        gained: list[int] = []
        if self._flags_before == self._flags_after:
            return lost, gained
        flags = zip(self._flags_before, self._flags_after, strict=True)
        for place, (before, after) in enumerate(flags):
            if (before | after) & UNSCORED:
                continue
            if before & PASSED and not after & PASSED:
                lost.append(place)
            elif after & PASSED and not before & PASSED:
                gained.append(place)
        return lost, gained

    def extremes(self, most: int) -> tuple[list[Pair], list[Pair]]:
        """Return up to `most` worst losses and as many best gains, with the largest first."""
        places = range(len(self))
        delta_at = self.deltas.__getitem__
        worst = nsmallest(most, places, key=delta_at)
        best = nlargest(most, places, key=delta_at)
        losses = [self[place] for place in worst if delta_at(place) < 0]
        gains = [self[place] for place in best if delta_at(place) > 0]
        return losses, gains
