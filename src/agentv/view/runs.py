"""The list of runs, from results files and run records."""

import os
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.files.state import state_folder
from agentv.records import Problem
from agentv.redact import clean
from agentv.report.page.figures import RunFigures
from agentv.results.read import unreadable
from agentv.results.runs import RunRecord, with_current_status
from agentv.view.check import check_seconds, find_file_problems
from agentv.view.files import Catalog, ResultsFile, Stamp, stamp_of
from agentv.view.incremental_index import IncrementalIndex

COUNTED_BYTES = 32 << 20
"""The maximum size of a file without a record whose figures are computed for the list."""
COUNTING_SECONDS = 0.3
"""How long one request for the list may read files."""
MAX_NAMES = 20
"""How many targets and eval files of a run are listed."""
_TIMESTAMP = re.compile(rb'"?timestamp"?: ?["\']?([0-9T:.Z+-]{10,40})')

ONLY_ERRORS: dict[str, Any] = {
    "mean": None,
    "low": None,
    "high": None,
    "pass_rate": None,
    "problem": "every case ended in an error",
}
"""The fields of a run without a single answer. It has no mean, so that it is not part of a trend."""


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run in the list."""

    id: str | None = None
    """None if its results file is not among the files of the viewer."""
    name: str
    file: str = ""
    run_id: str = ""
    started: str = ""
    status: str = ""
    targets: tuple[str, ...] = ()
    commit: str = ""
    evals: tuple[str, ...] = ()
    cases: int | None = None
    planned: int | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    pass_rate: float | None = None
    cost: float | None = None
    note: str = ""
    problem: str = ""
    """The problem of the run or its results file, or an empty string."""


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, and whether some figures are still to be computed."""

    runs: tuple[Run, ...]
    is_counting: bool
    folders: tuple[str, ...]


class _Count(NamedTuple):
    """The figures and problems of a file."""

    figures: RunFigures | None
    """None if the file has no results."""
    problems: Sequence[Problem]


class _Counted(NamedTuple):
    """The figures and the problem of a file at the time of its stamp."""

    stamp: Stamp | None
    figures: RunFigures | None = None
    problem: str = ""
    not_before: float = 0.0
    """When a growing file may be read again, so that reading takes at most a tenth of the time."""


class RunLister:
    """Lists the runs of a catalog. Files that do not change are read once."""

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._records: dict[Path, tuple[Stamp, RunRecord | None]] = {}
        self._counted: dict[tuple[Path, bool], _Counted] = {}
        self._lock = threading.Lock()

    def list(self) -> RunList:
        """Return the runs, newest first.

        Each call reads files for up to `COUNTING_SECONDS`. The figures of the other files follow in later calls.
        """
        with self._lock:
            files = self._catalog.files()
            end = time.monotonic() + COUNTING_SECONDS
            records = self._read_records()
            runs = _absent_runs(records, files.values())
            is_counting = False
            for file in files.values():
                record = records.get(file.real)
                counted = self._count(
                    file,
                    may_read=time.monotonic() < end,
                    only_checks=_has_figures(record),
                )
                if counted is None:
                    is_counting = True
                    counted = _Counted(None)
                runs.append(_listed(file, record, counted))
            runs.sort(key=lambda run: run.started, reverse=True)
            return RunList(
                runs=tuple(runs),
                is_counting=is_counting,
                folders=tuple(str(path) for path in self._catalog.named),
            )

    def record_of(self, file: ResultsFile) -> RunRecord | None:
        """Return the newest record of a results file."""
        with self._lock:
            return self._read_records().get(file.real)

    def _read_records(self) -> dict[Path, RunRecord]:
        """Return the newest record of each results file that is shown, or would be shown if it existed."""
        newest: dict[Path, RunRecord] = {}
        roots = [Path(os.path.realpath(path)) for path in self._catalog.named]
        for folder in self._catalog.folders:
            for path in (folder / state_folder("runs")).glob("*.json"):
                stored = self._read_record(path)
                if stored is None or not stored.results:
                    continue
                record = with_current_status(path, stored)
                results = Path(os.path.realpath(folder / stored.results))
                # The default folder shows all runs of its project, wherever their results are.
                is_default = folder / state_folder("results") in roots
                if not is_default and not any(results.is_relative_to(root) for root in roots):
                    continue
                if results not in newest or record.started > newest[results].started:
                    newest[results] = record
        return newest

    def _read_record(self, path: Path) -> RunRecord | None:
        """Return a run record; None if it cannot be read."""
        stamp = stamp_of(path)
        if stamp is None:
            return None
        if path in self._records:
            known_stamp, known_record = self._records[path]
            if known_stamp == stamp:
                return known_record
        try:
            record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            record = None
        self._records[path] = (stamp, record)
        return record

    def _count(
        self,
        file: ResultsFile,
        *,
        may_read: bool,
        only_checks: bool,
    ) -> _Counted | None:
        """Return the figures and the problem of a file; None if it is still to be read.

        The result is empty if the file is too large to be read for the list.
        """
        stamp = stamp_of(file.real)
        if stamp is None or stamp.size > COUNTED_BYTES:
            return _Counted(stamp)
        if only_checks and check_seconds(file) > COUNTING_SECONDS:
            return _Counted(stamp)
        key = (file.real, only_checks)
        counted = self._counted.get(key)
        start = time.monotonic()
        if counted is not None and (counted.stamp == stamp or start < counted.not_before):
            return counted
        if not may_read:
            return None
        count = _read_file(file.real, only_checks=only_checks)
        end = time.monotonic()
        counted = _Counted(
            stamp=stamp,
            figures=count.figures,
            problem=_problem_text(count.problems),
            not_before=end + 10 * (end - start),  # a growing file takes at most a tenth of the time
        )
        self._counted[key] = counted
        return counted


def _has_figures(record: RunRecord | None) -> bool:
    return record is not None and bool(record.summary)


def _absent_runs(records: Mapping[Path, RunRecord], files: Iterable[ResultsFile]) -> list[Run]:
    """Return the runs whose results file is not among the files of the viewer."""
    shown = {file.real for file in files}
    runs = []
    for path, record in records.items():
        if path not in shown:
            runs.append(_absent(record, path))
    return runs


def _absent(record: RunRecord, path: Path) -> Run:
    name = record.results or ""
    note = "the results file no longer exists"
    if path.exists():
        note = clean(f"in another folder: agentv view {name}")
    return _run(Path(name).name, record, note=note)


def _run(name: str, record: RunRecord | None, **fields: Any) -> Run:
    """Return a run with the values of its record. The given fields override them."""
    if record is None:
        return Run(name=clean(name), **fields)
    values = _record_values(record) | fields
    return Run(name=clean(name), **values)


def _record_values(record: RunRecord) -> dict[str, Any]:
    """Return the fields of a `Run` that its record has."""
    summary = record.summary
    planned = _planned_cases(record)
    commit = ""
    if record.git is not None:
        commit = record.git.label
    targets = [clean(str(target.get("name", ""))) for target in record.targets]
    evals = []
    for eval_file in record.eval_files[:MAX_NAMES]:
        path = Path(str(eval_file.get("path", "")))
        evals.append(clean(path.name))
    values = {
        "run_id": record.run_id,
        "started": record.started,
        "status": record.status,
        "targets": tuple(dict.fromkeys(targets)),
        "commit": commit,
        "evals": tuple(evals),
        "cases": planned,
        "planned": planned,
        "mean": _number(summary.get("mean")),
        "low": _number(summary.get("ci_lower")),
        "high": _number(summary.get("ci_upper")),
        "pass_rate": _number(summary.get("pass_rate")),
        "cost": _number(summary.get("cost_usd")),
    }
    if record.has_only_errors:
        values |= ONLY_ERRORS
    return values


def _planned_cases(record: RunRecord) -> int:
    planned = 0
    for eval_file in record.eval_files:
        cases = eval_file.get("cases", 0)
        if isinstance(cases, int):
            planned += cases
    return planned


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    return None


def _listed(
    file: ResultsFile,
    record: RunRecord | None,
    counted: _Counted,
) -> Run:
    """Return a run with the figures of its record; without these, with the figures of its results file."""
    if _has_figures(record):
        run = _run(file.path.name, record, id=file.id, file=str(file.path))
    else:
        run = _run_of_file(file, record, counted.figures)
    problems = [run.problem, counted.problem]
    return msgspec.structs.replace(run, problem="; ".join(filter(None, problems)))


def _problem_text(problems: Sequence[Problem]) -> str:
    """Return the first problem of a file and the number of the others, on one line."""
    if not problems:
        return ""
    first = problems[0]
    text = first.message
    if first.line:
        text = f"line {first.line}: {text}"
    others = len(problems) - 1
    if others:
        text = f"{text} (and {others} more)"
    return clean(text)


def _run_of_file(
    file: ResultsFile,
    record: RunRecord | None,
    figures: RunFigures | None,
) -> Run:
    """Return a run whose figures are known only from its results file."""
    fields: dict[str, Any] = {
        "id": file.id,
        "file": str(file.path),
    }
    stamp = stamp_of(file.real)
    if figures is not None:
        fields |= _figure_values(figures)
        if record is None:
            fields["targets"] = figures.targets[:MAX_NAMES]
            fields["started"] = figures.started
    elif stamp is not None:
        size = stamp.size
        if size > COUNTED_BYTES:
            fields["note"] = f"{size / 1e6:,.0f} MB: open the run to count its results"
        elif size == 0:
            fields["note"] = "no results yet"
    if record is None and not fields.get("started") and stamp is not None:
        modified = datetime.fromtimestamp(stamp.modified_ns / 1e9, UTC)
        fields["started"] = _first_time(file.real) or modified.isoformat()
    return _run(file.path.name, record, **fields)


def _figure_values(figures: RunFigures) -> dict[str, Any]:
    """Return the fields of a `Run` that are known from its results."""
    values = {
        "cases": figures.cases,
        "mean": figures.mean,
        "low": figures.mean_low,
        "high": figures.mean_high,
        "pass_rate": figures.pass_rate,
        "cost": figures.cost,
    }
    if figures.target_errors + figures.timeouts == figures.results:
        values |= ONLY_ERRORS
    return values


def _first_time(path: Path) -> str:
    """Return the first timestamp near the start of a file; empty if there is none."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError:
        return ""
    found = _TIMESTAMP.search(start)
    if not found:
        return ""
    return found[1].decode()


def _read_file(path: Path, *, only_checks: bool) -> _Count:
    """Read a file. With `only_checks`, its figures are not computed.

    A truncated last result is not a problem: the file may still grow.
    """
    if only_checks:
        problems = find_file_problems(path)
        return _Count(None, problems.errors)
    index = IncrementalIndex(path)
    try:
        index.read_to_end()
    except OSError as error:
        problem = Problem.of(unreadable(error, path))
        return _Count(None, [problem])
    with closing(index):
        return _Count(index.figures(), index.find_problems().errors)
