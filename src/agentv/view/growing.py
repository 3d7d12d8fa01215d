"""A results file that may still grow -> its index, read a piece at a time when somebody asks.

Nothing is read ahead, and no thread works on its own: each request for the index reads a bounded piece of the file, and
the browser asks again as long as there is more. So a file of a gigabyte answers as fast as one of a kilobyte, and a run
in progress is nothing but a file that is never quite read. The index goes to a temporary file, in chunks of columns,
and two numbers are held for each chunk. The results stay where they are, and are read again by byte range.
"""

import io
import os
import struct
import tempfile
import threading
import time
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from agentv.errors import AgentvError
from agentv.records import Problem
from agentv.report.page.figures import Totals
from agentv.report.page.index import ResultColumns, ResultNames, column_bytes, snippet_of
from agentv.report.page.masking import few_escapes, has_secrets, masked_json
from agentv.results.formats import DECODE_ERRORS, JSONL, YAML, ResultFormat, format_for, sniff
from agentv.results.read import TORN_HINT, explain_line
from agentv.results.views import PageView

PIECE_BYTES = {JSONL.name: 256 * 1024, YAML.name: 32 * 1024}
STEP_BYTES = 8 << 20
STEP_SECONDS = 0.12
"""A request reads at most so much before it is answered."""
CHUNK_BYTES = 256 * 1024
"""A chunk is closed when it covers so many bytes of the file: the browser fetches a whole one to show one case."""
ANSWER_BYTES = 4 << 20
SHOWN_PROBLEMS = 5
_TAIL = 64
_START = 4096
_BOM = b"\xef\xbb\xbf"
_HEAD = struct.Struct("<IIII")
_MAX_GENERATION = 10**9
_HASH_BITS = (1 << 64) - 1


class Changed(Exception):
    """The file is not what it was when it was read: replaced, cut off, or gone."""


class Entry(NamedTuple):
    """What stands at a place of a file: a result, or what is wrong with it. Neither, for an empty line."""

    size: int
    view: PageView | None = None
    json: bytes = b""
    error: Exception | None = None
    raw: bytes = b""


class _Chunk:
    """Results that stand one after the other in the file."""

    def __init__(self, names: ResultNames, start: int):
        self.start = self.end = start
        self.columns = ResultColumns(names)
        self._keys, self._lengths, self._ids = array("Q"), array("I"), bytearray()

    def add(self, view: PageView) -> None:
        self._keys.append(hash(view.eval_id) & _HASH_BITS)
        self._ids += view.eval_id.encode("utf-8", "replace")
        self._lengths.append(len(view.eval_id.encode("utf-16-le", "replace")) // 2)
        self.columns.add_result(view)

    def encode(self) -> bytes:
        """Return the columns as the browser reads them, after how many entries they have."""
        parts = [column_bytes(self._keys), column_bytes(self._lengths), bytes(self._ids)]
        parts += [data for _, data in self.columns.columns()]
        body = b"".join(parts)
        head = _HEAD.pack(len(self.columns), len(self.columns.evaluator_flags), len(self._ids), len(body))
        return head + body


class GrowingIndex:
    """The index of one results file. All of its methods may be called by any thread."""

    def __init__(self, path: Path):
        self.path = path
        self.lock = threading.Lock()
        self.generation = 0
        """Tells one content of the file from another; it begins with a number of the file's own."""
        self._identity: tuple[int, int] | None = None
        self._spool: IO[bytes] | None = None
        self._drop: weakref.finalize[..., GrowingIndex] | None = None
        self.size = 0
        self.change = ""
        self._restart()

    def _restart(self) -> None:
        self.close()
        self.generation += 1
        self._form: ResultFormat | None = None
        self.offset = self._lines = self.results = self.bad = 0
        self._tail = b""
        self.totals = Totals()
        self.names = ResultNames()
        self.problems: list[Problem] = []
        self.torn: Problem | None = None
        self._files, self._spools = array("Q"), array("Q", [0])
        self._open = _Chunk(self.names, 0)

    def close(self) -> None:
        """Drop the index."""
        if self._drop is not None:
            self._drop()
        self._spool = self._drop = None

    @property
    def index(self) -> ResultColumns:
        """The names of what was read; its columns are those of the chunk that is not closed."""
        return self._open.columns

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read."""
        return self.offset < self.size and self.torn is None

    # reading on

    def step(self, most: int = STEP_BYTES, seconds: float = STEP_SECONDS) -> None:
        """Read on, for so many bytes or seconds; raise `Changed` if the file is gone."""
        end = time.monotonic() + seconds
        try:
            with self.path.open("rb", buffering=0) as file:
                self._check(file)
                self.torn = None
                first = self.offset
                while self.offset < self.size and self.torn is None:
                    self._read_piece(file)
                    if self.offset - first >= most or time.monotonic() > end:
                        break
        except OSError as error:
            raise Changed(f"the results file cannot be read: {(error.strerror or str(error)).lower()}") from None

    def _check(self, file: io.FileIO) -> None:
        """Begin anew if the file is another, or has other content where it was read already."""
        found = os.fstat(file.fileno())
        identity, self.size = (found.st_dev, found.st_ino), found.st_size
        if self._identity is None:
            self.generation = found.st_ino % _MAX_GENERATION + 1
        elif not self._is_same(file, identity):
            self._restart()
        self._identity = identity

    def _is_same(self, file: io.FileIO, identity: tuple[int, int]) -> bool:
        if identity != self._identity:
            self.change = "replaced"
        elif self.size < self.offset:
            self.change = "cut off"
        elif self._tail and os.pread(file.fileno(), len(self._tail), self.offset - len(self._tail)) != self._tail:
            self.change = "written anew"
        else:
            return True
        return False

    def _read_piece(self, file: io.FileIO) -> None:
        if self._form is None:
            start = os.pread(file.fileno(), _START, 0)
            self._form = sniff(start) or format_for(self.path)
            if start.startswith(_BOM):
                self.offset = self._open.start = self._open.end = len(_BOM)
        piece = _whole_records(file, self.offset, PIECE_BYTES[self._form.name], self._form)
        has_secret = has_secrets(piece)
        for entry in read_entries(piece, self._form, masks=has_secret):
            if entry.error is not None and self._is_last(entry):
                self.torn = Problem(
                    message=f"the last {self._form.record} is cut off: it is left out",
                    severity="warning",
                    hint=TORN_HINT,
                )
                break
            self._add(entry)
        if self.offset > 0:
            length = min(_TAIL, self.offset)
            self._tail = os.pread(file.fileno(), length, self.offset - length)

    def _is_last(self, entry: Entry) -> bool:
        """Whether a record that cannot be read is one that is not written to its end."""
        at_end = self.offset + entry.size >= self.size
        return at_end and not entry.raw.endswith(b"\n" if self._form is JSONL else YAML.end)

    def _add(self, entry: Entry) -> None:
        self.offset += entry.size
        self._lines += 1
        self._open.end = self.offset
        if entry.view is not None:
            self._open.add(entry.view)
            self.totals.add(entry.view)
            self.results += 1
        elif entry.error is not None:
            self.bad += 1
            if len(self.problems) < SHOWN_PROBLEMS:
                self.problems += _explain(entry, self.path, self._lines, self._form)
        if self._open.end - self._open.start >= CHUNK_BYTES:
            self._close_chunk()

    def _close_chunk(self) -> None:
        if self._spool is None:
            self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the index
            self._drop = weakref.finalize(self, self._spool.close)
        self._spool.write(self._open.encode())
        self._spool.flush()
        self._files.append(self._open.start)
        self._spools.append(self._spool.tell())
        self._open = _Chunk(self.names, self._open.end)

    # what was read

    @property
    def closed(self) -> int:
        """How many chunks will not change any more; one more may be there, which grows."""
        return len(self._files)

    def chunks(self, first: int) -> tuple[int, bytes]:
        """Return some chunks from number `first` on, and how many; the last may be one that still grows."""
        last = first
        parts = []
        if self._spool is not None and first < self.closed:
            while last < self.closed and (last == first or self._spools[last + 1] - self._spools[first] < ANSWER_BYTES):
                last += 1
            start, end = self._spools[first], self._spools[last]
            parts.append(os.pread(self._spool.fileno(), end - start, start))
        if last == self.closed and len(self._open.columns):
            parts.append(self._open.encode())
            last += 1
        return last - first, b"".join(parts)

    def entries(self, chunk: int, generation: int) -> Iterator[Entry]:
        """Yield the results of a chunk, read from the file; raise `Changed` if it is not there any more."""
        with self.lock:
            if generation != self.generation or not 0 <= chunk <= self.closed or self._form is None:
                raise Changed("the results file was replaced")
            start = self._open.start if chunk == self.closed else self._files[chunk]
            end = self._files[chunk + 1] if chunk + 1 < self.closed else self._open.start
            end = self._open.end if chunk == self.closed else end
            form, identity = self._form, self._identity
        try:
            with self.path.open("rb", buffering=0) as file:
                found = os.fstat(file.fileno())
                if (found.st_dev, found.st_ino) != identity or found.st_size < end:
                    raise Changed("the results file was replaced or cut off")
                piece = _read_range(file, start, end)
        except OSError as error:
            raise Changed(f"the results file cannot be read: {(error.strerror or str(error)).lower()}") from None
        yield from (entry for entry in read_entries(piece, form, masks=has_secrets(piece)) if entry.view is not None)


def result_lines(entries: Iterator[Entry]) -> bytes:
    """Return the results as JSON, one on each line."""
    return b"\n".join(few_escapes(entry.json) for entry in entries)


def snippet_lines(entries: Iterator[Entry]) -> bytes:
    """Return one line of each answer."""
    return b"\n".join(snippet_of(entry.view).encode("utf-8", "replace") for entry in entries if entry.view)


def read_entries(piece: bytes, form: ResultFormat, *, masks: bool) -> Iterator[Entry]:
    """Yield what stands in a piece of a file, one record after the other."""
    decode = msgspec.json.Decoder(PageView).decode
    to_json = _json_of if form is YAML else None
    lines = piece.splitlines(keepends=True) if form is YAML else _lines(piece)
    for raw in form.split(lines):
        if not raw.strip():
            yield Entry(len(raw))
            continue
        try:
            if to_json is not None and form.is_torn(raw):  # a part of a document may be a document, too
                raise ValueError("cut off")
            json = raw if to_json is None else to_json(raw)
            if json == b"null":
                yield Entry(len(raw))
                continue
            view = decode(json)
            if masks:
                json = masked_json(json)
                view = decode(json)
        except (*DECODE_ERRORS, AgentvError, ValueError) as error:
            yield Entry(len(raw), error=error, raw=raw)
        else:
            yield Entry(len(raw), view, json)


def _lines(piece: bytes) -> Iterator[bytes]:
    """Yield the lines; only a line feed ends one."""
    return iter(io.BytesIO(piece))


def _json_of(raw: bytes) -> bytes:
    value: Any = YAML.decoder(object)(raw)
    return msgspec.json.encode(value, enc_hook=str)


def _explain(entry: Entry, path: Path, number: int, form: ResultFormat | None) -> list[Problem]:
    assert entry.error is not None
    if form is YAML:
        return [Problem(message=f"document {number} is no result of agentv", file=path)]
    return explain_line(entry.raw, entry.error, path, number, PageView)[:1]


def _whole_records(file: io.FileIO, start: int, size: int, form: ResultFormat) -> bytes:
    """Return bytes from `start` on: about `size`, up to the end of a record, or of the file."""
    piece = _read_range(file, start, start + size)
    step = size
    while len(piece) and not _cut(piece, form):
        more = _read_range(file, start + len(piece), start + len(piece) + step)
        if not more:
            return piece  # the end of the file
        piece += more
        step *= 2
    return piece[: _cut(piece, form)]


def _cut(piece: bytes, form: ResultFormat) -> int:
    """Return where the last whole record of a piece ends, 0 if none does."""
    if form is JSONL:
        return piece.rfind(b"\n") + 1
    closed = piece.rfind(YAML.end)
    following = piece.rfind(b"\n---")
    return max(closed + len(YAML.end) if closed >= 0 else 0, following + 1)


def _read_range(file: io.FileIO, start: int, end: int) -> bytes:
    parts = []
    while start < end and (part := os.pread(file.fileno(), min(end - start, 1 << 24), start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
