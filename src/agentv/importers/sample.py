"""Sources: opened, looked at, read line by line. A source may be of any size, and may not be what it seems."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from agentv.errors import AgentvError
from agentv.formats.jsonl import explain_json_error, line_blocks
from agentv.formats.table import not_utf8
from agentv.formats.yaml import open_regular, read_error
from agentv.records import Json

SAMPLE_BYTES = 256 * 1024
MAX_LINE_BYTES = 1 << 30
"""Transcripts hold pictures and whole files on one line."""
MAX_RECORDS = 50
_ARCHIVES = {
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
    ".eval": "'inspect log dump FILE > log.json' makes JSON of it",
}


@dataclass(frozen=True)
class Sample:
    """The name of a source and how it starts, for telling what it is."""

    path: Path
    text: str

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @cached_property
    def records(self) -> list[Json]:
        """The objects on its first lines, if all of these are JSON objects; else nothing."""
        return list(self._records())

    def _records(self) -> Iterator[Json]:
        lines = [line for line in self.text.split("\n") if line.strip()]
        for line in lines[:MAX_RECORDS]:
            try:
                found = msgspec.json.decode(line)
            except (msgspec.DecodeError, ValueError, RecursionError):
                return
            if not isinstance(found, dict):
                return
            yield found

    def has(self, *names: str) -> bool:
        """Return whether a record among the first has all these fields."""
        return any(all(name in record for name in names) for record in self.records)


def take_sample(path: Path) -> Sample:
    """Return how a source starts; raise `AgentvError` if it cannot be read, is empty or is no text."""
    try:
        with open_regular(path) as file:
            start = file.read(SAMPLE_BYTES)
            is_whole = not file.read(1)
    except (OSError, ValueError) as problem:
        raise read_error(problem, path, AgentvError) from problem
    if not start.strip():
        raise AgentvError("the file is empty", file=path, hint="name a file that has something to import")
    return Sample(path, _text(start, path, is_whole))


def _text(start: bytes, path: Path, is_whole: bool) -> str:
    hint = _HINTS.get(path.suffix.lower(), "name a text file: CSV, JSONL, YAML or JSON")
    for magic, name in _ARCHIVES.items():
        if start.startswith(magic):
            raise AgentvError(f"this is {name}, not a text", file=path, hint=hint)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise AgentvError("this text is UTF-16", file=path, hint="save it as UTF-8")
    try:
        text = start.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        if is_whole or problem.start < len(start) - 4:
            if b"\0" in start:
                raise AgentvError("this is a binary file, not a text", file=path, hint=hint) from None
            raise not_utf8(path, start[: problem.start].count(b"\n") + 1) from None
        text = start[: problem.start].decode("utf-8-sig")
    if "\0" in text:
        raise AgentvError("this is a binary file, not a text", file=path, hint=hint)
    return text


class Line(NamedTuple):
    """A line of a JSONL file: its number and its value."""

    number: int
    value: Any

    @property
    def where(self) -> str:
        return f"line {self.number}"


def read_lines(path: Path, on_torn: Callable[[str], None] | None = None) -> Iterator[Line]:
    """Yield the values of a JSONL file, one at a time; raise `AgentvError` at a line that is no JSON.

    A last line that is cut off, as of a session that goes on, is left out and told to `on_torn`, if that is given.
    """
    number = 0
    try:
        with open_regular(path) as file:
            for raw, is_open in _raw_lines(file):
                number += 1
                if not raw.strip():
                    continue
                try:
                    value = decode(raw)
                except _UNREADABLE as error:
                    if is_open and on_torn is not None:
                        return on_torn(f"line {number}")
                    raise _bad_line(raw, error, path, number) from None
                yield Line(number, value)
    except OSError as problem:
        raise read_error(problem, path, AgentvError) from problem
    except OverflowError:
        raise AgentvError("the line is longer than 1 GiB", file=path, line=number + 1) from None
    return None


def _raw_lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, and whether it is one that no line feed ends."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
    is_open = file.read(1) != b"\n"
    file.seek(0)
    last: bytes | None = None
    for block in line_blocks(file, longest=MAX_LINE_BYTES):
        for raw in block:
            if last is not None:
                yield last, False
            last = raw
    if last is not None:
        yield last, is_open


def decode(raw: bytes) -> Any:
    """Return the value of JSON that another program wrote, which may cut characters in half, or write NaN.

    Raise `ValueError` or a similar error if it is none.
    """
    try:
        return msgspec.json.decode(raw.decode())
    except msgspec.DecodeError:
        value = json.loads(raw, parse_constant=lambda _: None)
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


def _bad_line(raw: bytes, error: Exception, path: Path, number: int) -> AgentvError:
    if isinstance(error, UnicodeDecodeError):
        return not_utf8(path, number)
    message, column = explain_json_error(raw, error)
    return AgentvError(message, file=path, line=number, column=column, hint="a JSON object belongs on each line")
