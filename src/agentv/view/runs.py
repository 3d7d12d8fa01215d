"""Results files and run records -> the list of runs, newest first."""

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.errors import ResultsError
from agentv.records import Problem
from agentv.redact import clean
from agentv.report.page.figures import Figures, Totals, case_sums, run_figures
from agentv.report.page.index import Rows, RunIndex
from agentv.report.page.masking import masked
from agentv.results.read import read_results
from agentv.results.runs import RUNS, RunRecord
from agentv.results.views import PageView
from agentv.view.check import check_seconds, find_problems
from agentv.view.files import DEFAULT, Catalog, ResultsFile, Stamp, stamp_of

COUNTED_BYTES = 32 << 20
"""A file without a record is counted for the list if it is at most so large; a larger one is when it is opened."""
COUNTING_SECONDS = 0.3
_TIMESTAMP = re.compile(rb'"?timestamp"?: ?["\']?([0-9T:.Z+-]{10,40})')


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as the list shows it."""

    id: str | None = None
    """None if its results are not among the files that are shown."""
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
    """What is wrong with its results file."""


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, and whether some of their figures are still to be counted."""

    runs: tuple[Run, ...]
    is_counting: bool
    folders: tuple[str, ...]


class _Count(NamedTuple):
    """What a file comes to, None if it has no results, and what is wrong with it."""

    figures: Figures | None
    problems: Sequence[Problem]


class _Counted(NamedTuple):
    """The figures of a file and what is wrong with it, as it was when it was read."""

    stamp: Stamp | None
    figures: Figures | None = None
    problem: str = ""
    not_before: float = 0.0
    """When a file that grows may be counted again: counting takes a tenth of the time at most."""


class Runs:
    """Lists the runs of a catalog. What does not change is read once."""

    def __init__(self, catalog: Catalog):
        self._catalog = catalog
        self._records: dict[Path, tuple[Stamp, Path, RunRecord | None]] = {}
        self._counted: dict[tuple[Path, bool], _Counted] = {}
        self._lock = threading.Lock()

    def list(self) -> RunList:
        """Return the runs, newest first. Files are counted for a moment in each call; then the others wait."""
        with self._lock:
            files, waits, end = self._catalog.files(), False, time.monotonic() + COUNTING_SECONDS
            records = self._read_records()
            known = {file.real for file in files.values()}
            found = [_absent(record, path) for path, record in records.items() if path not in known]
            for file in files.values():
                record, may_read = records.get(file.real), time.monotonic() < end
                has_figures = record is not None and bool(record.summary)
                counted = self._count(file, may_read=may_read, only_checks=has_figures)
                waits = waits or counted is None
                found.append(_listed(file, record, counted or _Counted(None)))
            found.sort(key=lambda run: run.started, reverse=True)
            shown = tuple(str(path) for path in self._catalog.named)
            return RunList(runs=tuple(found), is_counting=waits, folders=shown)

    def record_of(self, file: ResultsFile) -> RunRecord | None:
        """Return the newest record of a results file."""
        with self._lock:
            return self._read_records().get(file.real)

    def _read_records(self) -> dict[Path, RunRecord]:
        """Return the newest record of each results file that is shown, or would be if it stood there."""
        newest: dict[Path, RunRecord] = {}
        roots = [Path(os.path.realpath(path)) for path in self._catalog.named]
        for folder in self._catalog.folders:
            for path in (folder / RUNS).glob("*.json"):
                record = self._read_record(path)
                if record is None or not record.results:
                    continue
                results = Path(os.path.realpath(folder / record.results))
                is_shown = folder / DEFAULT in roots or any(results.is_relative_to(root) for root in roots)
                if is_shown and (results not in newest or record.started > newest[results].started):
                    newest[results] = record
        return newest

    def _read_record(self, path: Path) -> RunRecord | None:
        stamp = stamp_of(path)
        if stamp is None:
            return None
        if path not in self._records or self._records[path][0] != stamp:
            try:
                record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                record = None
            self._records[path] = stamp, path, record
        return self._records[path][2]

    def _count(self, file: ResultsFile, *, may_read: bool, only_checks: bool) -> _Counted | None:
        """Return what is in a file, as far as the list ever tells; None if it is still to be read."""
        stamp = stamp_of(file.real)
        if stamp is None or stamp[2] > COUNTED_BYTES or (only_checks and check_seconds(file) > COUNTING_SECONDS):
            return _Counted(stamp)
        counted = self._counted.get((file.real, only_checks))
        start = time.monotonic()
        if counted is not None and (counted.stamp == stamp or start < counted.not_before):
            return counted
        if not may_read:
            return None
        count = _check_file(file.real) if only_checks else count_file(file.real)
        end = time.monotonic()
        counted = _Counted(stamp, count.figures, _problem_text(count.problems), end + 10 * (end - start))
        self._counted[file.real, only_checks] = counted
        return counted


def _absent(record: RunRecord, path: Path) -> Run:
    """Return a run whose results are not among those that are shown."""
    name = record.results or ""
    note = clean(f"elsewhere: agentv view {name}") if path.exists() else "the results file is gone"
    return _run(Path(name).name, record, note=note)


def _run(name: str, record: RunRecord | None, **fields: Any) -> Run:
    """Return what the record says of a run."""
    if record is None:
        return Run(name=clean(name), **fields)
    summary, git = record.summary, record.git
    numbers = {"mean": "mean", "low": "ci_lower", "high": "ci_upper", "pass_rate": "pass_rate", "cost": "cost_usd"}
    planned = sum(cases for each in record.eval_files if isinstance(cases := each.get("cases", 0), int))
    said = {
        "run_id": record.run_id,
        "started": record.started,
        "status": record.current_status,
        "targets": tuple(dict.fromkeys(clean(str(each.get("name", ""))) for each in record.targets)),
        "commit": f"{git.commit[:9]}{'+' if git.dirty else ''}" if git else "",
        "evals": tuple(clean(Path(str(each.get("path", ""))).name) for each in record.eval_files[:20]),
        "cases": planned,
        "planned": planned,
        **{ours: _number(summary.get(theirs)) for ours, theirs in numbers.items()},
    }
    return Run(name=clean(name), **(said | fields))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _listed(file: ResultsFile, record: RunRecord | None, counted: _Counted) -> Run:
    run = _run(file.path.name, record, id=file.id, file=str(file.path))
    if record is None or not record.summary:
        run = _of_file(file, record, counted.figures)
    return msgspec.structs.replace(run, problem=counted.problem)


def _problem_text(problems: Sequence[Problem]) -> str:
    """Return what is wrong with a file, in a line."""
    if not problems:
        return ""
    first, others = problems[0], len(problems) - 1
    place = f"line {first.line}: " if first.line else ""
    return clean(f"{place}{first.message}{f' (and {others} more)' if others else ''}")


def _of_file(file: ResultsFile, record: RunRecord | None, figures: Figures | None) -> Run:
    """Return a run of which only the results tell what came of it."""
    fields: dict[str, Any] = {"id": file.id, "file": str(file.path)}
    stamp = stamp_of(file.real)
    if figures is None:
        if stamp is not None and stamp[2] > COUNTED_BYTES:
            fields["note"] = f"{stamp[2] / 1e6:,.0f} MB: counted when it is opened"
        elif stamp is not None and stamp[2] == 0:
            fields["note"] = "no results yet"
    else:
        fields |= {"mean": figures["mean"], "low": figures["mean_low"], "high": figures["mean_high"]}
        fields |= {name: figures[name] for name in ("cases", "pass_rate", "cost")}
        if record is None:
            fields |= {"targets": tuple(figures["targets"][:20]), "started": figures["started"]}
    if record is None and not fields.get("started") and stamp is not None:
        fields["started"] = _first_time(file.real) or datetime.fromtimestamp(stamp[1] / 1e9, UTC).isoformat()
    return _run(file.path.name, record, **fields)


def _first_time(path: Path) -> str:
    """Return the time of the first result, without reading more than the start of a file; empty if it has none."""
    try:
        with path.open("rb") as file:
            found = _TIMESTAMP.search(file.read(4096))
    except OSError:
        return ""
    return found[1].decode() if found else ""


def _check_file(path: Path) -> _Count:
    return _Count(None, find_problems(path, on_torn=lambda _: None))


def count_file(path: Path) -> _Count:
    """Return the figures of a small results file, and what is wrong with it."""
    index, totals, rows = RunIndex(), Totals(), Rows()
    problems: Sequence[Problem] = ()
    try:
        for view in _views(path):
            index.add(rows.number((view.dataset, view.eval_id, view.target), view.eval_id), view)
            totals.add(view)
    except ResultsError as error:
        problems = error.problems
    figures = run_figures(case_sums(index, len(rows)), totals, index.names) if len(index) else None
    return _Count(figures, problems)


def _views(path: Path) -> Iterator[PageView]:
    for record in read_results(path, PageView, on_torn=lambda _: None):
        yield masked(record).view
