"""Remove what earlier runs left below `.agentv`, except what belongs to the runs that are kept."""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from agentv.batches.journal import Journal
from agentv.batches.judging import PENDING
from agentv.errors import OutputError, ResultsError
from agentv.files.state import StateKind, state_folder
from agentv.results.formats import JSONL, YAML
from agentv.results.locate import locate_results, results_path
from agentv.results.runs import RunRecord, read_runs

DAY_SECONDS = 86_400
TIMED_KINDS: tuple[StateKind, ...] = ("cache", "logs", "prompts", "pytest", "traces")
"""Files that several runs may share. They are kept if they were written or used since the oldest kept run started."""
SNIFFED_BYTES = 16


class Removal(NamedTuple):
    """What to remove and what to keep."""

    paths: tuple[Path, ...]
    runs: int
    """How many runs are removed."""
    kept_runs: int
    size: int
    """The size of the removed files in bytes."""


def clean_state(keep_days: float | None, keep_runs: int | None, *, is_dry_run: bool) -> Removal:
    """Remove everything that no kept run refers to. A run is kept if it is among the newest, recent enough, or running.

    Raise `OutputError` if something cannot be removed.
    """
    now = time.time()
    records = read_runs()
    kept = [record for number, record in enumerate(records) if _is_kept(record, number, now, keep_days, keep_runs)]
    since = min([now, *map(_started, kept)])
    if keep_days is not None:
        since = min(since, now - keep_days * DAY_SECONDS)
    paths = [*_run_files(records, kept, since), *_timed_files(since), *_batch_files(since)]
    removal = Removal(
        paths=tuple(paths),
        runs=len(records) - len(kept),
        kept_runs=len(kept),
        size=sum(map(_size, paths)),
    )
    if not is_dry_run:
        for path in paths:
            _remove(path)
    return removal


def _is_kept(
    record: RunRecord,
    number: int,
    now: float,
    keep_days: float | None,
    keep_runs: int | None,
) -> bool:
    """Return whether a run stays. `number` counts the runs from the newest, from 0."""
    if record.status == "running":
        return True
    if keep_runs is not None and number < keep_runs:
        return True
    return keep_days is not None and _started(record) >= now - keep_days * DAY_SECONDS


def _started(record: RunRecord) -> float:
    """Return when a run started, in seconds since the epoch; 0 if the record does not say it."""
    try:
        return datetime.fromisoformat(record.started).timestamp()
    except ValueError:
        return 0.0


def _run_files(records: Sequence[RunRecord], kept: Sequence[RunRecord], since: float) -> Iterator[Path]:
    """Yield the records, results, backups and workspaces of runs that are not kept."""
    kept_ids = {record.run_id for record in kept}
    for record in records:
        if record.run_id in kept_ids:
            continue
        for suffix in (".json", ".lock"):
            path = state_folder("runs") / f"{record.run_id}{suffix}"
            if path.exists():
                yield path
        workspace = state_folder("workspaces") / record.run_id
        if workspace.is_dir():
            yield workspace
    in_use = _results_in_use(kept)
    for path in _files_in(state_folder("results")):
        if os.path.realpath(path) in in_use or not _is_older(path, since):
            continue
        if _holds_results(path) and not _is_locked(path):
            yield path


def _holds_results(path: Path) -> bool:
    """Return whether a file holds results, or nothing: a run that was killed may leave an empty file."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        start = file.read(SNIFFED_BYTES)
        return not start or start.startswith((JSONL.start, YAML.start))
    return False


def _results_in_use(kept: Sequence[RunRecord]) -> set[str]:
    """Return the files with results of the runs that are kept: results files, or backups of them."""
    found: set[str] = set()
    for record in kept:
        path = results_path(record)
        if path is not None:
            found.add(os.path.realpath(path))
        with contextlib.suppress(OutputError, ResultsError):  # a run without results, or with a broken file
            found.add(os.path.realpath(locate_results(record).path))
    return found


def _timed_files(since: float) -> Iterator[Path]:
    for kind in TIMED_KINDS:
        for path in _files_in(state_folder(kind)):
            if _is_older(path, since):
                yield path


def _batch_files(since: float) -> Iterator[Path]:
    """Yield what batch programs left behind. The journal removes batches itself once all their replies are used."""
    folder = state_folder("batches")
    if not folder.is_dir():
        return
    journaled = {batch.folder.name for batch in Journal().batches()}
    for path in sorted(folder.iterdir()):
        if path.name in journaled or path.name.startswith("."):
            continue
        if path.name == PENDING and journaled:
            continue  # cases that wait for the replies of these batches
        if _is_older(path, since):
            yield path


def _files_in(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            yield Path(parent, name)


def _is_older(path: Path, since: float) -> bool:
    """Return whether a file was last written or used before a time. A missing one is not."""
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime < since
    return False


def _is_locked(path: Path) -> bool:
    """Return whether a run is writing to a results file."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(map(_size, _files_in(path)))
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _remove(path: Path) -> None:
    """Remove a file or folder, and the folders that are empty then, up to the state folder."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be removed: {error.strerror}", file=path) from error
    parent = path.parent
    while parent not in (parent.parent, _root()):
        try:
            parent.rmdir()
        except OSError:
            return
        parent = parent.parent


def _root() -> Path:
    return state_folder("runs").parent
