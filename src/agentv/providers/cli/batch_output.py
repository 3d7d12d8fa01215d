"""The JSONL output of a batch -> the answer to each of its requests.

The file is read twice: once as a stream, to find everything that is wrong with it before any of it counts, and
once record by record, as answers are asked for. Only where each record begins is held.
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

EXCERPT = 80


class BatchOutput:
    """The records of an output file, by the ids of the requests that they answer."""

    def __init__(self, file: BinaryIO, begins: HashIndex):
        self._file, self._begins = file, begins

    def __len__(self) -> int:
        return len(self._begins)

    def __contains__(self, eval_id: str) -> bool:
        return self._begins.get(eval_id) >= 0

    def answer(self, eval_id: str) -> ProviderResponse:
        """The answer to one request."""
        begin = self._begins.get(eval_id)
        if begin < 0:
            raise ProviderError("the batch was not asked for this case")
        try:
            self._file.seek(begin)
            return response_from(msgspec.json.decode(self._file.readline()))
        except (OSError, msgspec.DecodeError) as error:
            raise ProviderError(f"the record of the batch cannot be used: {error}") from error

    def close(self) -> None:
        self._file.close()


async def read_output(path: Path, wanted: HashSet, most: int) -> BatchOutput:
    """The output of a batch for the `wanted` ids, at `most` so many. Records with other ids are passed over."""
    try:
        file = open_regular(path)
    except (OSError, ValueError) as error:
        raise ProviderError(f"the output of the batch: {read_error(error, path, AgentvError).message}") from error
    begins = HashIndex(most)
    try:
        await _index(file, wanted, begins)
    except BaseException:
        file.close()
        raise
    return BatchOutput(file, begins)


async def _index(file: BinaryIO, wanted: HashSet, begins: HashIndex) -> None:
    begin = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
    file.seek(0)
    number = 0
    try:
        for lines in line_blocks(file):
            for line in lines:
                number += 1
                if line and not line.isspace():
                    id_ = _id(line, number)
                    if id_ in wanted:
                        if (first := begins.get(id_)) >= 0:
                            raise _wrong(number, f"the id {id_!r} stands twice, first on line {_line_at(file, first)}")
                        begins.add(id_, begin)
                begin += len(line) + 1
            await asyncio.sleep(0)
    except OverflowError:
        raise _wrong(number + 1, f"longer than {MAX_LINE_BYTES >> 20} MiB") from None


class _Record(msgspec.Struct):
    """All of a record that is of interest at first."""

    id: str


_RECORD = msgspec.json.Decoder(_Record)


def _id(line: bytes, number: int) -> str:
    try:
        return _RECORD.decode(line).id
    except msgspec.ValidationError as error:
        what = "'id' is no string" if "`$.id`" in str(error) else "a record without an 'id'"
        raise _wrong(number, f"{what}: {_excerpt(line)}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _wrong(number, f"{explain_json_error(line, error)[0]}: {_excerpt(line)}") from None


def _wrong(number: int, message: str) -> ProviderError:
    return ProviderError(f"the output of the batch, line {number}: {message}")


def _excerpt(line: bytes) -> str:
    """The beginning of a line; secrets are masked first, since half of one would not be recognised."""
    text = clean(line.decode("utf-8", "replace").strip())
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def _line_at(file: BinaryIO, offset: int) -> int:
    file.seek(0)
    number = 1
    while offset > 0 and (chunk := file.read(min(offset, BLOCK_BYTES))):
        number += chunk.count(b"\n")
        offset -= len(chunk)
    return number
