"""The JSONL output of a batch command, indexed by the ids of the requests.

The file is read twice: once as a stream, to find all problems before any answer is used, and once record by record, as
answers are needed. Only the offset of each record is kept in memory.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentv.errors import AgentvError, ProviderError
from agentv.files.compact_sets import HashIndex, HashSet
from agentv.files.jsonl import BLOCK_BYTES, MAX_LINE_BYTES, explain_json_error, line_blocks
from agentv.files.wire import response_from
from agentv.files.yaml import open_regular, read_error
from agentv.records import ProviderResponse
from agentv.redact import clean
from agentv.text import plural, truncate

MAX_EXCERPT = 80
MAX_UNKNOWN = 3
"""How many unknown ids a message shows."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class OtherLines:
    """The lines of an output file that answer no request. They may explain why records are missing."""

    unknown: int = 0
    """The number of records with an id that was not requested."""
    unknown_ids: list[str] = field(default_factory=list)
    """The first of these ids."""
    unreadable: int = 0
    """The number of lines without JSON or without an id."""
    first_error: str = ""
    """The problem of the first of these lines."""

    def add_unknown(self, id_: str) -> None:
        self.unknown += 1
        if len(self.unknown_ids) < MAX_UNKNOWN:
            self.unknown_ids.append(id_)

    def add_unreadable(self, error: "_LineError") -> None:
        if not self.unreadable:
            self.first_error = error.detail
        self.unreadable += 1

    @property
    def text(self) -> str:
        """The end of a message about missing records; empty without other lines."""
        parts = [""]
        if self.unreadable:
            parts.append(f"{self.unreadable} of its lines cannot be read ({self.first_error})")
        if self.unknown:
            records = plural(self.unknown, "record with another id", "records with other ids")
            names = ", ".join(repr(_shorten(id_)) for id_ in self.unknown_ids)
            more = self.unknown - len(self.unknown_ids)
            if more:
                names += f" and {more} more"
            parts.append(f"it has {records}: {names}")
        return "; ".join(parts)


@dataclass(eq=False)
class BatchOutput:
    """The records of an output file, by the ids of the requests that they answer."""

    _file: BinaryIO
    _offsets: HashIndex
    _duplicates: set[str] = field(default_factory=set)
    """The ids with more than one record, if these do not fail the batch."""
    others: OtherLines = field(default_factory=OtherLines)

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, eval_id: str) -> bool:
        return self._offsets.get(eval_id) >= 0

    def answer(self, eval_id: str) -> ProviderResponse:
        """Return the answer to a request. Raise `ProviderError` if its record cannot be used."""
        if eval_id in self._duplicates:
            raise ProviderError("the output of the batch has more than one record for this case; all are ignored")
        offset = self._offsets.get(eval_id)
        if offset < 0:
            raise ProviderError(f"the output of the batch has no record for this case{self.others.text}")
        try:
            self._file.seek(offset)
            record = msgspec.json.decode(self._file.readline())
            error = record.get("error")
            if isinstance(error, str) and error:
                raise ProviderError(error)
            return response_from(record)
        except (OSError, msgspec.DecodeError) as error:
            raise ProviderError(f"the batch record cannot be used: {error}") from error

    def close(self) -> None:
        self._file.close()

    async def index(self, wanted: HashSet, *, is_tolerant: bool) -> None:
        """Find the records with the `wanted` ids. Raise `ProviderError` for an invalid or duplicate one.

        If `is_tolerant`, invalid lines are counted, and duplicates are not used.
        """
        for number, offset, lines in self._blocks(is_tolerant=is_tolerant):
            line_offset = offset
            for line_number, line in enumerate(lines, number):
                if line and not line.isspace():
                    try:
                        self._add(line, line_number, line_offset, wanted, is_tolerant=is_tolerant)
                    except _LineError as error:
                        if not is_tolerant:
                            raise
                        self.others.add_unreadable(error)
                line_offset += len(line) + 1
            await asyncio.sleep(0)  # a large file must not block the other cases

    def _blocks(self, *, is_tolerant: bool) -> Iterator[tuple[int, int, list[bytes]]]:
        """Yield the lines in blocks, each with the number and the offset of its first line.

        Raise `_LineError` for a line that is too long. If `is_tolerant`, count and skip it.
        """
        offset = 0
        if self._file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK:
            offset = len(BYTE_ORDER_MARK)  # `line_blocks` skips it
        self._file.seek(0)
        number = 1
        while True:
            try:
                for lines in line_blocks(self._file):
                    yield number, offset, lines
                    number += len(lines)
                    offset += sum(map(len, lines)) + len(lines)
                return
            except OverflowError:
                too_long = _LineError(number, f"longer than {MAX_LINE_BYTES >> 20} MiB")
            if not is_tolerant:
                raise too_long
            self.others.add_unreadable(too_long)
            number += 1
            offset = _skip_line(self._file)

    def _add(self, line: bytes, number: int, offset: int, wanted: HashSet, *, is_tolerant: bool) -> None:
        """Add the record in a line. Raise `_LineError` if it is invalid, or a duplicate that fails the batch."""
        id_ = _id(line, number)
        if id_ not in wanted:
            self.others.add_unknown(id_)
            return
        first = self._offsets.get(id_)
        if first < 0:
            self._offsets.add(id_, offset)
        elif is_tolerant:
            self._duplicates.add(id_)
        else:
            first_number = _line_number(self._file, first)
            raise _LineError(number, f"duplicate id {id_!r}, first on line {first_number}")


async def read_output(
    path: Path,
    wanted: HashSet,
    most: int,
    *,
    is_tolerant: bool = False,
) -> BatchOutput:
    """Return the answers to the `wanted` ids, of which there are at most `most`. Other records are ignored.

    Raise `ProviderError` for an invalid or duplicate record, unless `is_tolerant`.
    """
    try:
        file = open_regular(path)
    except (OSError, ValueError) as error:
        reason = read_error(error, path, AgentvError).message
        raise ProviderError(f"the output of the batch: {reason}") from error
    output = BatchOutput(file, HashIndex(most))
    try:
        await output.index(wanted, is_tolerant=is_tolerant)
    except BaseException:
        file.close()
        raise
    return output


class _Record(msgspec.Struct):
    """The part of a record that is needed to index it."""

    id: str


_RECORD = msgspec.json.Decoder(_Record)


def _id(line: bytes, number: int) -> str:
    """Return the id of the record in a line. Raise `ProviderError` if it has none."""
    try:
        return _RECORD.decode(line).id
    except msgspec.ValidationError as error:
        what = "a record without an 'id'"
        if "`$.id`" in str(error):
            what = "'id' is not a string"
        raise _LineError(number, f"{what}: {_excerpt(line)}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        what = explain_json_error(line, error)[0]
        raise _LineError(number, f"{what}: {_excerpt(line)}") from None


class _LineError(ProviderError):
    """A line that cannot be used."""

    def __init__(self, number: int, message: str):
        self.detail = f"line {number}: {message}"
        super().__init__(f"the output of the batch, {self.detail}")


def _excerpt(line: bytes) -> str:
    """Return the start of a line. Secrets are masked before truncation, since half of one would not be recognised."""
    return _shorten(line.decode("utf-8", "replace").strip())


def _shorten(text: str) -> str:
    """Return the start of a text, with secrets masked first."""
    return truncate(clean(text), MAX_EXCERPT)


def _skip_line(file: BinaryIO) -> int:
    """Move to the start of the next line, and return its offset."""
    while chunk := file.read(BLOCK_BYTES):
        line_end = chunk.find(b"\n")
        if line_end >= 0:
            after_line = line_end + 1
            return file.seek(after_line - len(chunk), os.SEEK_CUR)
    return file.tell()


def _line_number(file: BinaryIO, offset: int) -> int:
    """Return the number of the line at an offset."""
    file.seek(0)
    number = 1
    while offset > 0:
        chunk = file.read(min(offset, BLOCK_BYTES))
        if not chunk:
            break
        number += chunk.count(b"\n")
        offset -= len(chunk)
    return number
