"""Build the columns of a page: the data of every result that its table, plots and filters need.

A row of the table is a case; all trials of a case belong to one row. All runs of a page share the rows. A column is an
array of numbers with a few bytes per result, which the browser reads without conversion.
"""

import math
import sys
from array import array
from collections.abc import Hashable, Iterator
from typing import Any

import msgspec

from agentv.records import ResultKey
from agentv.results.views import PageView

VERDICTS = {"fail": 0, "borderline": 1, "pass": 2}
PASS = VERDICTS["pass"]

# The bits in the flags of a result. The scripts of the page use the same numbers.
VERDICT = 3
"""The mask of the verdict."""
ERROR = 4
"""The case ended in an error."""
TIMEOUT = 8
"""The error was a timeout."""
UNJUDGED = 16
"""A judge failed."""
CUT_OFF = 32
"""The answer was cut off at the token limit."""
NOTED = 64
"""The result has a note."""
DRY_RUN = 128
"""A mock answered instead of the target."""
NOT_APPLICABLE = 8
"""In the flags of an evaluator's score: the evaluator does not apply to the case, and has no score."""
MACHINE = ERROR | UNJUDGED
"""The machine had reached a limit. The byte has no bit left, and no other result has both of these."""

SNIPPET = 160
"""The maximum number of characters of an answer in the table."""
MAX_UINT16 = 0xFFFF
MAX_FLOAT32 = 3e38
ALL_TRIALS = 0
"""The trial in the key of a row."""
Column = tuple[str, bytes]
"""The name and the bytes of a column."""


class Names(dict[str, int]):
    """Numbers for names, in order of first appearance."""

    def number(self, text: str) -> int:
        """Return the number of a name. A new name gets the next number."""
        return self.setdefault(text, len(self))


def row_key(view: PageView) -> ResultKey:
    """Return the key of a result's row, which all trials of a case on a target share."""
    return ResultKey(
        view.dataset,
        view.eval_id,
        view.target,
        ALL_TRIALS,
    )


class Rows:
    """The rows of a page, in order of first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._ids = bytearray()
        self._lengths = array("I")

    def number(self, key: Hashable, eval_id: str) -> int:
        """Return the row of a case. `key` identifies the case; only its hash is kept."""
        next_number = len(self._lengths)
        number = self._numbers.setdefault(hash(key), next_number)
        if number == next_number:
            self._ids += eval_id.encode("utf-8", "replace")
            # JavaScript counts the length of strings in UTF-16 code units.
            utf16 = eval_id.encode("utf-16-le", "replace")
            length = len(utf16) // 2
            self._lengths.append(length)
        return number

    def __len__(self) -> int:
        return len(self._lengths)

    def hashes(self) -> list[int]:
        """Return the hash of the key of each row."""
        return list(self._numbers)

    def columns(self) -> Iterator[Column]:
        """Yield two columns: all ids as one text, and their lengths in UTF-16."""
        yield "ids", bytes(self._ids)
        yield "id-lengths", column_bytes(self._lengths)


class ResultNames:
    """Numbers for the names in results."""

    def __init__(self) -> None:
        self.datasets = Names()
        self.targets = Names()
        self.evaluators = Names()


class ResultColumns:
    """Columns with one entry per result or, if named after evaluators, one entry per evaluator score."""

    def __init__(self, names: ResultNames | None = None) -> None:
        if names is None:
            names = ResultNames()
        self.names = names
        self.scores = array("d")
        self.flags = bytearray()
        # Filters compare these numbers exactly, as commands do, so they have 64 bits.
        self.durations = array("d")
        self.costs = array("d")
        self.trials = array("H")
        self.datasets = array("I")
        self.targets = array("I")
        self.evaluator_counts = array("H")
        """The number of evaluator scores of each result."""
        self.evaluator_names = array("I")
        self.evaluator_scores = array("d")
        self.evaluator_flags = bytearray()

    def __len__(self) -> int:
        return len(self.flags)

    def add_result(self, view: PageView) -> None:
        """Add a result."""
        names = self.names
        duration = math.nan
        cost = math.nan
        metrics = view.execution_metrics
        if metrics is not None:
            duration = _number_or_nan(metrics.duration_ms)
            cost = _number_or_nan(metrics.cost_usd)
        flags = flags_of(view)
        trial = view.trial or 0
        dataset = names.datasets.number(view.dataset)
        target = names.targets.number(view.target)
        self.scores.append(view.score)
        self.flags.append(flags)
        self.durations.append(duration)
        self.costs.append(cost)
        self.trials.append(min(trial, MAX_UINT16))
        self.datasets.append(dataset)
        self.targets.append(target)
        evaluator_results = view.evaluator_results or ()
        if is_machine_failure(flags):
            evaluator_results = ()  # no figure includes them
        parts = 0
        for part in evaluator_results:
            if parts == MAX_UINT16:
                break
            parts += 1
            name = names.evaluators.number(part.name)
            self.evaluator_names.append(name)
            if part.score is None:
                self.evaluator_scores.append(math.nan)
                self.evaluator_flags.append(NOT_APPLICABLE)
                continue
            flags = VERDICTS[part.verdict]
            if part.failed:
                flags |= UNJUDGED
            self.evaluator_scores.append(part.score)
            self.evaluator_flags.append(flags)
        self.evaluator_counts.append(parts)

    def columns(self) -> Iterator[Column]:
        """Yield all columns."""
        yield "scores", column_bytes(self.scores)
        yield "flags", bytes(self.flags)
        yield "durations", column_bytes(self.durations)
        yield "costs", column_bytes(self.costs)
        yield "trials", column_bytes(self.trials)
        yield "datasets", column_bytes(self.datasets)
        yield "targets", column_bytes(self.targets)
        yield "evaluator-counts", column_bytes(self.evaluator_counts)
        yield "evaluator-names", column_bytes(self.evaluator_names)
        yield "evaluator-scores", column_bytes(self.evaluator_scores)
        yield "evaluator-flags", bytes(self.evaluator_flags)


class RunIndex(ResultColumns):
    """The columns of one run of a page, with the row of each result."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = array("I")

    def add(self, row: int, view: PageView) -> None:
        """Add a result of the case in this row."""
        self.rows.append(row)
        self.add_result(view)

    def columns(self) -> Iterator[Column]:
        yield "rows", column_bytes(self.rows)
        yield from super().columns()


def flags_of(view: PageView) -> int:
    """Return the flags of a result."""
    flags = VERDICTS[view.verdict]
    if view.failure == "machine":
        flags |= MACHINE
    elif view.error is not None:
        flags |= ERROR
        if view.failure == "timeout":
            flags |= TIMEOUT
    elif view.failure is not None:
        flags |= UNJUDGED
    if view.stop_reason == "length":
        flags |= CUT_OFF
    if view.note:
        flags |= NOTED
    if view.dry_run:
        flags |= DRY_RUN
    return flags


def is_machine_failure(flags: int) -> bool:
    """Return whether a result with these flags is a machine failure, which no mean, share or rate includes."""
    return (flags & MACHINE) == MACHINE


def has_passed(flags: int) -> bool:
    """Return whether a result with these flags passed."""
    if flags & ERROR:
        return False
    return (flags & VERDICT) == PASS


def column_bytes(column: "array[int] | array[float]") -> bytes:
    """Return the numbers of a column in the byte order of browsers, which is little-endian."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _number_or_nan(value: float | None) -> float:
    """Return the number, or NaN if it is unknown or too large to be drawn."""
    if value is None:
        return math.nan
    if not math.isfinite(value):
        return math.nan
    if abs(value) > MAX_FLOAT32:
        return math.nan
    return value


def fields_of(view: PageView) -> bytes:
    """Return the tags, metadata and variables of a result as JSON for filters, or nothing if it has none."""
    fields: dict[str, Any] = {}
    if view.tags:
        fields["tag"] = view.tags
    if view.metadata:
        fields["metadata"] = view.metadata
    if view.vars:
        fields["vars"] = view.vars
    if not fields:
        return b""
    return msgspec.json.encode(fields)


def snippet_of(view: PageView) -> str:
    """Return the error or the start of the answer in one line, for the table."""
    text = view.candidate_answer or ""
    if view.error is not None:
        text = str(view.error)
    # Runs of spaces become one space, so a start of twice the length usually suffices.
    start = text[: SNIPPET * 2]
    words = start.split()
    line = " ".join(words)
    return line[:SNIPPET]
