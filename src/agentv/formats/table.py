"""A CSV file -> its rows, as spreadsheets write them: any delimiter, a byte-order mark, line breaks in cells.

The first row names the columns. Cells may hold anything, line breaks and 50 MB of text too.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from agentv.errors import AgentvError
from agentv.formats.yaml import read_error

DELIMITERS = (",", ";", "\t", "|")
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")


def find_delimiter(text: str) -> str | None:
    """Return the delimiter that the first row has most of, outside of quotes; None if it has none, or is JSON."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.lstrip().startswith(("{", "[")):
        return None
    bare = "".join(first.split('"')[::2])
    counts = {mark: bare.count(mark) for mark in DELIMITERS}
    best = max(DELIMITERS, key=counts.__getitem__)
    return best if counts[best] else None


def neutralise(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: one that begins like one gets an apostrophe in front."""
    return f"'{text}" if _FORMULA.match(text) else text


def restore(text: str) -> str:
    """Return the text that `neutralise` has made this of."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text, 1) else text


class TableReader:
    """Reads the rows of a table. The names of its columns are known at once."""

    def __init__(self, path: Path, delimiter: str, error: type[AgentvError] = AgentvError):
        """Read the names of the columns. What is wrong with the table is raised as `error`, here and by `rows`."""
        self._path, self._delimiter, self._error = path, delimiter, error
        first = next(self._rows(), None)
        if first is None:
            raise error("the file has no rows", file=path)
        self.names = [name.strip() or f"column {number}" for number, name in enumerate(first[0], 1)]
        if repeated := [name for name, times in Counter(self.names).items() if times > 1]:
            message = f"several columns have one name: {', '.join(map(repr, repeated))}"
            raise error(message, file=path, line=1, hint="give each column a name of its own")

    def rows(self) -> Iterator[tuple[list[str], int]]:
        """Yield the cells of each row after the first, and the line that they begin in; blank lines are passed over."""
        rows = self._rows()
        next(rows, None)
        return rows

    def _rows(self) -> Iterator[tuple[list[str], int]]:
        csv.field_size_limit(sys.maxsize)  # there is no other place to say it
        before = 0
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file, delimiter=self._delimiter, strict=True)
                for cells in reader:
                    line, before = before + 1, reader.line_num
                    if any(cells):
                        yield cells, line
        except csv.Error as error:
            reason = "a quote is opened and never closed" if "unexpected end" in str(error) else str(error)
            hint = 'a quote inside of quotes is written twice: ""'
            message = f"the row that begins here cannot be read: {reason}"
            raise self._error(message, file=self._path, line=before + 1, hint=hint) from None
        except UnicodeDecodeError:
            raise not_utf8(self._path) from None
        except OSError as error:
            raise read_error(error, self._path, AgentvError) from error


def not_utf8(path: Path, line: int | None = None) -> AgentvError:
    """Return the error for a text in another encoding; `line` is where it was found, if that is known."""
    return AgentvError("this text is not UTF-8", file=path, line=line, hint="save it as UTF-8, and import that")
