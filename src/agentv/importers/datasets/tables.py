"""Import CSV and TSV as eval cases: one case per row.

The first row names the columns. Cells may contain anything, including line breaks and 50 MB of text.
"""

from collections.abc import Iterator
from pathlib import Path

from agentv.files.table import TableReader, find_delimiter
from agentv.importers.datasets.rows import FIELDS, TableRow, cases_of, choose_columns
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.sample import Sample, take_sample

GENERIC_SUFFIXES = ("", ".txt", ".tab", ".dat", ".data")
"""Suffixes that do not name a format: files with them are detected from their content."""


class Csv(Importer):
    """Comma-separated values. The delimiter may also be a semicolon, a tab or a vertical bar."""

    becomes = Becomes.CASES
    fields = tuple(FIELDS)

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        if sample.suffix == ".csv":
            return True
        return sample.suffix in GENERIC_SUFFIXES and find_delimiter(sample.text) is not None

    def delimiter(self, source: Path) -> str:
        """Return the delimiter of a source."""
        sample = take_sample(source)
        return find_delimiter(sample.text) or ","

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        reader = TableReader(source, self.delimiter(source), ImportFailure)
        columns = choose_columns(reader.names, self.options.columns, source)
        tally.note(columns.describe())
        yield from cases_of(_rows(reader, tally), columns, tally)


def _rows(reader: TableReader, tally: Tally) -> Iterator[TableRow]:
    """Yield the rows of a table. Skip rows with more cells than there are columns, unless the surplus is empty."""
    names = reader.names
    for cells, line in reader.rows():
        where = f"line {line}"
        surplus = cells[len(names) :]
        if any(surplus):
            tally.read += 1
            tally.skip("the row has more cells than there are columns", where)
            continue
        values = dict(zip(names, cells, strict=False))
        yield TableRow(values, where)


class Tsv(Csv):
    """Tab-separated values."""

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        if sample.suffix == ".tsv":
            return True
        return sample.suffix in GENERIC_SUFFIXES and find_delimiter(sample.text) == "\t"

    def delimiter(self, source: Path) -> str:
        return "\t"
