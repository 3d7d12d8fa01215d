"""Pair the cases that are in both runs, with their scores and differences."""

import math
import operator
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest, nsmallest
from itertools import compress
from typing import Any, NamedTuple, overload

from agentv.compare.blocks import PASSED, SEEN, failed_by_machine, is_errored
from agentv.compare.columns import Numbers, RunColumns, Scores, pick, pick_bytes
from agentv.compare.read import ComparedRuns
from agentv.compare.records import Comparison, Outcome, Pair
from agentv.records import CaseKey
from agentv.stats.decimals import differences, round_mean
from agentv.stats.inference import ClusterSums

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
    def sample(self) -> ClusterSums:
        """The differences, with one draw per case."""
        return ClusterSums(self.deltas)

    @property
    def mean(self) -> float:
        """The mean difference."""
        return round_mean(self.sample.mean)

    @cached_property
    def flags(self) -> Counter[tuple[int, int]]:
        """Number of pairs by the flags of both sides."""
        first = pick_bytes(self.first.flags, self.numbers)
        second = pick_bytes(self.second.flags, self.numbers)
        if _is_plain(first) and _is_plain(second):  # nearly always
            return _count_plain(first, second)
        return Counter(zip(first, second, strict=True))

    def select(self, places: Sequence[int]) -> "PairedScores":
        """Return the pairs at these positions, which are in ascending order."""
        numbers = map(self.numbers.__getitem__, places)
        deltas = map(self.deltas.__getitem__, places)
        return PairedScores(
            first=self.first,
            second=self.second,
            numbers=array("I", numbers),
            deltas=array("d", deltas),
        )


def _is_plain(flags: bytes) -> bool:
    """Return whether all results just passed or failed."""
    return not flags.translate(None, _PLAIN)


def _count_plain(first: bytes, second: bytes) -> Counter[tuple[int, int]]:
    """Return the number of pairs by their flags. One operation on two huge integers compares all pairs."""
    passed = int.from_bytes(first) & int.from_bytes(second)
    both = passed.to_bytes(len(first)).count(_PASSED)
    lost = first.count(_PASSED) - both
    gained = second.count(_PASSED) - both
    neither = len(first) - both - lost - gained
    counts = Counter(
        {
            (SEEN, SEEN): neither,
            (_PASSED, SEEN): lost,
            (SEEN, _PASSED): gained,
            (_PASSED, _PASSED): both,
        }
    )
    return +counts  # without those that are 0


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


def count_errored(flags: Mapping[tuple[int, int], int]) -> int:
    """Return how many pairs ended in an error or were not judged, given the number of pairs by their flags."""
    errored = 0
    for (before, after), times in flags.items():
        if is_errored(before) or is_errored(after):
            errored += times
    return errored


class VerdictChanges(NamedTuple):
    """The positions of the pairs whose verdict changed, and of those whose verdict is unknown."""

    lost: list[int]
    """Pairs that passed only before."""
    gained: list[int]
    """Pairs that passed only after."""
    errored: list[int]
    """Pairs that ended in an error or were not judged, on either side."""
    lost_to_errors: list[int]
    """The errored pairs that passed before."""


class Pairs(Sequence[Pair]):
    """The cases that are in both files, in the order of the first. Records are created on access."""

    def __init__(
        self,
        runs: ComparedRuns,
        numbers: Numbers,
        sides: tuple[RunColumns, RunColumns],
        threshold: float,
    ):
        self._runs = runs
        self._ids = runs.ids
        self._datasets = runs.datasets
        self._sides = sides
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
        pairs = self._make_pairs(slice(place, place + 1))
        return pairs[0]

    def __iter__(self) -> Iterator[Pair]:
        for chunk in self.chunks():
            yield from chunk

    def chunks(self) -> Iterator[list[Pair]]:
        """Yield all pairs in chunks."""
        for start in range(0, len(self), CHUNK):
            yield self._make_pairs(slice(start, start + CHUNK))

    def table(self) -> list[dict[str, Any]]:
        """Return a flat row for each pair, with the dataset of its case in the second run."""
        after = self._sides[1]
        rows = []
        for number, pair in zip(self.numbers, self, strict=True):
            row = {
                "eval_id": pair.eval_id,
                "dataset": after.dataset_of(number),
                "score1": pair.score1,
                "score2": pair.score2,
                "delta": pair.delta,
                "outcome": pair.outcome,
            }
            rows.append(row)
        return rows

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
        numbers = self.numbers[at]
        ids = map(self._ids.__getitem__, numbers)
        before = self._before[at]
        after = self._after[at]
        if not self._datasets:
            return list(map(Pair, ids, before, after, deltas, outcomes))
        datasets = [self._datasets.get(number, "") for number in numbers]
        return list(map(Pair, ids, before, after, deltas, outcomes, datasets))

    @cached_property
    def mean_deltas(self) -> "array[float]":
        """The differences that the mean includes: those of all pairs without a machine failure."""
        if _is_plain(self._flags_before) and _is_plain(self._flags_after):  # nearly always
            return self.deltas
        counted = array("d")
        for delta, before, after in zip(self.deltas, self._flags_before, self._flags_after, strict=True):
            if not failed_by_machine(before) and not failed_by_machine(after):
                counted.append(delta)
        return counted

    def count_wins_and_losses(self) -> tuple[int, int]:
        """Return the number of wins and of losses. A difference equal to the threshold counts."""
        win = self._threshold
        loss = -self._threshold
        # summing a list is faster than a loop: there may be a million pairs
        wins = sum([delta >= win for delta in self.deltas])
        losses = sum([delta <= loss for delta in self.deltas])
        return wins, losses

    @cached_property
    def flips(self) -> VerdictChanges:
        """The pairs whose verdict changed or is unknown."""
        flips = VerdictChanges([], [], [], [])
        flags = zip(self._flags_before, self._flags_after, strict=True)
        # there are many pairs but few combinations of flags
        lists: dict[tuple[int, int], list[list[int]]] = {}
        for place, pair in enumerate(flags):
            if pair not in lists:
                lists[pair] = _lists_of(flips, *pair)
            for places in lists[pair]:
                places.append(place)
        return flips

    def names(self, places: Iterable[int]) -> list[str]:
        """Return the names of the cases at these positions."""
        return [self[place].name for place in places]

    @property
    def shared_ids(self) -> frozenset[str]:
        """The ids of the cases that were matched by dataset and id."""
        return self._runs.shared_ids

    @property
    def eval_files(self) -> Collection[str | None]:
        """The eval files that the results of the second run name, with None for an unknown one."""
        return self._sides[1].eval_files

    def only_first(self) -> list[CaseKey]:
        """Return the cases that only the first run has. The dataset is empty if the id is enough to match them."""
        first, second = self._sides
        cases = []
        for number, (before, after) in enumerate(zip(first.flags, second.flags, strict=True)):
            if before and not after:
                case = CaseKey(self._datasets.get(number, ""), self._ids[number])
                cases.append(case)
        return cases

    def extremes(self, most: int) -> tuple[list[Pair], list[Pair]]:
        """Return up to `most` worst losses and as many best gains, with the largest first. Skip errored pairs."""
        errored = frozenset(self.flips.errored)
        places = [place for place in range(len(self)) if place not in errored]
        delta_at = self.deltas.__getitem__
        worst = nsmallest(most, places, key=delta_at)
        best = nlargest(most, places, key=delta_at)
        losses = []
        for place in worst:
            if delta_at(place) < 0:
                losses.append(self[place])
        gains = []
        for place in best:
            if delta_at(place) > 0:
                gains.append(self[place])
        return losses, gains


def _lists_of(flips: VerdictChanges, before: int, after: int) -> list[list[int]]:
    """Return the lists that pairs with these flags belong to."""
    if is_errored(before):
        return [flips.errored]
    passed_before = before & PASSED
    passed_after = after & PASSED
    if is_errored(after) and passed_before:
        return [flips.errored, flips.lost_to_errors]
    if is_errored(after):
        return [flips.errored]
    if passed_before and not passed_after:
        return [flips.lost]
    if passed_after and not passed_before:
        return [flips.gained]
    return []


def pairs_of(comparison: Comparison) -> Pairs:
    """Return the pairs of a comparison made by `compare_files`."""
    assert isinstance(comparison.matched, Pairs)
    return comparison.matched
