"""Reads a results file that may still grow, a piece at a time, and collects its problems.

Everything in the viewer that reads results builds on this reader: the check of the named files, the index of a run,
the figures in the list of runs, and the answers of a review. So an invalid line means the same to all of them.
"""

import io
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.records import Problem
from agentv.report.page.masking import has_secrets, masked_json
from agentv.results.formats import DECODE_ERRORS, JSONL, YAML, ResultFormat, format_for, sniff
from agentv.results.read import MAX_PROBLEMS, SKIPPED, TRUNCATED_HINT, explain_record
from agentv.results.views import PageView

PIECE_BYTES = {
    JSONL.name: 256 * 1024,
    YAML.name: 32 * 1024,
}
"""How much of a file is read at a time. YAML is parsed much more slowly than JSON."""
STEP_BYTES = 8 << 20
"""The number of bytes after which a request stops reading and is answered."""
STEP_SECONDS = 0.12
"""The time after which a request stops reading and is answered."""
_TAIL_BYTES = 64
_START_BYTES = 4096
_READ_BYTES = 1 << 24
_BOM = b"\xef\xbb\xbf"
_MAX_GENERATION = 10**9
_DECODE = msgspec.json.Decoder(PageView).decode


class FileChanged(Exception):
    """The file has changed since it was read: it was replaced, truncated or removed."""


def unreadable_file(error: OSError) -> FileChanged:
    """Return the exception for a results file that cannot be read."""
    reason = error.strerror or str(error)
    return FileChanged(f"the results file cannot be read: {reason.lower()}")


class Entry(NamedTuple):
    """A record of a file: a result, an error, or neither for an empty line."""

    offset: int
    size: int
    view: PageView | None = None
    json: bytes = b""
    error: Exception | None = None
    raw: bytes = b""


class FileIdentity(NamedTuple):
    """Distinguishes files that had the same path at different times."""

    device: int
    inode: int


class FileProblems(NamedTuple):
    """Everything that is wrong with a file."""

    errors: list[Problem]
    truncated: Problem | None
    """The warning about a last record that is not completely written."""


class IncrementalReader:
    """Reads the results of one file. A subclass overrides `_add` to receive them, and `_restart` to discard them."""

    masks = False
    """Whether secrets in the results are masked."""

    def __init__(self, path: Path):
        self.path = path
        self.generation = 0
        """A number that changes when the file is replaced. It starts from the inode, so that two files differ."""
        self.size = 0
        self.change = ""
        """How the file changed when it was read again from the start; empty if it never was."""
        self._identity: FileIdentity | None = None
        self._restart()

    def _restart(self) -> None:
        """Discard everything that was read."""
        self.generation += 1
        self._form: ResultFormat | None = None
        self.offset = 0
        """Where reading continues."""
        self._line = 1
        """The number of the line at `offset`."""
        self.results = 0
        self.bad = 0
        """The number of invalid records."""
        self._errors: list[Problem] = []
        self.problems: list[Problem] = []
        """The first problem of each invalid record, for the first of these."""
        self.truncated: Problem | None = None
        """The problem of a truncated last record; None if the end is complete."""
        self._truncated_entry: Entry | None = None
        self._tail = b""
        """The last bytes before `offset`, to notice that the file was rewritten."""

    @property
    def is_behind(self) -> bool:
        """Whether there is more to read."""
        return self.offset < self.size and self.truncated is None

    def read_to_end(self, stop: threading.Event | None = None) -> None:
        """Read the rest of the file; return early if `stop` is set in the meantime. Raise `OSError` if that fails."""
        is_complete = False
        while not is_complete:
            if stop is not None and stop.is_set():
                return
            self._step(STEP_BYTES, STEP_SECONDS)
            is_complete = not self.is_behind

    def step(self, most: int = STEP_BYTES, seconds: float = STEP_SECONDS) -> None:
        """Read on for about `most` bytes or `seconds` seconds; raise `FileChanged` if the file no longer exists."""
        try:
            self._step(most, seconds)
        except OSError as error:
            raise unreadable_file(error) from None

    def _step(self, most: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self.path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            self._check_identity(descriptor)
            self.truncated = None
            self._truncated_entry = None
            first = self.offset
            while self.is_behind:
                self._read_piece(descriptor)
                has_read_enough = self.offset - first >= most
                if has_read_enough or time.monotonic() > end:
                    break

    def _check_identity(self, descriptor: int) -> None:
        """Restart if the file was replaced, or if the part that was already read has changed."""
        status = os.fstat(descriptor)
        self.size = status.st_size
        identity = FileIdentity(status.st_dev, status.st_ino)
        if self._identity is None:
            self.generation = status.st_ino % _MAX_GENERATION + 1
        else:
            change = self._find_change(descriptor, identity)
            if change:
                self.change = change
                self._restart()
        self._identity = identity

    def _find_change(self, descriptor: int, identity: FileIdentity) -> str:
        """Return how the file has changed; empty if it has only grown."""
        if identity != self._identity:
            return "replaced"
        if self.size < self.offset:
            return "truncated"
        length = len(self._tail)
        tail = os.pread(descriptor, length, self.offset - length)
        if tail != self._tail:
            return "rewritten"
        return ""

    def _read_piece(self, descriptor: int) -> None:
        if self._form is None:
            self._form = self._detect_format(descriptor)
        size = PIECE_BYTES[self._form.name]
        piece = _whole_records(descriptor, self.offset, size, self._form)
        # Searching the whole piece once is much faster than masking each record.
        masks = self.masks and has_secrets(piece)
        for entry in read_entries(piece, self._form, self.offset, masks=masks):
            if entry.error is not None and self._is_truncated(entry):
                self._truncated_entry = entry
                self.truncated = Problem(
                    message=f"the last {self._form.record} is truncated{SKIPPED}",
                    severity="warning",
                    hint=TRUNCATED_HINT,
                )
                break
            self._add(entry)
        if self.offset > 0:
            length = min(_TAIL_BYTES, self.offset)
            self._tail = os.pread(descriptor, length, self.offset - length)

    def _detect_format(self, descriptor: int) -> ResultFormat:
        """Return the format of the file, and skip a byte order mark."""
        start = os.pread(descriptor, _START_BYTES, 0)
        if start.startswith(_BOM):
            self.offset = len(_BOM)
        return sniff(start) or format_for(self.path)

    def _is_truncated(self, entry: Entry) -> bool:
        """Return whether an invalid record is the last one of the file, and not completely written."""
        if entry.offset + entry.size < self.size:
            return False
        if self._form is JSONL:
            return not entry.raw.endswith(b"\n")
        return not entry.raw.endswith(YAML.end)

    def _add(self, entry: Entry) -> None:
        """Count a record."""
        self.offset = entry.offset + entry.size
        if entry.view is not None:
            self.results += 1
        elif entry.error is not None:
            self._add_problems(entry)
        if self._form is YAML:
            self._line += entry.raw.count(b"\n")
        else:
            self._line += 1

    def _add_problems(self, entry: Entry) -> None:
        self.bad += 1
        if len(self._errors) > MAX_PROBLEMS:
            return
        found = self._explain(entry, is_last=False)
        self._errors += found
        self.problems += found[:1]

    def _explain(self, entry: Entry, *, is_last: bool) -> list[Problem]:
        """Return the problems of an invalid record at the current line."""
        assert self._form is not None and entry.error is not None
        return explain_record(
            entry.raw,
            entry.error,
            form=self._form,
            path=self.path,
            line=self._line,
            view=PageView,
            is_last=is_last,
        )

    def find_problems(self) -> FileProblems:
        """Return the problems of what was read, as other commands report them.

        An invalid last record that is not completely written is a warning only if nothing else explains it.
        """
        errors = list(self._errors)
        truncated = None
        if self._truncated_entry is not None:
            for problem in self._explain(self._truncated_entry, is_last=True):
                if problem.hint == TRUNCATED_HINT:
                    truncated = msgspec.structs.replace(
                        problem,
                        severity="warning",
                        message=f"{problem.message}{SKIPPED}",
                    )
                else:
                    errors.append(problem)
        return FileProblems(errors, truncated)


def read_entries(
    piece: bytes,
    form: ResultFormat,
    offset: int,
    *,
    masks: bool,
) -> Iterator[Entry]:
    """Yield the records in a piece of a file, which starts at `offset`. Secrets are masked if `masks` is true."""
    if form is YAML:
        lines: Iterable[bytes] = piece.splitlines(keepends=True)
    else:
        # Unlike `splitlines`, this does not split at a carriage return, which is white space in JSONL.
        lines = io.BytesIO(piece)
    for raw in form.split(lines):
        yield _read_entry(raw, form, offset, masks=masks)
        offset += len(raw)


def _read_entry(
    raw: bytes,
    form: ResultFormat,
    offset: int,
    *,
    masks: bool,
) -> Entry:
    size = len(raw)
    if not raw.strip():
        return Entry(offset, size, raw=raw)
    try:
        json = raw
        if form is YAML:
            json = _yaml_to_json(raw)
        if json == b"null":
            return Entry(offset, size, raw=raw)
        view = _DECODE(json)
        if masks:
            json = masked_json(json)
            view = _DECODE(json)
    except (*DECODE_ERRORS, ValueError) as error:
        return Entry(offset, size, error=error, raw=raw)
    return Entry(offset, size, view, json, raw=raw)


def _yaml_to_json(raw: bytes) -> bytes:
    """Return a YAML document as JSON; raise `ValueError` if it is truncated."""
    # The start of a YAML document can be a valid document.
    if YAML.is_truncated(raw):
        raise ValueError("truncated")
    value: Any = YAML.decoder(object)(raw)
    return msgspec.json.encode(value, enc_hook=str)


def _whole_records(
    descriptor: int,
    start: int,
    size: int,
    form: ResultFormat,
) -> bytes:
    """Return about `size` bytes from `start`, up to the end of a record or of the file."""
    piece = read_range(descriptor, start, start + size)
    step = size
    while len(piece) and not _end_of_records(piece, form):
        end = start + len(piece)
        more = read_range(descriptor, end, end + step)
        if not more:
            # The file ends with an incomplete record.
            return piece
        piece += more
        step *= 2
    return piece[: _end_of_records(piece, form)]


def _end_of_records(piece: bytes, form: ResultFormat) -> int:
    """Return where the last complete record of a piece ends; 0 if there is none."""
    if form is JSONL:
        return piece.rfind(b"\n") + 1
    end = 0
    closed = piece.rfind(YAML.end)
    if closed >= 0:
        end = closed + len(YAML.end)
    next_document = piece.rfind(b"\n---")
    return max(end, next_document + 1)


def read_range(
    descriptor: int,
    start: int,
    end: int,
) -> bytes:
    """Return the bytes of a range; fewer if the file ends before."""
    parts = []
    while start < end:
        size = min(end - start, _READ_BYTES)
        part = os.pread(descriptor, size, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)
