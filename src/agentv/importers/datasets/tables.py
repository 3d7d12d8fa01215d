"""CSV and TSV -> eval cases, a row a case.

The first row names the columns. Cells may hold anything, line breaks and 50 MB of text too.
"""

from collections.abc import Iterator
from pathlib import Path

from agentv.formats.table import TableReader, find_delimiter
from agentv.importers.datasets.rows import FIELDS, TableRow, cases_of, choose_columns
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.sample import Sample, take_sample

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
        reader = TableReader(source, self.delimiter(source), ImportFailure)
        names = reader.names
        columns = choose_columns(names, self.options.columns, source)
        tally.note(columns.describe())
        rows = (
            TableRow(dict(zip(names, cells, strict=False)), f"line {line}")
            for cells, line in reader.rows()
            if self._fits(cells, names, line, tally)
        )
        yield from cases_of(rows, columns, tally)

    def _fits(self, cells: list[str], names: list[str], line: int, tally: Tally) -> bool:
        if len(cells) <= len(names) or not any(cells[len(names) :]):
            return True
        tally.read += 1
        tally.skip("it has more cells than there are columns", f"line {line}")
        return False


class Tsv(Csv):
    """Tab-separated values."""

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return sample.suffix == ".tsv" or (sample.suffix in PLAIN and find_delimiter(sample.text) == "\t")

    def delimiter(self, source: Path) -> str:
        return "\t"
