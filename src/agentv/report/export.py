"""Convert a results file to a flat table with one row per result, as CSV, Markdown or JSONL.

The file is read twice: first for the evaluators, metadata and variables, which become columns. Only one result is in
memory at a time.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv.errors import AgentvError
from agentv.files.table import neutralise
from agentv.files.wire import text_of
from agentv.filters.match import Filter
from agentv.log import ignore, warn
from agentv.records import Problem
from agentv.redact import clean
from agentv.results.read import read_results
from agentv.results.select import nothing_matches
from agentv.results.table import Row, TableColumns
from agentv.results.views import TableView

Form = Literal["csv", "markdown", "jsonl"]
DIGEST = "answer_digest"
"""The last column: by it, `agentv labels import` finds the answer that a row is about."""


def export_blocks(path: Path, form: Form, condition: Filter | None = None) -> Iterator[bytes]:
    """Yield the table of all results, or of those that match a filter.

    Raise `AgentvError` if the file cannot be read or has no results, or if none matches.
    """
    columns = _columns(path, condition)
    names = [*columns.names, DIGEST]
    write = WRITERS[form]
    return write(names, _rows(path, columns, condition))


def _read(
    path: Path,
    condition: Filter | None,
    on_truncated: Callable[[Problem], None] = warn,
) -> Iterator[TableView]:
    """Yield the results that are exported."""
    for record in read_results(path, TableView, on_truncated):
        if not condition or condition.matches(record.view):
            yield record.view


def _columns(path: Path, condition: Filter | None) -> TableColumns:
    """Return the columns for all exported results. Raise `AgentvError` if there are none."""
    columns = TableColumns()
    is_empty = True
    for view in _read(path, condition):
        is_empty = False
        columns.add(view)
    if is_empty and condition:
        raise nothing_matches(condition, path)
    if is_empty:
        hint = "pass a results file written by 'agentv eval'"
        raise AgentvError("the file contains no results", file=path, hint=hint)
    return columns


def _rows(path: Path, columns: TableColumns, condition: Filter | None) -> Iterator[Row]:
    for view in _read(path, condition, on_truncated=ignore):
        row = columns.row(view)
        row[DIGEST] = _digest(view)
        yield row


def _digest(view: TableView) -> str | None:
    """Return the digest by which labels refer to the answer, or None without an answer."""
    if view.candidate_answer is None or view.error is not None:
        return None
    return view.label_digest


def _csv(names: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text)  # lines end with CRLF, as in RFC 4180, and cells with line breaks are quoted

    def line(cells: Iterable[str]) -> bytes:
        text.seek(0)
        text.truncate()
        writer.writerow(cells)
        return text.getvalue().encode("utf-8", "replace")

    yield line(map(_csv_cell, names))
    for row in rows:
        digest = _digest_cell(row.pop(DIGEST))
        yield line([*map(_csv_cell, row.values()), digest])


def _csv_cell(value: Any) -> str:
    """Return a cell without secrets that a spreadsheet does not take for a formula."""
    text = _cell_text(value)
    if isinstance(value, str):
        return neutralise(text)
    return text


def _cell_text(value: Any) -> str:
    """Return a value as text without secrets. Anything but text is JSON."""
    if value is None:
        return ""
    return text_of(clean.values(value))


def _digest_cell(digest: str | None) -> str:
    """Return a digest that a spreadsheet does not round: with an apostrophe if it looks like a number."""
    if digest is None:
        return ""
    if re.fullmatch(r"[0-9]+(e[0-9]+)?", digest):
        return f"'{digest}"
    return digest


def _markdown(names: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    yield _markdown_line(map(_escape, names))
    yield _markdown_line(["---"] * len(names))
    for row in rows:
        yield _markdown_line(map(_escape, row.values()))


def _markdown_line(cells: Iterable[str]) -> bytes:
    line = f"| {' | '.join(cells)} |\n"
    return line.encode("utf-8", "replace")


_SPECIAL = re.compile(r"[\\`*_{}\[\]<>()#+!|~$&:-]")
_BREAK = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


def _escape(value: Any) -> str:
    """Return a cell as one line of plain text: markup, links and mentions are escaped, secrets are masked."""
    text = _cell_text(value)
    if isinstance(value, int | float):
        return text
    escaped = _SPECIAL.sub(lambda match: f"\\{match[0]}", text)
    escaped = escaped.replace("@", "&#64;")
    return _BREAK.sub("<br>", escaped)


def _jsonl(_names: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    for row in rows:
        yield msgspec.json.encode(clean.values(row)) + b"\n"


Writer = Callable[[Sequence[str], Iterator[Row]], Iterator[bytes]]
WRITERS: dict[Form, Writer] = {
    "csv": _csv,
    "markdown": _markdown,
    "jsonl": _jsonl,
}
