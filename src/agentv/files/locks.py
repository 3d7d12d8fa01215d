"""Locks of files that are being written. On file systems without locks, a lock file is used instead."""

import contextlib
import errno
import fcntl
import os
import platform
from pathlib import Path

from agentv.errors import OutputError
from agentv.log import warn
from agentv.processes.identity import is_running, start_time_of
from agentv.records import Problem

_NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP))
_held: set[Path] = set()
"""The lock files of this process."""


def lock_file(descriptor: int, path: Path) -> None:
    """Lock an open file until it is closed. Raise `BlockingIOError` if another process has locked it.

    On a file system without locks, warn and create a lock file, which `release_lock` removes. Raise `OutputError` if
    there is one of another machine.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _hold(_lock_path(path), path)


def release_lock(path: Path) -> None:
    """Remove the lock file of this process for a file, if there is one."""
    lock = _lock_path(path)
    if lock in _held:
        _held.discard(lock)
        with contextlib.suppress(OSError):
            lock.unlink()


def _lock_path(path: Path) -> Path:
    real = Path(os.path.realpath(path))
    return real.with_name(f"{real.name}.lock")


def _hold(lock: Path, path: Path) -> None:
    if lock in _held:
        return
    pid = os.getpid()
    content = f"{platform.node()} {pid} {start_time_of(pid)}\n"
    while True:
        try:
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            _remove_stale(lock)
            continue
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
        break
    _held.add(lock)
    message = f"this file system does not support locks: using {lock.name} to mark the file as in use"
    warn(Problem(message=message, severity="warning", file=path))


def _remove_stale(lock: Path) -> None:
    """Remove a lock file whose process is gone. Raise `BlockingIOError` if it runs, `OutputError` on another host."""
    try:
        host, pid, *started = lock.read_text().split()
        number = int(pid)
    except FileNotFoundError:
        return
    except ValueError:
        raise OutputError(
            "this lock file does not belong to agentv", file=lock, hint="remove it, or choose another file"
        ) from None
    if host != platform.node():
        raise OutputError(
            f"process {pid} on host {host} is writing to this file",
            file=lock,
            hint="use another --out for this run, or remove the lock file if that process has ended",
        )
    if is_running(number, "".join(started)):
        raise BlockingIOError(errno.EAGAIN, "the file is in use", str(lock))
    lock.unlink(missing_ok=True)
