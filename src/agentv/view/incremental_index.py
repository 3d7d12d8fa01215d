"""The index of a results file that may still grow, built a piece at a time on request.

Nothing is read ahead, and there is no background thread: each request for the index reads a bounded piece of the file,
and the browser repeats the request as long as there is more. So the first answer takes as long for a gigabyte as for a
kilobyte, and a run in progress is just a file that has not been read to its end. The index is stored in a temporary
file, in chunks of columns, with two numbers per chunk in memory. Results are not copied: they are read again by byte
range.
"""

import os
import tempfile
import threading
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from agentv.report.page.figures import RunFigures, Totals, run_figures
from agentv.report.page.index import ResultColumns, ResultNames, fields_of, snippet_of
from agentv.report.page.masking import few_escapes, has_secrets
from agentv.report.page.sums import case_sums
from agentv.results.formats import ResultFormat
from agentv.view.chunk import ChunkReader, IndexChunk
from agentv.view.incremental_reader import (
    Entry,
    FileChanged,
    FileIdentity,
    IncrementalReader,
    read_entries,
    read_range,
    unreadable_file,
)

CHUNK_BYTES = 256 * 1024
"""A chunk is closed when it covers this many bytes of the file. The browser fetches a whole chunk to show one case."""
ANSWER_BYTES = 4 << 20
"""The size after which an answer with chunks ends."""


class ChunkAnswer(NamedTuple):
    """Consecutive chunks as the browser reads them, and how many they are."""

    chunks: int
    data: bytes


class IncrementalIndex(IncrementalReader):
    """The index of one results file. All methods can be called from any thread that holds the lock."""

    masks = True

    def __init__(self, path: Path):
        self.lock = threading.Lock()
        self._spool: IO[bytes] | None = None
        """The temporary file with the closed chunks."""
        self._close_spool: weakref.finalize[..., IncrementalIndex] | None = None
        super().__init__(path)

    def _restart(self) -> None:
        super()._restart()
        self.close()
        self.totals = Totals()
        self.names = ResultNames()
        self._starts = array("Q")
        """Where each closed chunk starts in the results file."""
        self._spool_ends = array("Q", [0])
        """Where each closed chunk ends in the temporary file, after an initial 0."""
        self._open = IndexChunk(self.names, 0)

    def close(self) -> None:
        """Discard the temporary file of the index."""
        if self._close_spool is not None:
            self._close_spool()
        self._spool = None
        self._close_spool = None

    @property
    def index(self) -> ResultColumns:
        """The columns of the open chunk, with the names of all chunks."""
        return self._open.columns

    # Building the index

    def _detect_format(self, descriptor: int) -> ResultFormat:
        form = super()._detect_format(descriptor)
        # The first chunk starts after the byte order mark.
        self._open = IndexChunk(self.names, self.offset)
        return form

    def _add(self, entry: Entry) -> None:
        super()._add(entry)
        chunk = self._open
        if entry.view is not None:
            chunk.add(entry.view)
            self.totals.add(entry.view)
        chunk.end = self.offset
        if chunk.end - chunk.start >= CHUNK_BYTES:
            self._close_chunk()

    def _close_chunk(self) -> None:
        if self._spool is None:
            self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the index
            self._close_spool = weakref.finalize(self, self._spool.close)
        self._spool.write(self._open.encode())
        self._spool.flush()
        self._starts.append(self._open.start)
        self._spool_ends.append(self._spool.tell())
        self._open = IndexChunk(self.names, self._open.end)

    # Reading the index

    @property
    def closed(self) -> int:
        """The number of chunks that no longer change. There may be one more chunk, which still grows."""
        return len(self._starts)

    @property
    def chunk_count(self) -> int:
        """The number of chunks, with the one that still grows if it has results."""
        return self.closed + bool(len(self._open.columns))

    def chunks(self, first: int) -> ChunkAnswer:
        """Return some chunks, starting with number `first`. The last one may still grow."""
        last = first
        parts = []
        if first < self.closed:
            last = self._end_of_answer(first)
            parts.append(self._read_closed(first, last))
        if last == self.closed and len(self._open.columns):
            parts.append(self._open.encode())
            last += 1
        return ChunkAnswer(last - first, b"".join(parts))

    def _end_of_answer(self, first: int) -> int:
        """Return the number after the last closed chunk of an answer: one chunk, and more up to `ANSWER_BYTES`."""
        last = first + 1
        start = self._spool_ends[first]
        while last < self.closed and self._spool_ends[last + 1] - start < ANSWER_BYTES:
            last += 1
        return last

    def _read_closed(self, first: int, last: int) -> bytes:
        """Return the closed chunks from `first` to before `last`."""
        assert self._spool is not None
        start = self._spool_ends[first]
        end = self._spool_ends[last]
        return os.pread(self._spool.fileno(), end - start, start)

    def figures(self) -> RunFigures | None:
        """Return the figures of the results that were read; None if there are none.

        This takes memory for a few numbers per result until it returns.
        """
        if not self.results:
            return None
        reader = ChunkReader(self.names)
        for number in range(self.closed):
            reader.add(self._read_closed(number, number + 1))
        reader.add(self._open.encode())
        sums = case_sums(reader.columns, reader.cases)
        return run_figures(sums, self.totals, self.names)

    def entries(self, chunk: int, generation: int) -> Iterator[Entry]:
        """Yield the results of a chunk, read from the file; raise `FileChanged` if they no longer exist.

        Unlike the other methods, it acquires the lock itself.
        """
        with self.lock:
            is_known = generation == self.generation and 0 <= chunk <= self.closed
            if not is_known or self._form is None:
                raise FileChanged("the results file was replaced")
            start, end = self._byte_range(chunk)
            form = self._form
            identity = self._identity
        try:
            with self.path.open("rb", buffering=0) as file:
                descriptor = file.fileno()
                status = os.fstat(descriptor)
                is_same_file = FileIdentity(status.st_dev, status.st_ino) == identity
                if not is_same_file or status.st_size < end:
                    raise FileChanged("the results file was replaced or truncated")
                piece = read_range(descriptor, start, end)
        except OSError as error:
            raise unreadable_file(error) from None
        for entry in read_entries(piece, form, start, masks=has_secrets(piece)):
            if entry.view is not None:
                yield entry

    def _byte_range(self, chunk: int) -> tuple[int, int]:
        """Return where a chunk starts and ends in the results file."""
        if chunk == self.closed:
            return self._open.start, self._open.end
        if chunk + 1 == self.closed:
            return self._starts[chunk], self._open.start
        return self._starts[chunk], self._starts[chunk + 1]


def result_lines(entries: Iterator[Entry]) -> bytes:
    """Return the results as JSON, one per line."""
    return b"\n".join(few_escapes(entry.json) for entry in entries)


def snippet_lines(entries: Iterator[Entry]) -> bytes:
    """Return the first words of each answer, one per line."""
    lines = []
    for entry in entries:
        if entry.view:
            snippet = snippet_of(entry.view)
            lines.append(snippet.encode("utf-8", "replace"))
    return b"\n".join(lines)


def field_lines(entries: Iterator[Entry]) -> bytes:
    """Return the tags, metadata and variables of each result, one result per line."""
    return b"\n".join(fields_of(entry.view) for entry in entries if entry.view)
