"""Accumulate the scores of cases as their runs complete. Memory use is one float per complete case.

A case with trials still to come takes some more bytes, under the hash of its names.
"""

import math
import struct
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

SHOWN = 3
DIGITS = 12
"""Decimals to which means are rounded, so that they do not depend on the order of the trials."""
_FIGURES = struct.Struct("<dddII")
"""A packed `_Case`."""

_Ranked = tuple[float, str]
"""A rank, lowest first, and the id of a case."""


class _Case(NamedTuple):
    """The sums over the completed trials of one case."""

    total: float = 0.0
    squares: float = 0.0
    room: float = 0.0
    runs: int = 0
    passes: int = 0

    @property
    def mean(self) -> float:
        return round(self.total / self.runs, DIGITS)

    @property
    def variance(self) -> float:
        """The variance of the scores; requires at least two runs."""
        variance = (self.squares - self.total**2 / self.runs) / (self.runs - 1)
        # rounding can make the variance of equal scores slightly negative
        return max(0.0, round(variance, DIGITS))


class Tally:
    """Collects the scores of cases that have `trials` runs each."""

    def __init__(self, trials: int):
        self._trials = trials
        self.runs = 0
        self.passes: Counter[int] = Counter()
        """The number of complete cases by how many of their trials passed."""
        self._means = array("d")
        self._variances = 0.0
        self._room = 0.0
        self._open: dict[int, bytes] = {}
        self._top: list[_Ranked] = []
        self._bottom: list[_Ranked] = []
        # cases with a mean between these two are neither among the best nor among the worst
        self._top_bar = -math.inf
        self._bottom_bar = math.inf

    def add(self, names: tuple[str, str], score: float, room: float, *, passed: bool) -> None:
        """Count a run of the case with this dataset and id; `room` is the score it lost by not being scored."""
        self.runs += 1
        eval_id = names[1]
        if self._trials == 1:
            self._room += room
            self._close(eval_id, score, int(passed))
            return
        number = hash(names)
        before = _Case()
        if number in self._open:
            before = _unpack(self._open.pop(number))
        case = _Case(
            total=before.total + score,
            squares=before.squares + score**2,
            room=before.room + room,
            runs=before.runs + 1,
            passes=before.passes + passed,
        )
        if case.runs == self._trials:
            self._room += case.room / case.runs
            self._variances += case.variance
            self._close(eval_id, case.mean, case.passes)
        else:
            self._open[number] = _FIGURES.pack(*case) + eval_id.encode("utf-8", "surrogatepass")

    def add_all(self, eval_ids: Sequence[str], scores: Sequence[float], passes: int) -> None:
        """Count single runs of several cases, of which `passes` passed."""
        self.runs += len(scores)
        self._means.extend(scores)
        self.passes += Counter({1: passes, 0: len(scores) - passes})
        for eval_id, score in zip(eval_ids, scores, strict=True):
            if score >= self._top_bar or score <= self._bottom_bar:
                self._rank(eval_id, score)

    def _close(self, eval_id: str, mean: float, passes: int) -> None:
        """Add the figures of a complete case."""
        self._means.append(mean)
        self.passes[passes] += 1
        if mean >= self._top_bar or mean <= self._bottom_bar:
            self._rank(eval_id, mean)

    def _rank(self, eval_id: str, mean: float) -> None:
        """Keep a case that is among the best or the worst."""
        if mean >= self._top_bar:
            self._top_bar = -_insert(self._top, (-mean, eval_id))
        if mean <= self._bottom_bar:
            self._bottom_bar = _insert(self._bottom, (mean, eval_id))

    def _open_cases(self) -> Iterator[tuple[_Case, str]]:
        for held in self._open.values():
            eval_id = held[_FIGURES.size :].decode("utf-8", "surrogatepass")
            yield _unpack(held), eval_id

    @property
    def means(self) -> "array[float]":
        """The mean of each case over its completed trials."""
        if not self._open:
            return self._means
        open_means = [case.mean for case, _ in self._open_cases()]
        return self._means + array("d", open_means)

    @property
    def complete(self) -> "array[float]":
        """The means of the cases with all trials completed."""
        return self._means

    @property
    def within(self) -> float:
        """The mean variance of the scores within a complete case."""
        return self._variances / len(self._means)

    @property
    def room(self) -> float:
        """The amount by which the sum of the means could be higher had every run been scored."""
        return self._room + sum(case.room / case.runs for case, _ in self._open_cases())

    @property
    def top(self) -> list[tuple[str, float]]:
        """The best cases, in the same order for every run: ties are broken by id."""
        # ranks are negated means, so that ties sort by id here as they do at the bottom
        open_cases = [(-case.mean, eval_id) for case, eval_id in self._open_cases()]
        return [(eval_id, -rank) for rank, eval_id in _lowest(self._top, open_cases)]

    @property
    def bottom(self) -> list[tuple[str, float]]:
        """The worst cases, with ties broken by id."""
        open_cases = [(case.mean, eval_id) for case, eval_id in self._open_cases()]
        return [(eval_id, mean) for mean, eval_id in _lowest(self._bottom, open_cases)]


def _unpack(held: bytes) -> _Case:
    return _Case._make(_FIGURES.unpack_from(held))


def _lowest(complete: Iterable[_Ranked], open_cases: Iterable[_Ranked]) -> list[_Ranked]:
    return nsmallest(SHOWN, (*complete, *open_cases))


def _insert(best: list[_Ranked], entry: _Ranked) -> float:
    """Insert an entry if it is among the best, and return the rank that another one must reach."""
    if len(best) < SHOWN or entry < best[-1]:
        best.append(entry)
        best.sort()
        del best[SHOWN:]
    if len(best) < SHOWN:
        return math.inf
    last_rank, _ = best[-1]
    return last_rank
