"""The JSONL output of a batch command, indexed by the ids of the requests.

The file is read twice: once as a stream, to find everything that is wrong with it before any answer is used, and once
record by record, as answers are needed. Only the offset of each record is kept in memory.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentv.errors import AgentvError, ProviderError
from agentv.formats.jsonl import BLOCK_BYTES, MAX_LINE_BYTES, explain_json_error, line_blocks
from agentv.formats.wire import response_from
from agentv.formats.yaml import open_regular, read_error
from agentv.processes.command import shorten
from agentv.records import ProviderResponse
from agentv.redact import clean
from agentv.system.compact_sets import HashIndex, HashSet

MAX_EXCERPT = 80
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(eq=False)
class BatchOutput:
    """The records of an output file, by the ids of the requests that they answer."""

    _file: BinaryIO
    _offsets: HashIndex

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, eval_id: str) -> bool:
        return self._offsets.get(eval_id) >= 0

    def answer(self, eval_id: str) -> ProviderResponse:
        """Return the answer to a request. Raise `ProviderError` if its record cannot be used."""
        offset = self._offsets.get(eval_id)
        if offset < 0:
            raise ProviderError("the batch was not asked for this case")
        try:
            self._file.seek(offset)
            record = msgspec.json.decode(self._file.readline())
            return response_from(record)
        except (OSError, msgspec.DecodeError) as error:
            raise ProviderError(f"the record of the batch cannot be used: {error}") from error

    def close(self) -> None:
        self._file.close()


async def read_output(path: Path, wanted: HashSet, most: int) -> BatchOutput:
    """Return the answers to the `wanted` ids, of which there are at most `most`. Other records are ignored."""
    try:
        file = open_regular(path)
    except (OSError, ValueError) as error:
        reason = read_error(error, path, AgentvError).message
        raise ProviderError(f"the output of the batch: {reason}") from error
    offsets = HashIndex(most)
    try:
        await _index(file, wanted, offsets)
    except BaseException:
        file.close()
        raise
    return BatchOutput(file, offsets)


async def _index(file: BinaryIO, wanted: HashSet, offsets: HashIndex) -> None:
    """Add the offset of each record with a wanted id. Raise `ProviderError` for an invalid or duplicate record."""
    offset = 0
    if file.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK:
        offset = len(BYTE_ORDER_MARK)  # `line_blocks` skips it
    file.seek(0)
    number = 0
    try:
        for lines in line_blocks(file):
            for line in lines:
                number += 1
                if line and not line.isspace():
                    id_ = _id(line, number)
                    if id_ in wanted:
                        first = offsets.get(id_)
                        if first >= 0:
                            raise _duplicate_error(id_, number, _line_number(file, first))
                        offsets.add(id_, offset)
                offset += len(line) + 1
            await asyncio.sleep(0)  # a large file must not block the other cases
    except OverflowError:
        raise _line_error(number + 1, f"longer than {MAX_LINE_BYTES >> 20} MiB") from None


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
            what = "'id' is no string"
        raise _line_error(number, f"{what}: {_excerpt(line)}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        what = explain_json_error(line, error)[0]
        raise _line_error(number, f"{what}: {_excerpt(line)}") from None


def _line_error(number: int, message: str) -> ProviderError:
    return ProviderError(f"the output of the batch, line {number}: {message}")


def _duplicate_error(id_: str, number: int, first_number: int) -> ProviderError:
    return _line_error(number, f"the id {id_!r} stands twice, first on line {first_number}")


def _excerpt(line: bytes) -> str:
    """Return the start of a line. Secrets are masked before truncation, since half of one would not be recognised."""
    text = line.decode("utf-8", "replace").strip()
    return shorten(clean(text), MAX_EXCERPT)


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
