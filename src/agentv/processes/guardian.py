"""Processes that would outlive us -> ended.

A process is one of ours by its group, or by a mark in its environment, which its own children inherit and
keep even when they leave the group. Run as a script this is the watcher: it waits for the death of the process
that started it and then ends what that left behind. A bare interpreter runs it, so it imports nothing of ours.
"""

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

VARIABLE = "AGENTV_PROCESS"
GRACE_SECONDS = 0.5
ROUNDS = 50
TABLE = 3
ENTRY_BYTES = 8
_PROC = "/proc"
_CHUNK = 1 << 20


class Process(NamedTuple):
    """A living process: its group, and the marks that it and those before it were given."""

    pid: int
    group: int
    marks: bytes


def processes() -> list[Process]:
    """All that live and that we may look at. The dead that nobody has buried do not count.

    Where the system has no /proc there are none, and processes are only known by their group.
    """
    try:
        names = os.listdir(_PROC)
    except OSError:
        return []
    own = os.getpid()
    found = (_process(int(name)) for name in names if name.isdigit() and int(name) != own)
    return [process for process in found if process]


def _process(pid: int) -> Process | None:
    fields = _read(f"{_PROC}/{pid}/stat").rpartition(b")")[2].split()[:3]
    if len(fields) < 3 or fields[0] in (b"Z", b"X"):
        return None
    environment = b"\0" + _read(f"{_PROC}/{pid}/environ")
    marks = environment.partition(f"\0{VARIABLE}=".encode())[2].partition(b"\0")[0]
    return Process(pid, int(fields[2]), marks)


def _read(path: str) -> bytes:
    """The content of a file, or nothing when it is gone or not for us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    content = b""
    try:
        while chunk := os.read(descriptor, _CHUNK):
            content += chunk
    except OSError:
        return content
    finally:
        os.close(descriptor)
    return content


def living(groups: Collection[int], mark: bytes, among: Iterable[Process] | None = None) -> list[int]:
    """Those in one of the groups, and those that bear the mark, as `os.kill` takes them.

    Without a /proc that is the groups themselves, as negative numbers.
    """
    found = [
        process.pid
        for process in (processes() if among is None else among)
        if process.group in groups or mark in process.marks
    ]
    return found if os.path.exists(f"{_PROC}/self") else [-group for group in groups if group_exists(group)]


def group_exists(group: int) -> bool:
    """Whether there is a process in the group, be it one that is dead and not buried."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send(number: int, pids: Iterable[int]) -> None:
    """Send a signal to all of them, as far as they are still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill(groups: Collection[int], mark: bytes) -> None:
    """Kill them all, those too that are being born meanwhile."""
    for _ in range(ROUNDS):
        send(signal.SIGKILL, [-group for group in groups])
        found = living(groups, mark)
        if not found:
            return
        send(signal.SIGKILL, found)
        time.sleep(0.005)


def entry(group: int) -> bytes:
    """A group as it stands in the table that the watcher reads; 0 is an empty place."""
    return group.to_bytes(ENTRY_BYTES, "little")


def watch(parent: int, mark: bytes) -> None:
    """Wait for the parent's death; then end the groups that stand in the table, and all that is marked."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    _wait_for_death_of(parent)
    table = os.pread(TABLE, _CHUNK, 0)
    entries = [table[at : at + ENTRY_BYTES] for at in range(0, len(table), ENTRY_BYTES)]
    groups = {int.from_bytes(raw, "little") for raw in entries} - {0}
    send(signal.SIGTERM, living(groups, mark))
    end = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < end and living(groups, mark):
        time.sleep(0.02)
    kill(groups, mark)


def _wait_for_death_of(parent: int) -> None:
    """Standard input is a pipe that ends with the parent; but a fork of it may hold the other end."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    with contextlib.suppress(AttributeError, OSError):
        poll.register(os.pidfd_open(parent), select.POLLIN)
    poll.poll()


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.argv[2].encode())
