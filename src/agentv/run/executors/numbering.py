"""Numbers for the runs of a plan's cases, the same on every machine: what travels in the place of a case.

A case is found by reading its file up to it. Whoever goes on from there reads on; only who goes back reads again.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from agentv.errors import EvalFileError
from agentv.records import EvalCase
from agentv.run.plan import Plan, PlannedFile

MOST_READERS = 4
"""How many places in a file are kept open: cases that are sent again are not where the others are."""


class RunOfCase(NamedTuple):
    """One of the runs that a plan asks for."""

    file: PlannedFile
    case: EvalCase
    trial: int


class Numbering:
    """The runs of a plan, from 0 to `total`: file by file, case by case, all trials of a case in a row."""

    def __init__(self, plan: Plan, trials: int):
        self._plan, self._trials = plan, trials
        self._ends = [*accumulate(file.cases * trials for file in plan.files)]
        self.total = self._ends[-1] if self._ends else 0
        self._readers: list[list[_Reader]] = [[] for _ in plan.files]

    def find(self, number: int) -> RunOfCase:
        """Return the run of this number; raise `AgentvError` if its file has changed since it was planned."""
        at = bisect_right(self._ends, number)
        first = self._ends[at - 1] if at else 0
        position, trial = divmod(number - first, self._trials)
        file, readers = self._plan.files[at], self._readers[at]
        reader = max((reader for reader in readers if reader.position <= position), key=_position, default=None)
        if reader is None:
            if len(readers) == MOST_READERS:
                readers.remove(max(readers, key=_position))
            reader = _Reader(self._plan.cases_of(file))
            readers.append(reader)
        case = reader.read(position)
        if case is None:
            raise EvalFileError("has fewer cases than when the run was planned", file=file.path, hint="run it again")
        return RunOfCase(file, case, trial + 1)

    def all(self) -> Iterator[tuple[int, EvalCase, int]]:
        """Yield each number with its case and trial."""
        number = 0
        for file in self._plan.files:
            for case in self._plan.cases_of(file):
                for trial in range(1, self._trials + 1):
                    yield number, case, trial
                    number += 1


class _Reader:
    """Reads on in a file; the case that was read last is kept for its other trials."""

    def __init__(self, cases: Iterator[EvalCase]):
        self._cases, self._last = cases, next(cases, None)
        self.position = 0

    def read(self, position: int) -> EvalCase | None:
        while self.position < position:
            self._last = next(self._cases, None)
            self.position += 1
        return self._last


def _position(reader: _Reader) -> int:
    return reader.position
