"""The report of a run: its results in the order of its cases, and what can be derived from them."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentv.api.arguments import Paths, result_paths
from agentv.api.keywords import keyword_messages
from agentv.cases.objects import CaseObjects
from agentv.errors import ConfigError, ResultsError, closest
from agentv.files.encode import to_json
from agentv.files.folders import repo_root
from agentv.log import ignore
from agentv.records import CaseKey, EvalResult, Problem
from agentv.redact import clean
from agentv.report.case import case_lines
from agentv.results.read import FOREIGN_HINT, read_results
from agentv.results.runs import RunRecord, read_runs
from agentv.results.summary import Summary
from agentv.results.views import ResultRow
from agentv.run.exit_code import ExitReason, code_of
from agentv.run.planning.plan import Plan
from agentv.run.report import RunReport
from agentv.run.resume import Resumed
from agentv.text import path_text

if TYPE_CHECKING:  # a feature, which a run need not have
    from agentv.trust.health.record import JudgeHealth


class EvalReport(NamedTuple):
    """The results of a run, one for each trial of a case, in the order of the cases, and their summary."""

    results: tuple[EvalResult, ...]
    summary: Summary
    judge_health: "JudgeHealth | None" = None
    """Figures about the judges, if the run has any."""
    metrics: Mapping[str, Any] = {}
    """The metrics of the run by name, as in its record."""
    exit_code: int = 0
    """The exit code that `agentv eval` would return."""

    def to_records(self) -> list[dict[str, Any]]:
        """Return the results as plain dictionaries, as in a results file."""
        records = []
        for result in self.results:
            encoded = to_json(result)
            records.append(msgspec.json.decode(encoded))
        return records

    def table(self) -> list[dict[str, Any]]:
        """Return one flat row per result, all with the same columns: those of `agentv export`. Absent values are None.

        Pass the rows to pandas or polars to make a data frame.
        """
        from agentv.results.table import table_rows

        return table_rows(self.to_records())

    def by(self, *keys: str) -> list[dict[str, Any]]:
        """Return one row per group of cases with the same values of these fields, metadata keys or evaluators.

        Raise `AgentvError` for a key that no result has.
        """
        from agentv.results.groups import group_rows

        names: Sequence[Any] = keys
        are_names = all(isinstance(name, str) and name for name in names)
        if not names or not are_names:
            raise ConfigError("by needs the names of fields or metadata keys", hint="for example report.by('dataset')")
        return group_rows(self.results, keys)

    def case(self, eval_id: str) -> "CaseView":
        """Return what `agentv show` prints for a case, with all its trials. Raise `AgentvError` for an unknown id."""
        found = []
        ids: dict[str, None] = {}
        for record in self.to_records():
            id_ = record["eval_id"]
            ids[id_] = None
            if id_ == eval_id:
                found.append(record)
        if found:
            return CaseView(tuple(found))
        hint = "report.results has the results of all cases"
        close = closest(str(eval_id), list(ids))
        if close:
            hint = f"did you mean {close!r}?"
        raise ConfigError(f"no result with id {eval_id!r}", hint=hint)

    def __repr__(self) -> str:
        """Return the figures, not all results, for an interpreter that shows the report as a value."""
        from agentv.report.notebook import headline

        return f"<EvalReport: {headline(self.summary)}>"

    def _repr_html_(self) -> str:
        """Return a summary for a notebook."""
        from agentv.report.notebook import summary_html

        return summary_html(self.summary, clean)


@dataclass(frozen=True, repr=False)
class CaseView:
    """The results of a case, as text when printed and as HTML in a notebook."""

    results: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        shown = []
        for result in self.results:
            lines = case_lines(result)
            text = clean("\n".join(lines))
            shown.append(text)
        return "\n\n".join(shown)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        text = escape(str(self))
        return f"<pre>{text}</pre>"


def report_of(
    report: RunReport,
    new: Sequence[EvalResult],
    reason: ExitReason,
) -> EvalReport:
    """Return the report of a run: its own results, and those kept from the run that it resumed."""
    results = list(new)
    if report.earlier is not None:
        results += _kept_results(report.earlier, report.plan)
    order = _order_of(report.plan)
    results.sort(key=order)
    return EvalReport(
        results=tuple(results),
        summary=report.summary,
        judge_health=report.judge_health,
        metrics=report.metrics,
        exit_code=code_of(reason),
    )


def _kept_results(earlier: Resumed, plan: Plan) -> Iterator[EvalResult]:
    """Yield the results of an earlier run that are still valid, each with the position that its case has now."""
    positions: dict[CaseKey, int] = {}
    for file in plan.files:
        for case in plan.cases_of(file):
            key = CaseKey(
                dataset=clean(case.dataset),
                eval_id=clean(case.id),
            )
            positions[key] = case.position
    path = earlier.file.path
    for stored in read_results(path, ResultRow, on_truncated=ignore):
        row = stored.view
        if row.trial_key not in earlier.stands:
            continue
        result = _decoded(stored.raw, path)
        position = positions.get(row.case_key, result.position)
        yield msgspec.structs.replace(result, position=position)


class _Order:
    """Sorts results by case, then target and trial."""

    def __init__(self, files: Iterable[str | None] = ()):
        self._files: dict[str | None, int] = {}
        """The rank of each eval file. A file that is not known yet comes after all others."""
        for file in files:
            self._rank(file)

    def _rank(self, file: str | None) -> int:
        next_rank = len(self._files)
        return self._files.setdefault(file, next_rank)

    def rank(self, result: EvalResult) -> float:
        """Return the sort key that precedes the position of the case."""
        return self._rank(result.file)

    def __call__(self, result: EvalResult) -> tuple[float, float, str, int]:
        position = math.inf
        if result.position is not None:
            position = result.position
        trial = result.trial or 1
        return self.rank(result), position, result.target, trial


class _ObjectOrder(_Order):
    """Sorts the results of cases in memory, which may be of several datasets and files."""

    def __init__(self, objects: CaseObjects):
        super().__init__()
        self._objects = objects

    def rank(self, result: EvalResult) -> float:
        index = self._objects.index(result.dataset, result.eval_id)
        if index < 0:
            return math.inf  # its id is masked
        return index


def _order_of(plan: Plan) -> _Order:
    """Return the order of the results of a plan: that of its eval files, or of its cases in memory."""
    if plan.source.objects is not None:
        return _ObjectOrder(plan.source.objects)
    files = []
    for file in plan.files:
        path = plan.folder / file.path
        root = repo_root(path.parent) or plan.folder
        relative = os.path.relpath(path, root)
        name = relative.replace(os.sep, "/")
        files.append(path_text(name))
    return _Order(files)


def load_results(paths: Paths) -> EvalReport:
    """Return the report of a results file, or of the files of all shards of a run.

    Raise `AgentvError` if a file cannot be read.
    """
    with keyword_messages():
        return _load(paths)


def _load(paths: Paths) -> EvalReport:
    from agentv.compare.metrics import metrics_of_run  # not needed for the report of a run that has just ended

    files = result_paths("paths", paths)
    results: list[EvalResult] = []
    for file in files:
        for stored in read_results(file, ResultRow, on_truncated=ignore):
            result = _decoded(stored.raw, file)
            results.append(result)
    results.sort(key=_Order())
    code = 0
    record = _record_of(results)
    if record is not None:
        code = record.exit_code or 0
    eval_files = {result.file for result in results}
    shards = {result.shard for result in results}
    return EvalReport(
        results=tuple(results),
        summary=_summary_of(results),
        metrics=metrics_of_run(files, eval_files, shards, record),
        exit_code=code,
    )


def _summary_of(results: Sequence[EvalResult]) -> Summary:
    trials = 1
    cases = set()
    for result in results:
        trials = max(trials, result.trial or 1)
        key = CaseKey(result.dataset, result.eval_id)
        cases.add(key)
    summary = Summary(len(cases), trials=trials, clean=clean)
    for result in results:
        summary.add(result)
    return summary


def _decoded(raw: bytes, file: Path) -> EvalResult:
    try:
        return msgspec.json.decode(raw, type=EvalResult)
    except msgspec.MsgspecError as error:
        problem = Problem(
            message=f"not a result of agentv: {error}",
            file=file,
            hint=FOREIGN_HINT,
        )
        raise ResultsError([problem]) from None


def _record_of(results: Sequence[EvalResult]) -> RunRecord | None:
    """Return the record of the newest run that wrote some of these results, if there is one."""
    ids = {result.run_id for result in results}
    for record in read_runs():
        if record.run_id in ids:
            return record
    return None
