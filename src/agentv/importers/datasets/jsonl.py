"""Import JSONL as eval cases: one object per case, with its fields as the columns."""

from collections.abc import Iterator
from pathlib import Path

from agentv.importers.datasets.rows import FIELDS, TableRow, cases_of, choose_columns
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.sample import Sample, read_lines


class Jsonl(Importer):
    """A file with one JSON object per line."""

    becomes = Becomes.CASES
    fields = tuple(FIELDS)

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        if sample.records:
            return True
        return sample.suffix == ".jsonl" and sample.text.lstrip().startswith("{")

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        names = column_names(source)
        columns = choose_columns(names, self.options.columns, source)
        tally.note(columns.describe())
        return cases_of(_rows(source), columns, tally)


def column_names(source: Path) -> list[str]:
    """Return the field names of all objects in a file, in order of first appearance."""
    names: dict[str, None] = {}
    for row in _rows(source):
        names |= dict.fromkeys(row.values)
    if not names:
        raise ImportFailure(
            "the file contains no rows",
            file=source,
            hint="each line must be a JSON object",
        )
    return list(names)


def _rows(source: Path) -> Iterator[TableRow]:
    for line in read_lines(source):
        if not isinstance(line.value, dict):
            message = "expected a JSON object"
            raise ImportFailure(message, file=source, line=line.number)
        yield TableRow(line.value, line.where)
