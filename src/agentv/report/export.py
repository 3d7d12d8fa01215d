"""A results file -> a flat table: one row a result, in CSV, Markdown or JSONL.

The file is read twice, first for the names of the evaluators, which are columns; one result is held at a time.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv.errors import AgentvError
from agentv.formats.table import neutralise
from agentv.redact import clean
from agentv.results.read import read_results
from agentv.results.views import EvaluatorView, ExportView, MetricsView, TokensView
from agentv.scoring import verdict_of

Form = Literal["csv", "markdown", "jsonl"]
BEFORE = ("id", "dataset", "target", "trial", "score", "verdict")
BEHIND = ("cost", "tokens", "duration", "error", "question", "answer")
"""The columns before and behind those of the evaluators. Cost is in US dollars, duration in milliseconds."""
FAILED = "failed"
"""What stands for the score of an evaluator that broke."""
Cell = str | float | int | None


def export_blocks(path: Path, form: Form) -> Iterator[bytes]:
    """Yield the table; raise `AgentvError` if the file cannot be read or has no results."""
    columns = _evaluator_columns(path)
    write = WRITERS[form]
    records = read_results(path, ExportView, on_torn=lambda _: None)  # of which the first pass has told
    rows = (_row(record.view, columns) for record in records)
    return write([*BEFORE, *columns.values(), *BEHIND], rows)


def _evaluator_columns(path: Path) -> dict[tuple[str, int], str]:
    """Return the column of each evaluator, by its name and its number among those of the same name in a result."""
    columns: dict[tuple[str, int], str] = {}
    is_empty = True
    for record in read_results(path, ExportView):
        is_empty = False
        for key, _ in _numbered(record.view.evaluator_results or ()):
            if key not in columns:
                columns[key] = _column(key, {*BEFORE, *BEHIND, *columns.values()})
    if is_empty:
        raise AgentvError("the file has no results", file=path, hint="name a results file of 'agentv eval'")
    return columns


def _numbered(results: Sequence[EvaluatorView]) -> Iterator[tuple[tuple[str, int], EvaluatorView]]:
    counts: dict[str, int] = {}
    for result in results:
        counts[result.name] = counts.get(result.name, 0) + 1
        yield (result.name, counts[result.name]), result


def _column(key: tuple[str, int], taken: set[str]) -> str:
    """Return a name for the column of an evaluator that no other column has."""
    name = key[0] if key[1] == 1 else f"{key[0]} ({key[1]})"
    while name in taken:
        name = f"evaluator {name}"
    return name


def _row(view: ExportView, columns: Mapping[tuple[str, int], str]) -> list[Cell]:
    scores = {key: FAILED if result.failed else result.score for key, result in _numbered(view.evaluator_results or ())}
    metrics = view.execution_metrics or MetricsView()
    usage = metrics.token_usage or TokensView()
    used = [count for count in (usage.input, usage.output) if count is not None]
    return [
        *(view.eval_id, view.dataset, view.target, view.trial, view.score, view.verdict or verdict_of(view.score)),
        *(scores.get(key) for key in columns),
        *(metrics.cost_usd, round(sum(used)) if used else None, metrics.duration_ms),
        *(None if view.error is None else str(view.error), view.question, view.candidate_answer),
    ]


def _csv(names: Sequence[str], rows: Iterator[list[Cell]]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text)  # whose lines end as RFC 4180 says, so that all others are quoted

    def line(cells: Sequence[Cell]) -> bytes:
        text.seek(0)
        text.truncate()
        writer.writerow([neutralise(clean(cell)) if isinstance(cell, str) else cell for cell in cells])
        return text.getvalue().encode("utf-8", "replace")

    yield line(names)
    yield from map(line, rows)


def _markdown(names: Sequence[str], rows: Iterator[list[Cell]]) -> Iterator[bytes]:
    yield _markdown_line(map(_escape, names))
    yield _markdown_line("---" for _ in names)
    for row in rows:
        yield _markdown_line(map(_escape, row))


def _markdown_line(cells: Iterator[str]) -> bytes:
    return f"| {' | '.join(cells)} |\n".encode("utf-8", "replace")


_SPECIAL = re.compile(r"[\\`*_{}\[\]<>()#+!|~$&:-]")
_BREAK = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")


def _escape(cell: Cell) -> str:
    """Return a cell as text that is only text in Markdown: on one line, without markup, links or mentions."""
    if not isinstance(cell, str):
        return "" if cell is None else str(cell)
    escaped = _SPECIAL.sub(lambda sign: f"\\{sign[0]}", clean(cell)).replace("@", "&#64;")
    return _BREAK.sub("<br>", escaped)


def _jsonl(names: Sequence[str], rows: Iterator[list[Cell]]) -> Iterator[bytes]:
    for row in rows:
        plain: Any = clean.values(dict(zip(names, row, strict=True)))
        yield msgspec.json.encode(plain) + b"\n"


WRITERS: dict[Form, Callable[[Sequence[str], Iterator[list[Cell]]], Iterator[bytes]]] = {
    "csv": _csv,
    "markdown": _markdown,
    "jsonl": _jsonl,
}
