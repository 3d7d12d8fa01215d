"""Run records in `.agentv/runs/<run_id>.json`: written when a run starts, and again when it ends."""

import os
import platform
import secrets
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentv import __version__
from agentv.errors import OutputError
from agentv.notices import warn
from agentv.records import Problem
from agentv.redact import Redactor
from agentv.system.atomic_files import write_atomically

RUNS = Path(".agentv/runs")
GIT_SECONDS = 10
_START_TIME = 19
"""The index of `starttime` in `/proc/PID/stat`, counted from the field after the name."""
Status = Literal["running", "done", "interrupted", "failed", "killed"]


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Git state of the working directory when a run started."""

    commit: str
    branch: str | None = None
    dirty: bool | None = None
    """Whether there were uncommitted changes; omitted in old records if there were none."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a run; `started` distinguishes it from a later process with the same id."""

    pid: int
    started: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the process is still running."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it exists, and belongs to another user
        return not self.started or self.started == _start_of(self.pid)


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one run: how it was started, and how it ended."""

    run_id: str
    status: Status
    command: tuple[str, ...] = ()
    started: str = ""
    ended: str | None = None
    git: Commit | None = None
    agentv: str = ""
    python: str = ""
    eval_files: tuple[dict[str, Any], ...] = ()
    targets: tuple[dict[str, Any], ...] = ()
    results: str | None = None
    shard: str | None = None
    """The shard of a sharded run, such as `2/4`."""
    ledger: dict[str, int] = {}
    summary: dict[str, Any] = {}
    judge_health: dict[str, Any] | None = None
    """The health of its judges, or None for a run without judges."""
    exit_code: int | None = None
    process: Process | None = None

    @property
    def current_status(self) -> Status:
        """The status, or `killed` for a run that never ended and whose process is gone."""
        if self.status != "running":
            return self.status
        if self.process is not None and self.process.is_alive:
            return self.status
        return "killed"


def new_run_id() -> str:
    """Return an id for a run that starts now, sortable by time."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class RunLog:
    """Writes the record of one run. A record that cannot be written causes a warning and never stops the run."""

    def __init__(self, folder: Path, record: RunRecord, clean: Redactor):
        self._path = folder.absolute() / f"{record.run_id}.json"
        self._clean = clean
        self.record = record
        self._write()

    def end(
        self,
        *,
        status: Status,
        exit_code: int,
        ledger: Mapping[str, int],
        summary: Mapping[str, Any],
        judge_health: Any = None,
    ) -> None:
        """Record how the run ended."""
        known = {name: value for name, value in summary.items() if value is not None}
        self.record = msgspec.structs.replace(
            self.record,
            status=status,
            ended=_now(),
            exit_code=exit_code,
            ledger=dict(ledger),
            summary=known,
            judge_health=msgspec.to_builtins(judge_health),
            process=None,
        )
        self._write()

    def _write(self) -> None:
        plain = msgspec.json.decode(msgspec.json.encode(self.record))
        masked = msgspec.json.encode(self._clean.values(plain))
        try:
            write_atomically(self._path, [msgspec.json.format(masked, indent=2), b"\n"])
        except OutputError as error:
            message = f"the record of this run {error.message}"
            warn(Problem(message=message, severity="warning", file=self._path))


def new_record(run_id: str, command: tuple[str, ...], **fields: Any) -> RunRecord:
    """Return the record of a run that starts now, in the working directory."""
    return RunRecord(
        run_id=run_id,
        status="running",
        command=command,
        started=_now(),
        git=_commit(),
        agentv=__version__,
        python=platform.python_version(),
        process=Process(pid=os.getpid(), started=_start_of(os.getpid())),
        **fields,
    )


def read_runs(folder: Path = RUNS) -> list[RunRecord]:
    """Return the records in a folder, newest first; warn about those that cannot be read."""
    found = []
    for path in folder.glob("*.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=RunRecord))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            warn(Problem(message=f"this run record cannot be read: {error}", severity="warning", file=path))
    return sorted(found, key=lambda run: run.started, reverse=True)


def _commit() -> Commit | None:
    """Return the commit of the working directory, or None outside a repository or without Git."""
    command = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    if ran.returncode != 0:
        return None
    headers: dict[str, str] = {}
    is_dirty = False
    for line in ran.stdout.splitlines():
        if line.startswith("# branch."):
            name, value = line.removeprefix("# ").split(" ", 1)
            headers[name] = value
        elif not line.startswith("#"):
            is_dirty = True
    commit = headers.get("branch.oid")
    if commit is None or commit == "(initial)":
        return None
    branch = headers.get("branch.head")
    if branch == "(detached)":
        branch = None
    return Commit(commit=commit, branch=branch, dirty=is_dirty)


def _start_of(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, or an empty string where it is unknown."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    # the second field is the name in parentheses, which may contain spaces; see proc(5)
    _, _, after_name = line.rpartition(b")")
    fields = after_name.split()
    if len(fields) <= _START_TIME:
        return ""
    return fields[_START_TIME].decode()


def _now() -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return now.replace("+00:00", "Z")
