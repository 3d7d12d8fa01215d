"""The JSONL output of a batch -> the answer to each of its requests.

The file is read twice: once as a stream, to find everything that is wrong with it before any of it counts, and
once record by record, as answers are asked for. Only the offset of each record is held.
"""

import asyncio
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentv.errors import AgentvError, ProviderError
from agentv.formats.jsonl import BLOCK_BYTES, MAX_LINE_BYTES, explain_json_error, line_blocks
from agentv.formats.wire import response_from
from agentv.formats.yaml import open_regular, read_error
from agentv.records import ProviderResponse
from agentv.redact import clean
from agentv.system.compact_sets import HashIndex, HashSet

MAX_EXCERPT = 80


class BatchOutput:
    """The records of an output file, by the ids of the requests that they answer."""

    def __init__(self, file: BinaryIO, offsets: HashIndex):
        self._file, self._offsets = file, offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, eval_id: str) -> bool:
        return self._offsets.get(eval_id) >= 0

    def answer(self, eval_id: str) -> ProviderResponse:
        """Return the answer to one request; raise `ProviderError` if its record cannot be used."""
        offset = self._offsets.get(eval_id)
        if offset < 0:
            raise ProviderError("the batch was not asked for this case")
        try:
            self._file.seek(offset)
            return response_from(msgspec.json.decode(self._file.readline()))
        except (OSError, msgspec.DecodeError) as error:
            raise ProviderError(f"the record of the batch cannot be used: {error}") from error

    def close(self) -> None:
        self._file.close()


async def read_output(path: Path, wanted: HashSet, most: int) -> BatchOutput:
    """Return the answers of a batch to the `wanted` ids, at `most` so many; other records are passed over."""
    try:
        file = open_regular(path)
    except (OSError, ValueError) as error:
        raise ProviderError(f"the output of the batch: {read_error(error, path, AgentvError).message}") from error
    offsets = HashIndex(most)
    try:
        await _index(file, wanted, offsets)
    except BaseException:
        file.close()
        raise
    return BatchOutput(file, offsets)


async def _index(file: BinaryIO, wanted: HashSet, offsets: HashIndex) -> None:
    offset = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
    file.seek(0)
    number = 0
    try:
        for lines in line_blocks(file):
            for line in lines:
                number += 1
                if line and not line.isspace():
                    id_ = _id(line, number)
                    if id_ in wanted:
                        if (first := offsets.get(id_)) >= 0:
                            raise _line_error(
                                number, f"the id {id_!r} stands twice, first on line {_line_number(file, first)}"
                            )
                        offsets.add(id_, offset)
                offset += len(line) + 1
            await asyncio.sleep(0)
    except OverflowError:
        raise _line_error(number + 1, f"longer than {MAX_LINE_BYTES >> 20} MiB") from None


class _Record(msgspec.Struct):
    """The part of a record that is read first."""

    id: str


_RECORD = msgspec.json.Decoder(_Record)


def _id(line: bytes, number: int) -> str:
    try:
        return _RECORD.decode(line).id
    except msgspec.ValidationError as error:
        what = "'id' is no string" if "`$.id`" in str(error) else "a record without an 'id'"
        raise _line_error(number, f"{what}: {_excerpt(line)}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _line_error(number, f"{explain_json_error(line, error)[0]}: {_excerpt(line)}") from None


def _line_error(number: int, message: str) -> ProviderError:
    return ProviderError(f"the output of the batch, line {number}: {message}")


def _excerpt(line: bytes) -> str:
    """Return the start of a line; secrets are masked first, since half of one would not be recognised."""
    text = clean(line.decode("utf-8", "replace").strip())
    return text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}…"


def _line_number(file: BinaryIO, offset: int) -> int:
    file.seek(0)
    number = 1
    while offset > 0 and (chunk := file.read(min(offset, BLOCK_BYTES))):
        number += chunk.count(b"\n")
        offset -= len(chunk)
    return number
