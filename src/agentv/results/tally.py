"""Runs of cases as they come -> figures of the cases. What is held is one number a case.

Of a case whose trials are not all in yet a little more is held, by the hash of its name.
"""

import math
import struct
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

SHOWN = 3
DIGITS = 12
"""As many of a mean are kept: then it does not matter in which order its trials came in."""
_FIGURES = struct.Struct("<dddII")


class _Case(NamedTuple):
    """The trials of one case that are in."""

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
        """The variance of the scores, of two or more."""
        return max(0.0, round((self.squares - self.total**2 / self.runs) / (self.runs - 1), DIGITS))


class Tally:
    """Collects the scores of cases that each have `trials` runs."""

    def __init__(self, trials: int):
        self._trials = trials
        self.runs = 0
        self.passes: Counter[int] = Counter()
        """How many of the complete cases passed in so many of their trials."""
        self._means = array("d")
        self._variances = 0.0
        self._room = 0.0
        self._open: dict[int, bytes] = {}
        self._top: list[tuple[float, str]] = []
        self._bottom: list[tuple[float, str]] = []
        self._top_bar, self._bottom_bar = -math.inf, math.inf
        """The means of the last ones there: what is between the two is neither among the best nor among the worst."""

    def add(self, names: tuple[str, str], score: float, room: float, *, passed: bool) -> None:
        """Count a run of the case of this dataset and id; `room` is how much higher the score could have been."""
        self.runs += 1
        if self._trials == 1:
            self._room += room
            self._close(names[1], score, int(passed))
            return
        number = hash(names)
        before = _Case._make(_FIGURES.unpack_from(self._open.pop(number))) if number in self._open else _Case()
        case = _Case(
            before.total + score, before.squares + score**2, before.room + room, before.runs + 1, before.passes + passed
        )
        if case.runs == self._trials:
            self._room += case.room / case.runs
            self._variances += case.variance
            self._close(names[1], case.mean, case.passes)
        else:
            self._open[number] = _FIGURES.pack(*case) + names[1].encode("utf-8", "surrogatepass")

    def add_all(self, eval_ids: Sequence[str], scores: Sequence[float], passes: int) -> None:
        """Count runs of cases that have one each; so many of them passed."""
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
        """Keep a case that is among the best, or among the worst."""
        if mean >= self._top_bar:
            self._top_bar = -_insert(self._top, (-mean, eval_id))
        if mean <= self._bottom_bar:
            self._bottom_bar = _insert(self._bottom, (mean, eval_id))

    def _open_cases(self) -> Iterator[tuple[_Case, str]]:
        for held in self._open.values():
            yield _Case._make(_FIGURES.unpack_from(held)), held[_FIGURES.size :].decode("utf-8", "surrogatepass")

    @property
    def means(self) -> "array[float]":
        """The mean of each case, over those of its trials that are in."""
        if not self._open:
            return self._means
        return self._means + array("d", [case.mean for case, _ in self._open_cases()])

    @property
    def complete(self) -> "array[float]":
        """The means of the cases of which all trials are in."""
        return self._means

    @property
    def within(self) -> float:
        """The mean variance of the scores inside a complete case."""
        return self._variances / len(self._means)

    @property
    def room(self) -> float:
        """How much higher the sum of the means could be."""
        return self._room + sum(case.room / case.runs for case, _ in self._open_cases())

    @property
    def top(self) -> list[tuple[str, float]]:
        """The best cases, the same ones every time: ties go by id."""
        others = ((-case.mean, eval_id) for case, eval_id in self._open_cases())
        return [(eval_id, -key) for key, eval_id in nsmallest(SHOWN, (*self._top, *others))]

    @property
    def bottom(self) -> list[tuple[str, float]]:
        """The worst cases."""
        others = ((case.mean, eval_id) for case, eval_id in self._open_cases())
        return [(eval_id, key) for key, eval_id in nsmallest(SHOWN, (*self._bottom, *others))]


def _insert(best: list[tuple[float, str]], entry: tuple[float, str]) -> float:
    """Add an entry, if it is among the best; return how good another one must be."""
    if len(best) < SHOWN or entry < best[-1]:
        best.append(entry)
        best.sort()
        del best[SHOWN:]
    return best[-1][0] if len(best) == SHOWN else math.inf
