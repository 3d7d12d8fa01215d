"""Read CSV files as spreadsheets write them: any delimiter, a byte-order mark, line breaks in cells.

The first row names the columns. Cells have no size limit.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from agentv.errors import AgentvError
from agentv.files.yaml import read_error

DELIMITERS = (",", ";", "\t", "|")
Rows = Iterator[tuple[list[str], int]]
"""The cells of each row, and the line where the row begins."""
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")


def find_delimiter(text: str) -> str | None:
    """Return the most frequent delimiter of the first row, outside of quotes; None if it has none, or is JSON."""
    first = ""
    for line in text.splitlines():
        if line.strip():
            first = line
            break
    if first.lstrip().startswith(("{", "[")):
        return None
    unquoted = "".join(first.split('"')[::2])
    best = max(DELIMITERS, key=unquoted.count)
    if best not in unquoted:
        return None
    return best


def neutralise(text: str) -> str:
    """Return the text with an apostrophe in front if a spreadsheet could interpret it as a formula."""
    if _FORMULA.match(text):
        return f"'{text}"
    return text


def restore(text: str) -> str:
    """Undo `neutralise`."""
    if text.startswith("'") and _FORMULA.match(text, 1):
        return text[1:]
    return text


class TableReader:
    """Reads the rows of a table. The column names are read on construction."""

    def __init__(
        self,
        path: Path,
        delimiter: str,
        error: type[AgentvError] = AgentvError,
        *,
        has_quotes: bool = True,
    ):
        """Read the column names. An invalid table is raised as `error`, here and by `rows`.

        Without quotes, as in TSV, a quote is an ordinary character.
        """
        self._path = path
        self._delimiter = delimiter
        self._error = error
        self._has_quotes = has_quotes
        self.names = self._read_names()

    def _read_names(self) -> list[str]:
        """Return the column names; raise an error if the file is empty or a name occurs twice."""
        first = next(self._rows(), None)
        if first is None:
            raise self._error("the file has no rows", file=self._path)
        cells, _ = first
        names = []
        for number, cell in enumerate(cells, 1):
            names.append(cell.strip() or f"column {number}")
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise self._error(
                f"duplicate columns: {', '.join(map(repr, repeated))}",
                file=self._path,
                line=1,
                hint="use unique column names",
            )
        return names

    def rows(self) -> Rows:
        """Yield the cells of each row after the first, with the line where the row begins. Skip blank lines."""
        rows = self._rows()
        next(rows, None)
        return rows

    def _rows(self) -> Rows:
        csv.field_size_limit(sys.maxsize)  # can only be set for the whole process
        last_line = 0
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
                if not self._has_quotes:
                    quoting = csv.QUOTE_NONE
                reader = csv.reader(file, delimiter=self._delimiter, quoting=quoting, strict=True)
                for cells in reader:
                    first_line = last_line + 1
                    last_line = reader.line_num
                    if any(cells):
                        yield cells, first_line
        except csv.Error as error:
            reason = str(error)
            if "unexpected end" in reason:
                reason = "unclosed quote"
            raise self._error(
                f"the row that starts here cannot be read: {reason}",
                file=self._path,
                line=last_line + 1,
                hint='double a quote inside a quoted cell: ""',
            ) from None
        except UnicodeDecodeError:
            raise not_utf8(self._path) from None
        except OSError as error:
            raise read_error(error, self._path, AgentvError) from error


def not_utf8(path: Path, line: int | None = None) -> AgentvError:
    """Return the error for a text in another encoding; `line` is where it was found, if known."""
    return AgentvError(
        "not UTF-8 text",
        file=path,
        line=line,
        hint="save the file as UTF-8",
    )
