"""CSV and TSV -> eval cases, a row a case.

The first row names the columns. Cells may hold anything, line breaks and 50 MB of text too.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from agentv.errors import AgentvError
from agentv.formats.yaml import read_error
from agentv.importers.datasets.rows import FIELDS, TableRow, cases_of, choose_columns
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.sample import Sample, not_utf8, take_sample

DELIMITERS = (",", ";", "\t", "|")
PLAIN = ("", ".txt", ".tab", ".dat", ".data")
"""How the names of files end that may be anything."""


class Csv(Importer):
    """Comma-separated values; a semicolon, a tab or a bar may stand for the comma."""

    becomes = Becomes.CASES
    fields = tuple(FIELDS)

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return sample.suffix == ".csv" or (sample.suffix in PLAIN and find_delimiter(sample.text) is not None)

    def delimiter(self, source: Path) -> str:
        """Return what separates the cells of a source."""
        return find_delimiter(take_sample(source).text) or ","

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        reader = TableReader(source, self.delimiter(source))
        names = reader.names
        columns = choose_columns(names, self.options.columns, source)
        tally.note(columns.describe())
        rows = (
            TableRow(dict(zip(names, cells, strict=False)), where)
            for cells, where in reader.rows()
            if self._fits(cells, names, where, tally)
        )
        yield from cases_of(rows, columns, tally)

    def _fits(self, cells: list[str], names: list[str], where: str, tally: Tally) -> bool:
        if len(cells) <= len(names) or not any(cells[len(names) :]):
            return True
        tally.read += 1
        tally.skip("it has more cells than there are columns", where)
        return False


class Tsv(Csv):
    """Tab-separated values."""

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return sample.suffix == ".tsv" or (sample.suffix in PLAIN and find_delimiter(sample.text) == "\t")

    def delimiter(self, source: Path) -> str:
        return "\t"


def find_delimiter(text: str) -> str | None:
    """Return the delimiter that the first row has most of, outside of quotes; None if it has none."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.lstrip().startswith(("{", "[")):
        return None
    bare = "".join(first.split('"')[::2])
    counts = {mark: bare.count(mark) for mark in DELIMITERS}
    best = max(DELIMITERS, key=counts.__getitem__)
    return best if counts[best] else None


class TableReader:
    """Reads the rows of a table. The names of its columns are known at once."""

    def __init__(self, path: Path, delimiter: str):
        self._path, self._delimiter = path, delimiter
        first = next(self._rows(), None)
        if first is None:
            raise ImportFailure("the file has no rows", file=path)
        self.names = [name.strip() or f"column {number}" for number, name in enumerate(first[0], 1)]
        if repeated := [name for name, times in Counter(self.names).items() if times > 1]:
            message = f"several columns have one name: {', '.join(map(repr, repeated))}"
            raise ImportFailure(message, file=path, line=1, hint="give each column a name of its own")

    def rows(self) -> Iterator[tuple[list[str], str]]:
        """Yield the cells of each row after the first, and where they are; blank lines are passed over."""
        rows = self._rows()
        next(rows, None)
        return rows

    def _rows(self) -> Iterator[tuple[list[str], str]]:
        csv.field_size_limit(sys.maxsize)  # there is no other place to say it
        before = 0
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file, delimiter=self._delimiter, strict=True)
                for cells in reader:
                    line, before = before + 1, reader.line_num
                    if any(cells):
                        yield cells, f"line {line}"
        except csv.Error as error:
            reason = "a quote is opened and never closed" if "unexpected end" in str(error) else str(error)
            hint = 'a quote inside of quotes is written twice: ""'
            message = f"the row that begins here cannot be read: {reason}"
            raise ImportFailure(message, file=self._path, line=before + 1, hint=hint) from None
        except UnicodeDecodeError:
            raise not_utf8(self._path, before + 1) from None
        except OSError as error:
            raise read_error(error, self._path, AgentvError) from error
