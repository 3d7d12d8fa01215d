"""Run records: what a run did, in `.agentv/runs/<run_id>.json`, written when it starts and again when it ends."""

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
Status = Literal["running", "done", "interrupted", "failed", "killed"]


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the repo around the folder that a run was started in."""

    commit: str
    branch: str | None = None
    dirty: bool | None = None
    """Whether there were changes that are in no commit; old records leave it out if there were none."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a run; `started` tells it from a later one with the same id."""

    pid: int
    started: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the process is still there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return not self.started or self.started == _start_of(self.pid)


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run did."""

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
    """Which part of a run that is divided this was."""
    ledger: dict[str, int] = {}
    summary: dict[str, Any] = {}
    judge_health: dict[str, Any] | None = None
    """What is known of its judges, if it has any."""
    exit_code: int | None = None
    process: Process | None = None

    @property
    def current_status(self) -> Status:
        """The status; `killed` for a run that never ended and whose process is gone."""
        is_gone = self.status == "running" and (self.process is None or not self.process.is_alive)
        return "killed" if is_gone else self.status


def new_run_id() -> str:
    """Return an id for a run that starts now."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class RunLog:
    """Keeps the record of one run. A record that cannot be written is a warning, never the end of a run."""

    def __init__(self, folder: Path, record: RunRecord, clean: Redactor):
        self._path, self._clean = folder.absolute() / f"{record.run_id}.json", clean
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
        """Write what became of the run."""
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
        plain = self._clean.values(msgspec.json.decode(msgspec.json.encode(self.record)))
        try:
            write_atomically(self._path, [msgspec.json.format(msgspec.json.encode(plain), indent=2), b"\n"])
        except OutputError as error:
            message = f"the record of this run {error.message}"
            warn(Problem(message=message, severity="warning", file=self._path))


def new_record(run_id: str, command: tuple[str, ...], **fields: Any) -> RunRecord:
    """Return the record of a run that starts now, in the current folder."""
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
    """Return the records in a folder, newest first; warn of those that cannot be read."""
    found = []
    for path in folder.glob("*.json"):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=RunRecord))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            warn(Problem(message=f"this run record cannot be read: {error}", severity="warning", file=path))
    return sorted(found, key=lambda run: run.started, reverse=True)


def _commit() -> Commit | None:
    """Return the commit of the current folder; None outside of a repo, or without git."""
    command = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    lines = ran.stdout.splitlines() if ran.returncode == 0 else []
    heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit, branch = heads.get("branch.oid"), heads.get("branch.head")
    if commit is None or commit == "(initial)":
        return None
    is_dirty = any(not line.startswith("#") for line in lines)
    return Commit(commit=commit, branch=None if branch == "(detached)" else branch, dirty=is_dirty)


def _start_of(pid: int) -> str:
    """Return when a process was started, in the system's own form; empty where that is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return fields[19].decode()
    except (OSError, IndexError):
        return ""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
