"""Convert results to a flat table: one row per result, and the same columns in every row.

`table_rows` holds all results. A file is read twice with `TableColumns`: first to find the columns of
evaluators, metadata and variables, then to create the rows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from agentv.results.views import EvaluatorView, MetricsView, TableView, TokensView

FIRST_COLUMNS = (
    "eval_id",
    "dataset",
    "target",
    "trial",
    "score",
    "verdict",
    "error",
    "failure",
    "question",
    "reference_answer",
    "candidate_answer",
    "cost_usd",
    "duration_ms",
    "input_tokens",
    "output_tokens",
)
"""The columns that every table has. Those of evaluators, metadata and variables follow."""
Row = dict[str, Any]
"""The values of a row by column. Absent values are None."""
_EvaluatorKey = tuple[str, int]
"""The name of an evaluator, and its number among the evaluators of the same name in a result."""


def table_rows(results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return a row for each result of a results file, in their order."""
    views = [msgspec.convert(result, TableView) for result in results]
    columns = TableColumns()
    for view in views:
        columns.add(view)
    return [columns.row(view) for view in views]


class TableColumns:
    """The columns of a table: add all results, then make their rows."""

    def __init__(self) -> None:
        self._evaluators: dict[_EvaluatorKey, str] = {}
        self._metadata: dict[str, str] = {}
        self._vars: dict[str, str] = {}

    def add(self, result: TableView) -> None:
        """Add the columns that a result needs."""
        for key, _ in _numbered(result.evaluator_results or ()):
            if key not in self._evaluators:
                taken = self._evaluators.values()
                self._evaluators[key] = _evaluator_column(key, taken)
        for name in result.metadata or ():
            self._metadata.setdefault(name, f"metadata.{name}")
        for name in result.vars or ():
            self._vars.setdefault(name, f"vars.{name}")

    @property
    def names(self) -> list[str]:
        """The columns in their order; evaluators, metadata and variables in order of first appearance."""
        return [
            *FIRST_COLUMNS,
            *self._evaluators.values(),
            *self._metadata.values(),
            *self._vars.values(),
        ]

    def row(self, result: TableView) -> Row:
        """Return the row of a result. All rows have the columns `names`."""
        row: Row = dict.fromkeys(self.names)
        row.update(_first_cells(result))
        for key, part in _numbered(result.evaluator_results or ()):
            if not part.failed:  # the score of an evaluator that could not judge is not a judgement
                row[self._evaluators[key]] = part.score
        for name, value in (result.metadata or {}).items():
            row[self._metadata[name]] = value
        for name, value in (result.vars or {}).items():
            row[self._vars[name]] = value
        return row


def _first_cells(result: TableView) -> Row:
    """Return the values of `FIRST_COLUMNS`."""
    metrics = result.execution_metrics or MetricsView()
    usage = metrics.token_usage or TokensView()
    error = None
    if result.error is not None:
        error = str(result.error)
    score: float | None = result.score
    verdict: str | None = result.verdict
    if result.failure == "machine":  # no mean and no pass rate includes it
        score = None
        verdict = None
    return {
        "eval_id": result.eval_id,
        "dataset": result.dataset,
        "target": result.target,
        "trial": result.trial,
        "score": score,
        "verdict": verdict,
        "error": error,
        "failure": result.failure,
        "question": result.question,
        "reference_answer": result.reference_answer,
        "candidate_answer": result.candidate_answer,
        "cost_usd": metrics.cost_usd,
        "duration_ms": metrics.duration_ms,
        "input_tokens": _count(usage.input),
        "output_tokens": _count(usage.output),
    }


def _count(tokens: float | None) -> int | None:
    if tokens is None:
        return None
    return round(tokens)


def _numbered(results: Sequence[EvaluatorView]) -> Iterator[tuple[_EvaluatorKey, EvaluatorView]]:
    """Yield the results of evaluators with their keys."""
    counts: dict[str, int] = {}
    for result in results:
        number = counts.get(result.name, 0) + 1
        counts[result.name] = number
        yield (result.name, number), result


def _evaluator_column(key: _EvaluatorKey, taken: Collection[str]) -> str:
    """Return a column name for an evaluator that no other evaluator has."""
    name, number = key
    column = f"evaluator.{name}"
    if number > 1:
        column = f"{column} ({number})"
    while column in taken:  # an evaluator may have the name 'x (2)' itself
        number += 1
        column = f"evaluator.{name} ({number})"
    return column
