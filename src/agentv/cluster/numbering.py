"""Numbers for the case runs of a plan, which are the same on every machine and are sent instead of cases.

A case is found by reading its file up to it. Reading continues from the previous case; only a request for an earlier
case starts again at the beginning of the file.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from agentv.errors import EvalFileError
from agentv.records import EvalCase
from agentv.run.planning.plan import Plan, PlannedFile

MAX_READERS = 4
"""How many readers are kept per file: cases that are sent again are at other positions than the rest."""


class CaseRun(NamedTuple):
    """One trial of a case."""

    file: PlannedFile
    case: EvalCase
    trial: int


class Numbering:
    """The case runs of a plan, from 0 to `total`: file by file, case by case, all trials of a case in a row."""

    def __init__(self, plan: Plan, trials: int):
        self._plan = plan
        self._trials = trials
        self._ends = list(accumulate(file.cases * trials for file in plan.files))
        """For each file, the number after its last one."""
        self.total = 0
        if self._ends:
            self.total = self._ends[-1]
        self._readers: list[list[_Reader]] = [[] for _ in plan.files]

    def find(self, number: int) -> CaseRun:
        """Return the case run with this number; raise `AgentvError` if its file has changed since planning."""
        index = bisect_right(self._ends, number)
        first = 0
        if index > 0:
            first = self._ends[index - 1]
        position, trial = divmod(number - first, self._trials)
        file = self._plan.files[index]
        reader = self._reader(index, position)
        case = reader.read(position)
        if case is None:
            raise EvalFileError(
                "has fewer cases than when the run was planned",
                file=file.path,
                hint="re-run the eval",
            )
        return CaseRun(file, case, trial + 1)

    def _reader(self, index: int, position: int) -> "_Reader":
        """Return the reader of a file that is closest before a position; open one if all are behind it."""
        readers = self._readers[index]
        candidates = [reader for reader in readers if reader.position <= position]
        if candidates:
            return max(candidates, key=_position)
        if len(readers) == MAX_READERS:
            last = max(readers, key=_position)
            readers.remove(last)
        file = self._plan.files[index]
        reader = _Reader(self._plan.cases_of(file))
        readers.append(reader)
        return reader

    def all(self) -> Iterator[tuple[int, EvalCase, int]]:
        """Yield each number with its case and trial."""
        number = 0
        for file in self._plan.files:
            for case in self._plan.cases_of(file):
                for trial in range(1, self._trials + 1):
                    yield number, case, trial
                    number += 1


class _Reader:
    """Reads the cases of a file in order. Keeps the last case for its other trials."""

    def __init__(self, cases: Iterator[EvalCase]):
        self._cases = cases
        self._last = next(cases, None)
        self.position = 0

    def read(self, position: int) -> EvalCase | None:
        """Return the case at a position, which is not before the current one; None if the file is shorter."""
        while self.position < position:
            self._last = next(self._cases, None)
            self.position += 1
        return self._last


def _position(reader: _Reader) -> int:
    return reader.position
