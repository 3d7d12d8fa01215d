"""Read sources: sample their start for detection, and read JSONL line by line.

A source may have any size and any content.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from agentv.errors import AgentvError
from agentv.files.jsonl import explain_json_error, line_blocks
from agentv.files.table import not_utf8
from agentv.files.yaml import open_regular, read_error
from agentv.records import Json

SAMPLE_BYTES = 256 * 1024
MAX_LINE_BYTES = 1 << 30
"""Large, because transcripts contain images and whole files on one line."""
MAX_RECORDS = 50
_BINARY_SIGNATURES = {
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "compressed (gzip)",
    b"\x28\xb5\x2f\xfd": "compressed (zstd)",
    b"SQLite format 3": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"%PDF": "a PDF",
}
_HINTS = {
    ".xlsx": "save it as CSV (UTF-8) in your spreadsheet program",
    ".xls": "save it as CSV (UTF-8) in your spreadsheet program",
    ".ods": "save it as CSV (UTF-8) in your spreadsheet program",
    ".eval": "'inspect log dump FILE > log.json' converts it to JSON",
}
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


@dataclass(frozen=True)
class Sample:
    """The path of a source and the start of its text, for format detection."""

    path: Path
    text: str

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @cached_property
    def records(self) -> list[Json]:
        """The JSON objects on the first lines, up to the first line that is not one."""
        return list(self._records())

    def _records(self) -> Iterator[Json]:
        lines = [line for line in self.text.split("\n") if line.strip()]
        for line in lines[:MAX_RECORDS]:
            try:
                found = msgspec.json.decode(line)
            except _UNREADABLE:
                return
            if not isinstance(found, dict):
                return
            yield found

    def has(self, *names: str) -> bool:
        """Return whether one of the first records has all these fields."""
        wanted = set(names)
        return any(wanted <= record.keys() for record in self.records)


def take_sample(path: Path) -> Sample:
    """Return the start of a source. Raise `AgentvError` if it cannot be read, is empty or is not text."""
    try:
        with open_regular(path) as file:
            start = file.read(SAMPLE_BYTES)
            is_whole = not file.read(1)
    except (OSError, ValueError) as problem:
        raise read_error(problem, path, AgentvError) from problem
    if not start.strip():
        raise AgentvError(
            "the file is empty",
            file=path,
            hint="pass a file with content to import",
        )
    return Sample(path, _decode_start(start, path, is_whole))


def _decode_start(start: bytes, path: Path, is_whole: bool) -> str:
    """Decode the first bytes of a file. Raise `AgentvError` if they are not UTF-8 text."""
    hint = _HINTS.get(path.suffix.lower(), "pass a text file: CSV, JSONL, YAML or JSON")
    for signature, name in _BINARY_SIGNATURES.items():
        if start.startswith(signature):
            raise AgentvError(f"this is {name}, not a text file", file=path, hint=hint)
    if start.startswith(_UTF16_MARKS):
        raise AgentvError("the file is encoded in UTF-16", file=path, hint="save it as UTF-8")

    try:
        text = start.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        # The sample may end inside of a character, which has at most 4 bytes: drop an incomplete one.
        is_cut_character = not is_whole and problem.start >= len(start) - 4
        if not is_cut_character:
            if b"\0" in start:
                raise AgentvError(
                    "this is a binary file, not a text file",
                    file=path,
                    hint=hint,
                ) from None
            raise not_utf8(path, start[: problem.start].count(b"\n") + 1) from None
        text = start[: problem.start].decode("utf-8-sig")

    if "\0" in text:
        raise AgentvError("this is a binary file, not a text file", file=path, hint=hint)
    return text


class Line(NamedTuple):
    """A line of a JSONL file: its number and its value."""

    number: int
    value: Any

    @property
    def where(self) -> str:
        return f"line {self.number}"


def read_lines(
    path: Path,
    on_truncated: Callable[[str], None] | None = None,
) -> Iterator[Line]:
    """Yield the values of a JSONL file, one at a time. Raise `AgentvError` at an invalid line.

    If `on_truncated` is given, a truncated last line is skipped and its location is passed to `on_truncated`:
    transcripts of sessions that are still running end like that.
    """
    number = 0
    try:
        with open_regular(path) as file:
            for raw, is_unterminated in _raw_lines(file):
                number += 1
                if not raw.strip():
                    continue
                try:
                    value = decode_foreign(raw)
                except _UNREADABLE as error:
                    if is_unterminated and on_truncated is not None:
                        on_truncated(f"line {number}")
                        return
                    raise _invalid_line(raw, error, path, number) from None
                yield Line(number, value)
    except OSError as problem:
        raise read_error(problem, path, AgentvError) from problem
    except OverflowError:
        raise AgentvError(
            "the line is longer than 1 GiB",
            file=path,
            line=number + 1,
        ) from None


def _raw_lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, and whether it is a last line without a line feed."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    is_unterminated = file.read(1) != b"\n"
    file.seek(0)

    # Hold back one line, as only the end of the file shows which line is the last.
    last: bytes | None = None
    for block in line_blocks(file, longest=MAX_LINE_BYTES):
        for raw in block:
            if last is not None:
                yield last, False
            last = raw
    if last is not None:
        yield last, is_unterminated


def decode_foreign(raw: bytes) -> Any:
    """Decode JSON that another program wrote. Accept NaN and lone surrogates, which msgspec rejects.

    Raise one of `_UNREADABLE` if it is not JSON.
    """
    try:
        return msgspec.json.decode(raw.decode())
    except msgspec.DecodeError:
        value = json.loads(raw, parse_constant=_null)
        text = json.dumps(value, ensure_ascii=False)
        return msgspec.json.decode(text.encode("utf-8", "replace"))


def _null(_constant: str) -> None:
    """Replace NaN and Infinity, which JSON does not have, with null."""


def _invalid_line(raw: bytes, error: Exception, path: Path, number: int) -> AgentvError:
    if isinstance(error, UnicodeDecodeError):
        return not_utf8(path, number)
    message, column = explain_json_error(raw, error)
    return AgentvError(
        message,
        file=path,
        line=number,
        column=column,
        hint="each line must be a JSON object",
    )
