"""Convert a results file to a flat table with one row per result, as CSV, Markdown or JSONL.

The file is read twice: first for the names of the evaluators, which become columns. Only one result is in memory at a
time.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from agentv.errors import AgentvError
from agentv.formats.table import neutralise
from agentv.records import Problem
from agentv.redact import clean
from agentv.results.read import read_results
from agentv.results.views import EvaluatorView, ExportView, MetricsView, TokensView
from agentv.scoring import verdict_of

Form = Literal["csv", "markdown", "jsonl"]
FIRST_COLUMNS = ("id", "dataset", "target", "trial", "score", "verdict")
LAST_COLUMNS = ("cost", "tokens", "duration", "error", "question", "answer")
"""The columns before and after those of the evaluators. Cost is in US dollars, duration in milliseconds."""
FAILED = "failed"
"""Written instead of the score of an evaluator that failed."""
Cell = str | float | int | None
Row = list[Cell]
EvaluatorKey = tuple[str, int]
"""The name of an evaluator, and its number among the evaluators of the same name in a result."""
Columns = dict[EvaluatorKey, str]
"""The title of the column of each evaluator."""


def export_blocks(path: Path, form: Form) -> Iterator[bytes]:
    """Yield the table. Raise `AgentvError` if the file cannot be read or has no results."""
    columns = _evaluator_columns(path)
    names = [*FIRST_COLUMNS, *columns.values(), *LAST_COLUMNS]
    write = WRITERS[form]
    return write(names, _rows(path, columns))


def _evaluator_columns(path: Path) -> Columns:
    """Return the columns of all evaluators in the file. Raise `AgentvError` if it has no results."""
    columns: Columns = {}
    is_empty = True
    for record in read_results(path, ExportView):
        is_empty = False
        for key, _ in _numbered(record.view.evaluator_results or ()):
            if key not in columns:
                taken = {*FIRST_COLUMNS, *LAST_COLUMNS, *columns.values()}
                columns[key] = _column_name(key, taken)
    if is_empty:
        raise AgentvError("the file has no results", file=path, hint="name a results file of 'agentv eval'")
    return columns


def _numbered(results: Sequence[EvaluatorView]) -> Iterator[tuple[EvaluatorKey, EvaluatorView]]:
    """Yield the results of evaluators with their keys."""
    counts: dict[str, int] = {}
    for result in results:
        number = counts.get(result.name, 0) + 1
        counts[result.name] = number
        yield (result.name, number), result


def _column_name(key: EvaluatorKey, taken: set[str]) -> str:
    """Return a column name for an evaluator that no other column has."""
    name, number = key
    if number > 1:
        name = f"{name} ({number})"
    while name in taken:
        name = f"evaluator {name}"
    return name


def _rows(path: Path, columns: Columns) -> Iterator[Row]:
    for record in read_results(path, ExportView, on_torn=_ignore):
        yield _row(record.view, columns)


def _ignore(_problem: Problem) -> None:
    """Ignore a truncated last line, which was reported when the file was read for its columns."""


def _row(view: ExportView, columns: Columns) -> Row:
    scores: dict[EvaluatorKey, Cell] = {}
    for key, result in _numbered(view.evaluator_results or ()):
        scores[key] = result.score
        if result.failed:
            scores[key] = FAILED
    metrics = view.execution_metrics or MetricsView()
    error = None
    if view.error is not None:
        error = str(view.error)
    return [
        view.eval_id,
        view.dataset,
        view.target,
        view.trial,
        view.score,
        view.verdict or verdict_of(view.score),
        *map(scores.get, columns),
        metrics.cost_usd,
        _tokens(metrics.token_usage or TokensView()),
        metrics.duration_ms,
        error,
        view.question,
        view.candidate_answer,
    ]


def _tokens(usage: TokensView) -> int | None:
    """Return the sum of input and output tokens, or None if both are unknown."""
    if usage.input is None and usage.output is None:
        return None
    return round((usage.input or 0) + (usage.output or 0))


def _csv(names: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text)  # lines end with CRLF, as in RFC 4180, and cells with line breaks are quoted

    def line(cells: Sequence[Cell]) -> bytes:
        text.seek(0)
        text.truncate()
        writer.writerow(map(_csv_cell, cells))
        return text.getvalue().encode("utf-8", "replace")

    yield line(names)
    yield from map(line, rows)


def _csv_cell(cell: Cell) -> Cell:
    """Return a cell without secrets that a spreadsheet does not take for a formula."""
    if isinstance(cell, str):
        return neutralise(clean(cell))
    return cell


def _markdown(names: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    yield _markdown_line(map(_escape, names))
    yield _markdown_line(["---"] * len(names))
    for row in rows:
        yield _markdown_line(map(_escape, row))


def _markdown_line(cells: Iterable[str]) -> bytes:
    line = f"| {' | '.join(cells)} |\n"
    return line.encode("utf-8", "replace")


_SPECIAL = re.compile(r"[\\`*_{}\[\]<>()#+!|~$&:-]")
_BREAK = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


def _escape(cell: Cell) -> str:
    """Return a cell as one line of plain text: markup, links and mentions are escaped, secrets are masked."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return str(cell)
    escaped = _SPECIAL.sub(lambda match: f"\\{match[0]}", clean(cell))
    escaped = escaped.replace("@", "&#64;")
    return _BREAK.sub("<br>", escaped)


def _jsonl(names: Sequence[str], rows: Iterator[Row]) -> Iterator[bytes]:
    for row in rows:
        fields = dict(zip(names, row, strict=True))
        yield msgspec.json.encode(clean.values(fields)) + b"\n"


Writer = Callable[[Sequence[str], Iterator[Row]], Iterator[bytes]]
WRITERS: dict[Form, Writer] = {
    "csv": _csv,
    "markdown": _markdown,
    "jsonl": _jsonl,
}
