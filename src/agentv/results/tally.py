"""Accumulate the scores of cases as their runs complete. Memory use is one float per complete case.

A case with trials still to come takes some more bytes, under the hash of its key.
"""

import math
import struct
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import NamedTuple

from agentv.records import CaseKey

SHOWN = 3
HELD = 2 * SHOWN
"""The number of the worst cases that are held, because up to `SHOWN` of them may be among the best as well."""
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
        deviations = self.squares - self.total**2 / self.runs
        variance = deviations / (self.runs - 1)
        rounded = round(variance, DIGITS)
        # rounding can make the variance of equal scores slightly negative
        return max(0.0, rounded)


class ScoreTally:
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

    def add(
        self,
        case_key: CaseKey,
        score: float,
        room: float,
        *,
        passed: bool,
    ) -> None:
        """Count a run of a case; `room` is the score it lost by not being scored."""
        self.runs += 1
        eval_id = case_key.eval_id
        if self._trials == 1:
            self._room += room
            self._close(eval_id, score, int(passed))
            return
        number = hash(case_key)
        held = self._open.pop(number, None)
        if held is None:
            before = _Case()
        else:
            before = _unpack(held)
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
            self._open[number] = _pack(case, eval_id)

    def add_all(self, eval_ids: Sequence[str], scores: Sequence[float], passes: int) -> None:
        """Count single runs of several cases, of which `passes` passed."""
        runs = len(scores)
        self.runs += runs
        self._means.extend(scores)
        # adding counters drops counts of 0
        self.passes += Counter({1: passes, 0: runs - passes})
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
            # ranks are negated means, so that ties are sorted by id as in the bottom list
            top_entry = (-mean, eval_id)
            self._top_bar = -_insert(self._top, top_entry, SHOWN)
        if mean <= self._bottom_bar:
            bottom_entry = (mean, eval_id)
            self._bottom_bar = _insert(self._bottom, bottom_entry, HELD)

    def _open_cases(self) -> Iterator[tuple[_Case, str]]:
        for held in self._open.values():
            encoded_id = held[_FIGURES.size :]
            eval_id = encoded_id.decode("utf-8", "surrogatepass")
            yield _unpack(held), eval_id

    @property
    def means(self) -> "array[float]":
        """The mean of each case over its completed trials."""
        if not self._open:
            return self._means
        open_means = [case.mean for case, _ in self._open_cases()]
        return self._means + array("d", open_means)

    @property
    def pass_rate(self) -> float:
        """The mean over cases of the share of their trials that passed; 0 without cases."""
        shares = [passed / self._trials * cases for passed, cases in self.passes.items()]
        shares += [case.passes / case.runs for case, _ in self._open_cases()]
        cases = len(self._means) + len(self._open)
        if not cases:
            return 0.0
        return math.fsum(shares) / cases

    @property
    def not_passed(self) -> int:
        """The number of cases with a trial that did not pass."""
        closed = sum(cases for passed, cases in self.passes.items() if passed < self._trials)
        still_open = sum(case.passes < case.runs for case, _ in self._open_cases())
        return closed + still_open

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
        open_room = [case.room / case.runs for case, _ in self._open_cases()]
        return self._room + sum(open_room)

    @property
    def top(self) -> list[tuple[str, float]]:
        """The best cases, in the same order for every run: ties are broken by id."""
        ranked = list(self._top)
        for case, eval_id in self._open_cases():
            ranked.append((-case.mean, eval_id))
        lowest = nsmallest(SHOWN, ranked)
        return [(eval_id, -rank) for rank, eval_id in lowest]

    @property
    def bottom(self) -> list[tuple[str, float]]:
        """The worst cases, with ties broken by id. With at least `HELD` cases, none of them is in `top`."""
        worst = self._worst()
        if len(worst) == HELD:
            for eval_id, mean in self.top:
                entry = (mean, eval_id)
                if entry in worst:
                    worst.remove(entry)
        return [(eval_id, mean) for mean, eval_id in worst[:SHOWN]]

    @property
    def lowest(self) -> list[tuple[str, float]]:
        """The worst cases, with ties broken by id, whether or not they are in `top` as well."""
        return [(eval_id, mean) for mean, eval_id in self._worst()[:SHOWN]]

    @property
    def ranking(self) -> list[tuple[str, float]] | None:
        """All cases, best first, or None if there are more than `HELD`."""
        if len(self._means) + len(self._open) > HELD:
            return None
        worst = self._worst()
        worst.sort(key=lambda entry: (-entry[0], entry[1]))
        return [(eval_id, mean) for mean, eval_id in worst]

    def _worst(self) -> list[_Ranked]:
        """Return up to `HELD` of the worst cases, worst first."""
        ranked = list(self._bottom)
        for case, eval_id in self._open_cases():
            ranked.append((case.mean, eval_id))
        return nsmallest(HELD, ranked)


def _pack(case: _Case, eval_id: str) -> bytes:
    """Return the figures and the id of a case as bytes, which take less memory than objects."""
    figures = _FIGURES.pack(*case)
    encoded_id = eval_id.encode("utf-8", "surrogatepass")
    return figures + encoded_id


def _unpack(held: bytes) -> _Case:
    """Return the figures of a case, without its id."""
    figures = _FIGURES.unpack_from(held)
    return _Case._make(figures)


def _insert(best: list[_Ranked], entry: _Ranked, size: int) -> float:
    """Insert an entry if it is among the `size` best, and return the rank that further entries must reach."""
    if len(best) < size or entry < best[-1]:
        best.append(entry)
        best.sort()
        del best[size:]
    if len(best) < size:
        return math.inf
    last_rank, _ = best[-1]
    return last_rank
