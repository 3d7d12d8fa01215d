"""Results -> the columns of a page: what its table, its plots and its filters need of every result.

A row of the table is a case; the trials of a case are results of one row. All runs of a page share the rows. A column
is an array of numbers, a few bytes for each result, which the browser reads as it is.
"""

import math
import sys
from array import array
from collections.abc import Hashable, Iterator

from agentv.results.views import PageView
from agentv.scoring import verdict_of

VERDICTS = {"fail": 0, "borderline": 1, "pass": 2}
PASS = VERDICTS["pass"]
VERDICT, ERROR, TIMEOUT, UNJUDGED, CUT_OFF, NOTED, DRY_RUN = 3, 4, 8, 16, 32, 64, 128
"""Bits of a result: its verdict, and whether it ended in an error, because of a timeout, a judge failed, the answer
was cut off, it has a note, nobody was asked."""
SNIPPET = 160
"""Characters of an answer that the table shows."""


class Names(dict[str, int]):
    """Numbers for texts, in the order in which they come."""

    def number(self, text: str) -> int:
        return self.setdefault(text, len(self))


class Rows:
    """The rows of a page, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._ids = bytearray()
        self._lengths = array("I")

    def number(self, key: Hashable, eval_id: str) -> int:
        """Return the row of a case; `key` is what tells it from the others, of which a hash is kept."""
        found = self._numbers.setdefault(hash(key), len(self._lengths))
        if found == len(self._lengths):
            self._ids += eval_id.encode("utf-8", "replace")
            self._lengths.append(len(eval_id.encode("utf-16-le", "replace")) // 2)
        return found

    def __len__(self) -> int:
        return len(self._lengths)

    def hashes(self) -> list[int]:
        """Return the hash of the key of each row."""
        return list(self._numbers)

    def columns(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the bytes of each column: all ids as one text, and how long each is in UTF-16."""
        yield "ids", bytes(self._ids)
        yield "id-lengths", column_bytes(self._lengths)


class ResultNames:
    """Numbers for the names that results have."""

    def __init__(self) -> None:
        self.datasets, self.targets, self.evaluators = Names(), Names(), Names()


class ResultColumns:
    """Columns with an entry for each result, or for each score of an evaluator."""

    def __init__(self, names: ResultNames | None = None) -> None:
        self.names = names or ResultNames()
        self.scores = array("d")
        self.flags = bytearray()
        self.durations, self.costs = array("f"), array("f")
        self.trials = array("H")
        self.datasets, self.targets = array("I"), array("I")
        self.evaluator_counts = array("H")
        self.evaluator_names, self.evaluator_scores = array("I"), array("f")
        self.evaluator_flags = bytearray()

    def __len__(self) -> int:
        return len(self.flags)

    def add_result(self, view: PageView) -> None:
        """Add a result."""
        metrics, names = view.execution_metrics, self.names
        self.scores.append(view.score)
        self.flags.append(flags_of(view))
        self.durations.append(_number(metrics.duration_ms if metrics else None))
        self.costs.append(_number(metrics.cost_usd if metrics else None))
        self.trials.append(min(view.trial or 0, 0xFFFF))
        self.datasets.append(names.datasets.number(view.dataset))
        self.targets.append(names.targets.number(view.target))
        parts = (view.evaluator_results or ())[:0xFFFF]
        self.evaluator_counts.append(len(parts))
        for part in parts:
            self.evaluator_names.append(names.evaluators.number(part.name))
            self.evaluator_scores.append(part.score)
            verdict = VERDICTS.get(part.verdict or "", VERDICTS[verdict_of(part.score)])
            self.evaluator_flags.append(verdict | (UNJUDGED if part.failed else 0))

    def columns(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the bytes of each column."""
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
        """Add a result of the case of this row."""
        self.rows.append(row)
        self.add_result(view)

    def columns(self) -> Iterator[tuple[str, bytes]]:
        yield "rows", column_bytes(self.rows)
        yield from super().columns()


def flags_of(view: PageView) -> int:
    """Return the bits of a result."""
    flags = VERDICTS.get(view.verdict or "", VERDICTS[verdict_of(view.score)])
    if view.error is not None:
        flags |= ERROR | (TIMEOUT if view.failure == "timeout" else 0)
    elif view.failure is not None:
        flags |= UNJUDGED
    if view.stop_reason == "length":
        flags |= CUT_OFF
    return flags | (NOTED if view.note else 0) | (DRY_RUN if view.dry_run else 0)


def has_passed(flags: int) -> bool:
    """Whether the flags of a result say that it passed."""
    return flags & VERDICT == PASS and not flags & ERROR


def column_bytes(column: "array[int] | array[float]") -> bytes:
    """Return the numbers as browsers read them: little-endian."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _number(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) or abs(value) > 3e38 else value


def snippet_of(view: PageView) -> str:
    """Return one line of what came back, on which the table has the answer."""
    text = str(view.error) if view.error is not None else view.candidate_answer or ""
    return " ".join(text[: SNIPPET * 2].split())[:SNIPPET]
