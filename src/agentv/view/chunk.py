"""A chunk of the index of a results file: columns with the data of consecutive results, in the form that pages read."""

import struct
import sys
from array import array
from typing import NamedTuple

from agentv.report.page.index import ResultColumns, ResultNames, RunIndex, column_bytes
from agentv.results.views import PageView

HEAD = struct.Struct("<IIII")
"""The numbers of results and of evaluator scores, the size of the ids, and the size of everything after the head."""
_HASH_BITS = (1 << 64) - 1
_PER_EVALUATOR = ("evaluator-names", "evaluator-scores", "evaluator-flags")
"""The columns with one entry per evaluator score. The others have one entry per result."""


def id_key(eval_id: str) -> int:
    """Return the number that identifies an id in browsers."""
    return hash(eval_id) & _HASH_BITS


class IndexChunk:
    """The columns of consecutive results in the file, from the byte `start` to `end`."""

    def __init__(self, names: ResultNames, start: int):
        self.start = start
        self.end = start
        self.columns = ResultColumns(names)
        self._keys = array("Q")
        self._lengths = array("I")
        self._ids = bytearray()

    def add(self, view: PageView) -> None:
        eval_id = view.eval_id
        self._keys.append(id_key(eval_id))
        self._ids += eval_id.encode("utf-8", "replace")
        # JavaScript measures strings in UTF-16 code units.
        self._lengths.append(len(eval_id.encode("utf-16-le", "replace")) // 2)
        self.columns.add_result(view)

    def encode(self) -> bytes:
        """Return the chunk as the browser reads it: a head with sizes, then the columns."""
        parts = [
            column_bytes(self._keys),
            column_bytes(self._lengths),
            bytes(self._ids),
        ]
        for _, data in self.columns.columns():
            parts.append(data)
        body = b"".join(parts)
        head = HEAD.pack(
            len(self.columns),
            len(self.columns.evaluator_flags),
            len(self._ids),
            len(body),
        )
        return head + body


class CaseKey(NamedTuple):
    """Identifies a case of a run: the hash of its id, and the numbers of its dataset and target."""

    eval_id: int
    dataset: int
    target: int


class ChunkReader:
    """Joins encoded chunks to the columns of a whole run, and numbers its cases."""

    def __init__(self, names: ResultNames):
        self.columns = RunIndex()
        self.columns.names = names
        self._cases: dict[int, int] = {}

    @property
    def cases(self) -> int:
        """The number of cases."""
        return len(self._cases)

    def add(self, data: bytes) -> None:
        """Add all chunks in the data."""
        start = 0
        while start < len(data):
            start = self._add_chunk(data, start)

    def _add_chunk(self, data: bytes, start: int) -> int:
        """Add the chunk at a position, and return where it ends."""
        results: int
        scores: int
        id_bytes: int
        body_bytes: int
        results, scores, id_bytes, body_bytes = HEAD.unpack_from(data, start)
        first = len(self.columns)
        keys = array("Q")
        at = start + HEAD.size
        at = _append_column(keys, data, at, results)
        at += results * array("I").itemsize + id_bytes
        for name, _ in ResultColumns().columns():
            column = getattr(self.columns, name.replace("-", "_"))
            count = results
            if name in _PER_EVALUATOR:
                count = scores
            at = _append_column(column, data, at, count)
        self._add_rows(keys, first)
        return start + HEAD.size + body_bytes

    def _add_rows(self, keys: "array[int]", first: int) -> None:
        """Number the cases of the results from `first` on."""
        columns = self.columns
        cases = self._cases
        for place, key in enumerate(keys, first):
            case = CaseKey(key, columns.datasets[place], columns.targets[place])
            # Only the hash is kept, to save memory.
            row = cases.setdefault(hash(case), len(cases))
            columns.rows.append(row)


def _append_column(
    column: "array[int] | array[float] | bytearray",
    data: bytes,
    start: int,
    count: int,
) -> int:
    """Append `count` numbers to a column, which are at a position of the data. Return where they end."""
    if isinstance(column, bytearray):
        end = start + count
        column += data[start:end]
        return end
    end = start + count * column.itemsize
    numbers: array[int] | array[float] = array(column.typecode, data[start:end])
    if sys.byteorder == "big":
        numbers.byteswap()
    column.extend(numbers)  # type: ignore[arg-type]  # both have the same type code
    return end
