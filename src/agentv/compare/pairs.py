"""Two runs -> the cases that are in both, with their scores and differences."""

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
from agentv.compare.columns import Scores, pick, pick_bytes
from agentv.compare.records import Outcome, Pair
from agentv.stats.decimals import differences, round_mean
from agentv.stats.inference import Sample

CHUNK = 1000
_PASSED = SEEN | PASSED
_PLAIN = bytes([SEEN, _PASSED])
"""Flags of results of which there is nothing to say but whether they passed."""


def in_both(first: Scores, second: Scores) -> Sequence[int]:
    """Return the numbers of the cases that have a result on both sides, in ascending order."""
    if first.cases == second.cases == len(first):
        return range(len(first))
    return array("I", compress(range(len(first)), map(operator.and_, first.flags, second.flags)))


@dataclass(frozen=True)
class PairedScores:
    """Scores of the same cases on two sides; `deltas` is how far the second is above the first."""

    first: Scores
    second: Scores
    numbers: Sequence[int]
    deltas: Sequence[float]

    @cached_property
    def sample(self) -> Sample:
        """The differences, one draw for each case."""
        return Sample(self.deltas)

    @property
    def mean(self) -> float:
        """The mean difference."""
        return round_mean(self.sample.mean)

    @cached_property
    def flags(self) -> Counter[tuple[int, int]]:
        """How many pairs have which flags on either side."""
        first, second = (pick_bytes(side.flags, self.numbers) for side in (self.first, self.second))
        if first.translate(None, _PLAIN) or second.translate(None, _PLAIN):
            return Counter(zip(first, second, strict=True))
        passed = int.from_bytes(first) & int.from_bytes(second)  # all at once: nearly always, only this can differ
        both = passed.to_bytes(len(first)).count(_PASSED)
        lost, gained = first.count(_PASSED) - both, second.count(_PASSED) - both
        counts = {
            (SEEN, SEEN): len(first) - both - lost - gained,
            (_PASSED, SEEN): lost,
            (SEEN, _PASSED): gained,
            (_PASSED, _PASSED): both,
        }
        return Counter({flags: times for flags, times in counts.items() if times})

    def select(self, places: Sequence[int]) -> "PairedScores":
        """Return the pairs at these places, which ascend."""
        numbers = array("I", map(self.numbers.__getitem__, places))
        deltas = array("d", map(self.deltas.__getitem__, places))
        return PairedScores(self.first, self.second, numbers, deltas)


def pair_scores(
    first: Scores, second: Scores, numbers: Sequence[int], deltas: Sequence[float] | None = None
) -> PairedScores:
    """Return the pairs of these cases; `deltas` are those of all their results, if they are known."""
    if deltas is None or first.partial or second.partial:  # else all the results that there are have a score
        deltas = differences(first.pick_scores(numbers), second.pick_scores(numbers))
    return PairedScores(first, second, numbers, deltas)


class Pairs(Sequence[Pair]):
    """The cases that are in both files, in the order of the first; each record is made when it is asked for."""

    def __init__(self, ids: Sequence[str], numbers: Sequence[int], sides: tuple[Scores, Scores], threshold: float):
        self._ids, self.numbers = ids, numbers
        self._least = threshold or math.nextafter(0, 1)  # no difference at all is never more than a tie
        self._scores = [pick(side.scores, numbers) for side in sides]
        self.deltas = differences(*self._scores)
        self._flags = [pick_bytes(side.flags, numbers) for side in sides]

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Pair: ...
    @overload
    def __getitem__(self, at: slice) -> list[Pair]: ...
    def __getitem__(self, at: int | slice) -> Pair | list[Pair]:
        if isinstance(at, slice):
            return self._make_pairs(at)
        place = range(len(self))[at]
        return self._make_pairs(slice(place, place + 1))[0]

    def __iter__(self) -> Iterator[Pair]:
        for chunk in self.chunks():
            yield from chunk

    def chunks(self) -> Iterator[list[Pair]]:
        """Yield all the pairs, many at a time."""
        for start in range(0, len(self), CHUNK):
            yield self._make_pairs(slice(start, start + CHUNK))

    def _make_pairs(self, at: slice) -> list[Pair]:
        least, deltas = self._least, self.deltas[at]
        outcomes: list[Outcome] = ["win" if d >= least else "loss" if d <= -least else "tie" for d in deltas]
        ids = map(self._ids.__getitem__, self.numbers[at])
        return list(map(Pair, ids, *(scores[at] for scores in self._scores), deltas, outcomes))

    def count_wins_and_losses(self) -> tuple[int, int]:
        """Return how many wins and how many losses there are; a difference of the threshold's size counts."""
        least, most = self._least, -self._least
        return sum([delta >= least for delta in self.deltas]), sum([delta <= most for delta in self.deltas])

    def flips(self) -> tuple[list[int], list[int]]:
        """Return the places of the pairs that passed before and not after, and of those that pass only now."""
        lost: list[int] = []
        gained: list[int] = []
        if self._flags[0] == self._flags[1]:
            return lost, gained
        for place, (before, after) in enumerate(zip(*self._flags, strict=True)):
            if (before ^ after) & PASSED and not (before | after) & UNSCORED:
                (lost if before & PASSED else gained).append(place)
        return lost, gained

    def extremes(self, most: int) -> tuple[list[Pair], list[Pair]]:
        """Return the worst losses and the best gains, with the largest first."""
        places = range(len(self))
        worst = nsmallest(most, places, key=self.deltas.__getitem__)
        best = nlargest(most, places, key=self.deltas.__getitem__)
        return [self[at] for at in worst if self.deltas[at] < 0], [self[at] for at in best if self.deltas[at] > 0]
