"""A CSV file -> its rows, as spreadsheets write them: any delimiter, a byte-order mark, line breaks in cells."""

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentv.errors import AgentvError
from agentv.formats.yaml import read_error, utf8_error_message

DELIMITERS = (",", ";", "\t", "|")


class TableRow(NamedTuple):
    """A row of a table: the cells by the names of their columns, and the line that it begins in."""

    cells: dict[str, str]
    line: int


def read_table(path: Path, error: type[AgentvError]) -> tuple[list[str], Iterator[TableRow]]:
    """Return the names of a table's columns, in lower case, and its rows, which are read as they are asked for.

    Blank rows are passed over. Raise `error` for what cannot be read.
    """
    rows = _rows(path, error)
    head = next(rows, None)
    if head is None:
        raise error("the file has no rows", file=path, hint="the first row names the columns")
    names = [name.strip().lower() for name in head[0]]
    if repeated := [name for name, times in Counter(filter(None, names)).items() if times > 1]:
        message = f"several columns have one name: {', '.join(map(repr, repeated))}"
        raise error(message, file=path, line=head[1], hint="give each column a name of its own")
    return names, (TableRow(dict(zip(names, cells, strict=False)), line) for cells, line in rows)


def find_delimiter(line: str) -> str:
    """Return the delimiter that a line has most of, outside of quotes; a comma if it has none."""
    bare = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=bare.count)


def _rows(path: Path, error: type[AgentvError]) -> Iterator[tuple[list[str], int]]:
    csv.field_size_limit(sys.maxsize)  # there is no other place to say it
    before = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = next((line for line in file if line.strip()), "")
            if first.lstrip().startswith(("{", "[")):
                raise error("this is JSON, not a table", file=path, hint="name a CSV file")
            file.seek(0)
            reader = csv.reader(file, delimiter=find_delimiter(first), strict=True)
            for cells in reader:
                line, before = before + 1, reader.line_num
                if any(cell.strip() for cell in cells):
                    yield cells, line
    except csv.Error as problem:
        reason = "a quote is opened and never closed" if "unexpected end" in str(problem) else str(problem)
        hint = 'a quote inside of quotes is written twice: ""'
        raise error(f"this row cannot be read: {reason}", file=path, line=before + 1, hint=hint) from None
    except UnicodeDecodeError as problem:
        raise error(utf8_error_message(problem), file=path, hint="save the file as CSV UTF-8") from None
    except OSError as problem:
        raise read_error(problem, path, error) from problem
