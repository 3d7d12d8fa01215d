"""Find the results of a recorded run: in its results file or, after that was replaced, in a backup of it."""

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentv.errors import OutputError
from agentv.log import ignore
from agentv.results.read import read_result_blocks
from agentv.results.runs import RunRecord, read_runs
from agentv.results.views import ResultRow
from agentv.text import path_of_text


class RunResults(NamedTuple):
    """The file that has the results of a run."""

    path: Path
    run_ids: frozenset[str] | None = None
    """The ids of the run and of those that it resumed, if the file has results of other runs as well."""


def locate_results(record: RunRecord) -> RunResults:
    """Return the results file of a run. Raise `OutputError` if it no longer exists, or if the run did not write one."""
    path = results_path(record)
    if path is None:
        raise OutputError(f"run {record.run_id} has no results file", hint="see 'agentv runs'")
    ids = run_ids(record)
    for candidate in _candidates(path):
        has_results, has_others = _look_for(candidate, ids)
        if has_results and has_others:
            return RunResults(candidate, ids)
        if has_results:
            return RunResults(candidate)
    raise OutputError(
        f"the results of run {record.run_id} are missing: neither this file nor a backup contains them",
        file=path,
        hint="'agentv runs' lists the runs of this folder",
    )


def find_results(source: str) -> RunResults | None:
    """Return the results file with this path, otherwise that of the newest run with this name or id.

    Return None if there is neither. Raise `OutputError` if the results of the run no longer exist.
    """
    path = Path(source)
    if path.exists():
        return RunResults(path)
    for run in read_runs():
        if source in (run.run_id, run.name):
            return locate_results(run)
    return None


def results_file(source: Path) -> Path:
    """Return this results file or, if it does not exist, that of the newest run with this name or id.

    Return the path unchanged if neither exists. Raise `OutputError` if the run's file also has
    results of other runs.
    """
    found = find_results(str(source))
    if found is None:
        return source
    if found.run_ids is not None:
        raise OutputError(
            f"run {str(source)!r} shares its results file with other runs",
            file=found.path,
            hint="pass the file to use all of its results, or see those of the run with 'agentv show'",
        )
    return found.path


def results_path(record: RunRecord) -> Path | None:
    """Return the path of a run's results file, or None if it has none, for example because they went to stdout."""
    if not record.results or record.results == "-":
        return None
    path = path_of_text(record.results)
    folder = path_of_text(record.cwd)
    if record.cwd and folder != Path.cwd():
        return folder / path
    return path


def run_ids(record: RunRecord) -> frozenset[str]:
    """Return the ids of a run and of the runs that it resumed."""
    return frozenset((record.run_id, *record.resumed_runs))


def is_results_file_of(record: RunRecord, path: Path) -> bool:
    """Return whether a file still has the results of its run, judging by the first one. True for an empty file."""
    ids = run_ids(record)
    first_block = next(read_result_blocks(path, ResultRow, ignore), None)
    if first_block is None:
        return True
    return first_block.views[0].run_id in ids


def _candidates(path: Path) -> Iterator[Path]:
    """Yield the existing files that may have the results: the results file, then its backups, newest first."""
    real = Path(os.path.realpath(path))
    if real.is_file():
        yield path
    backups = [beside for beside in real.parent.glob(f"{glob.escape(real.name)}.bak*") if beside.is_file()]
    yield from sorted(backups, key=lambda backup: backup.stat().st_mtime_ns, reverse=True)


def _look_for(path: Path, ids: frozenset[str]) -> tuple[bool, bool]:
    """Return whether a file has results of these runs, and whether it has results of others."""
    has_results = False
    has_others = False
    for block in read_result_blocks(path, ResultRow, ignore):
        for row in block.views:
            if row.run_id in ids:
                has_results = True
            else:
                has_others = True
        if has_results and has_others:
            break
    return has_results, has_others
