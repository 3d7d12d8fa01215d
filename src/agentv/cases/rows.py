"""Read the rows of a family of cases, one at a time: from a CSV, TSV or JSONL file, or from a list in the case."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.errors import AgentvError, EvalFileError, nearest
from agentv.files.jsonl import explain_json_error, line_blocks
from agentv.files.table import TableReader
from agentv.files.yaml import open_regular
from agentv.records import Problem
from agentv.text import plural

Report = Callable[[Problem], None]


class FamilyRow(NamedTuple):
    """One row: its values by column, and where it is."""

    values: dict[str, Any]
    number: int
    """Its number among the rows, from 1."""
    line: int = 0
    """Its line in the file; 0 if it is in a list."""


Rows = Iterator[FamilyRow]


def listed_rows(rows: Sequence[dict[str, Any]]) -> Rows:
    """Yield the rows of a list."""
    for number, values in enumerate(rows, 1):
        yield FamilyRow(values, number)


def file_rows(path: Path, report: Report) -> Rows:
    """Yield the rows of a file, and report those that are invalid. Raise `EvalFileError` if it cannot be read."""
    try:
        yield from READERS[path.suffix.lower()](path, report)
    except EvalFileError:
        raise
    except AgentvError as error:
        raise EvalFileError.of(Problem.of(error)) from error


def unusable(path: Path) -> tuple[str, str] | None:
    """Return why a file cannot contain rows, and a hint; None if it can."""
    suffix = path.suffix.lower()
    if suffix not in READERS:
        hint = nearest(suffix, READERS, "formats")
        if suffix == ".json":
            hint = "write one row, a JSON object, on each line of a .jsonl file"
        return f"{path.name or path} is not supported: files with rows end in {', '.join(READERS)}", hint
    if path.is_file():
        return None
    if path.exists():
        return f"not a regular file: {path}", "name a file"
    return f"no such file: {path}", "the path is relative to the eval file"


def _read_csv(path: Path, report: Report) -> Rows:
    return _read_table(path, TableReader(path, ",", EvalFileError), report)


def _read_tsv(path: Path, report: Report) -> Rows:
    return _read_table(path, TableReader(path, "\t", EvalFileError, has_quotes=False), report)


def _read_table(path: Path, reader: TableReader, report: Report) -> Rows:
    names = reader.names
    for number, (cells, line) in enumerate(reader.rows(), 1):
        if len(cells) == len(names):
            values = dict(zip(names, cells, strict=True))
            yield FamilyRow(values, number, line)
            continue
        message = f"the row has {plural(len(cells), 'cell')}, but there are {plural(len(names), 'column')}"
        report(_problem(path, line, message, "put cells that contain the delimiter or a line break in quotes"))


def _read_jsonl(path: Path, report: Report) -> Rows:
    """Yield the rows of a JSONL file. Blank lines are not rows, so the number of a row may be less than its line."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    number = 0
    line = 0
    try:
        with open_regular(path) as file:
            for lines in line_blocks(file):
                for raw in lines:
                    line += 1
                    if not raw.strip():
                        continue
                    number += 1
                    try:
                        values = decode(raw.decode())
                    except msgspec.ValidationError:
                        report(_problem(path, line, "the row must be an object", 'for example {"city": "Paris"}'))
                    except (ValueError, RecursionError) as reason:
                        message, _ = explain_json_error(raw, reason)
                        report(_problem(path, line, message))
                    else:
                        yield FamilyRow(values, number, line)
    except OverflowError:
        raise EvalFileError("the line is too long", file=path, line=line + 1) from None


def _problem(path: Path, line: int, message: str, hint: str = "") -> Problem:
    return Problem(
        message=message,
        file=path,
        line=line,
        column=1,
        hint=hint,
    )


READERS: dict[str, Callable[[Path, Report], Rows]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
}
"""The reader of each kind of file, by extension."""
