"""Run records in `.agentv/runs/<run_id>.json`: written when a run starts, and again when it ends."""

import contextlib
import fcntl
import os
import platform
import pwd
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv import __version__
from agentv.errors import OutputError
from agentv.files.atomic_files import write_atomically
from agentv.files.state import state_folder
from agentv.log import warn
from agentv.processes.identity import is_running, start_time_of
from agentv.records import Problem
from agentv.redact import Redactor
from agentv.results.git_state import Commit
from agentv.stats.metrics import MetricValue
from agentv.text import path_text, timestamp_now

LABELS = Path(".agentv/labels.jsonl")
"""The human labels of a project. Declared here because commands check for it before they import its reader."""
Status = Literal["running", "done", "interrupted", "failed", "killed"]


class RunProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a run; `started` distinguishes it from a later process with the same id."""

    pid: int
    """The process id."""
    started: str = ""
    """When the process was started, in clock ticks since boot, if known."""

    @property
    def is_alive(self) -> bool:
        """Whether the process is still running."""
        return is_running(self.pid, self.started)


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one run: how it was started, and how it ended."""

    run_id: str
    """The id of the run, also in each of its results."""
    status: Status
    """How the run ended; `killed` if its process exited without completing the record."""
    name: str | None = None
    """The name that `--name` gave to the run."""
    command: tuple[str, ...] = ()
    """The command line, as a list of arguments."""
    started: str = ""
    """When the run started, in UTC."""
    ended: str | None = None
    """When the run ended, in UTC."""
    user: str = ""
    """The user who started the run."""
    host: str = ""
    """The machine on which the run was started."""
    git: Commit | None = None
    """The Git commit of the eval files and targets files."""
    agentv: str = ""
    """The version of agentv."""
    python: str = ""
    """The version of Python."""
    eval_files: tuple[dict[str, Any], ...] = ()
    """For each eval file, its `path` and its number of planned `cases`."""
    targets: tuple[dict[str, Any], ...] = ()
    """For each target, its `name`, `provider`, `model`, version (`digest`) and what the version covers (`parts`)."""
    cwd: str = ""
    """The folder in which the run was started. Paths in the record are relative to it."""
    results: str | None = None
    """The path of the results file."""
    resumed_runs: tuple[str, ...] = ()
    """The earlier runs whose results this run kept in its results file."""
    shard: str | None = None
    """The shard of a sharded run, such as `2/4`."""
    dry_run: bool = False
    """Whether a mock answered instead of the targets."""
    ledger: dict[str, int] = {}
    """The number of planned results, and what became of them: `scored`, `target_errors`, `not_run` and so on."""
    summary: dict[str, Any] = {}
    """The known figures: mean, confidence interval, pass rate, costs in US dollars, tokens and duration."""
    metrics: dict[str, MetricValue] = {}
    """The metrics of the eval files over their results."""
    judge_health: dict[str, Any] | None = None
    """The health of the judges, if the run had any."""
    exit_code: int | None = None
    """The exit code of the command."""
    exit_reason: str | None = None
    """The reason for the exit code: `ok`, `gate`, `errors` and so on."""
    process: RunProcess | None = None
    """The process of the run, while it runs."""

    @property
    def has_only_errors(self) -> bool:
        """Whether every case that the run called its target for ended in an error."""
        failed = sum(self.ledger.get(name, 0) for name in ("target_errors", "timeouts", "machine_failures"))
        other = sum(self.ledger.get(name, 0) for name in ("scored", "judge_failures", "already_done"))
        return failed > 0 and not other


def new_run_id() -> str:
    """Return an id for a run that starts now, sortable by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class RunLog:
    """Writes the record of one run. A record that cannot be written causes a warning and never stops the run.

    The run holds a lock until its process ends, which shows others that it is running, also in other PID namespaces.
    """

    def __init__(self, folder: Path, record: RunRecord, clean: Redactor, copy: Path | None = None):
        """Start the record. `copy` is a second file to write it to; raise `OutputError` if that is not possible."""
        self._path = folder.absolute() / f"{record.run_id}.json"
        self._copy = copy
        self._clean = clean
        self.record = record
        self._can_write = True
        # The lock comes first: without it, a record in another PID namespace would be that of a killed run.
        self._lock = _hold_lock(self._path)
        self._write()

    def end(self, **outcome: Any) -> None:
        """Record how the run ended: the fields of the record that are known only now."""
        self.record = msgspec.structs.replace(
            self.record,
            ended=timestamp_now(),
            process=None,
            **outcome,
        )
        self._write()
        self._release()

    def _write(self) -> None:
        encoded = msgspec.json.encode(self.record)
        plain = msgspec.json.decode(encoded)
        masked = msgspec.json.encode(self._clean.values(plain))
        content = msgspec.json.format(masked, indent=2)
        if self._copy is not None and self.record.ended is None:
            write_atomically(self._copy, [content, b"\n"])  # the run does not start without it
        elif self._copy is not None:
            self._write_file(self._copy, content)
        if self._can_write:
            self._can_write = self._write_file(self._path, content)

    def _write_file(self, path: Path, content: bytes) -> bool:
        """Write the record and return True; warn and return False if that is not possible."""
        try:
            write_atomically(path, [content, b"\n"])
        except OutputError as error:
            message = f"the record of this run {error.message}"
            warn(Problem(message=message, severity="warning", file=path))
            return False
        return True

    def _release(self) -> None:
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            _lock_file(self._path).unlink()
        os.close(self._lock)
        self._lock = None


def _lock_file(record: Path) -> Path:
    return record.with_suffix(".lock")


def _hold_lock(record: Path) -> int | None:
    """Return the descriptor of the locked lock file of a record; None where files cannot be locked."""
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(_lock_file(record), os.O_CREAT | os.O_RDWR, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            _lock_file(record).unlink()
        return None
    return descriptor


def new_record(run_id: str, command: tuple[str, ...], **fields: Any) -> RunRecord:
    """Return the record of a run that starts now."""
    pid = os.getpid()
    return RunRecord(
        run_id=run_id,
        status="running",
        command=command,
        started=timestamp_now(),
        cwd=path_text(os.getcwd()),
        user=_user_name(),
        host=platform.node(),
        agentv=__version__,
        python=platform.python_version(),
        process=RunProcess(pid=pid, started=start_time_of(pid)),
        **fields,
    )


def _user_name() -> str:
    """Return the name of the user, or the uid of one without a name, as in many containers."""
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def read_runs(folder: Path | None = None) -> list[RunRecord]:
    """Return the records in a folder, newest first; warn about those that cannot be read.

    Without a folder, read those of the current project. A run whose process exited without completing the
    record is `killed`. Raise `OutputError` if the folder cannot be read.
    """
    if folder is None:
        folder = state_folder("runs")
    found = []
    for path in _record_files(folder):
        try:
            record = read_run_record(path)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            problem = Problem(
                message=f"this run record cannot be read: {error}",
                severity="warning",
                file=path,
            )
            warn(problem)
        else:
            found.append(record)
    return sorted(found, key=lambda run: run.started, reverse=True)


def known_runs(folder: Path | None = None) -> list[RunRecord]:
    """Return the records in a folder, as `read_runs` does; with a warning, none if it cannot be read."""
    try:
        return read_runs(folder)
    except OutputError as error:
        warning = msgspec.structs.replace(Problem.of(error), severity="warning")
        warn(warning)
        return []


def read_run_record(path: Path) -> RunRecord:
    """Return a record with its current status. Raise `OSError`, `MsgspecError` or `UnicodeDecodeError`."""
    encoded = path.read_bytes()
    record = msgspec.json.decode(encoded, type=RunRecord)
    return with_current_status(path, record)


def with_current_status(path: Path, record: RunRecord) -> RunRecord:
    """Return the record in this file. It is `killed` if its process exited without completing it."""
    if record.status == "running" and not _is_running(path, record):
        return msgspec.structs.replace(record, status="killed")
    return record


def _record_files(folder: Path) -> Sequence[Path]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise OutputError(f"the records of runs cannot be read: {error.strerror}", file=folder) from error
    return [folder / name for name in names if name.endswith(".json")]


def _is_running(path: Path, record: RunRecord) -> bool:
    """Return whether the run of a record still holds its lock or, without a lock file, whether its process exists."""
    try:
        descriptor = os.open(_lock_file(path), os.O_RDONLY)
    except OSError:
        return record.process is not None and record.process.is_alive
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
