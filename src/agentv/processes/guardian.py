"""Processes that would outlive us -> ended.

A process is one of ours by its group, or by a mark in its environment, which its own children inherit and keep even
when they leave the group. Run as a script this is the guardian process: it waits for the death of the process that
started it and then ends what that left behind. A bare interpreter runs it, so it imports nothing of ours.
"""

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

MARK_VARIABLE = "AGENTV_PROCESS"
SWEEP_SECONDS = 1.0
_GRACE_SECONDS = 0.5
"""How long the guardian process waits between asking and killing."""
_ROUNDS = 50
_TABLE = 3
"""The descriptor of the table in the guardian process."""
_ENTRY_BYTES = 8
_PROC = "/proc"
_LOOKS, _LOOK_SECONDS = 5, 0.001
"""How often, and after how long, an empty environment is read again."""
_CHUNK_BYTES = 1 << 20


class Guardian:
    """Knows the children that are running, and ends what they leave behind; after our death, its process does.

    The process learns of our death by a pipe, and reads only then which groups there are, from a table that we
    write: it sleeps as long as we live.
    """

    def __init__(self, grace_seconds: float) -> None:
        self.mark = f"/{os.urandom(8).hex()}-".encode()
        """What all our children bear in their environment, each with a number of its own behind it."""
        self._grace_seconds = grace_seconds
        self._running: dict[int, bytes] = {}
        self._table = -1
        self._slots: dict[int, int] = {}
        self._free_slots: list[int] = []
        self._next_sweep = 0.0
        self._asked: dict[int, float] = {}

    @property
    def is_started(self) -> bool:
        return self._table >= 0

    def start(self) -> None:
        """Start the guardian process, unless it was started before."""
        if self.is_started:
            return
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # only the main thread may
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else exit codes get lost
        self._table = _above_stderr(_open_unnamed_file())
        read_end, _write_end = open_pipe()
        argv = [sys.executable, "-I", "-S", __file__, str(os.getpid()), self.mark.decode()]
        passed = [(os.POSIX_SPAWN_DUP2, read_end, 0), (os.POSIX_SPAWN_DUP2, self._table, _TABLE)]
        silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        with contextlib.suppress(OSError):  # a system that cannot start it will have more to say soon
            os.posix_spawn(sys.executable, argv, os.environ, file_actions=passed + silent, setsid=True)
        os.close(read_end)

    def add(self, group: int, mark: bytes) -> None:
        """Guard the group of a child, and what bears its mark."""
        slot = self._free_slots.pop() if self._free_slots else len(self._slots)
        self._running[group], self._slots[group] = mark, slot
        os.pwrite(self._table, _encode_entry(group), slot * _ENTRY_BYTES)

    def remove(self, group: int) -> None:
        """Guard the group no longer; what bears the mark of its child is an orphan from now on."""
        del self._running[group]
        slot = self._slots.pop(group)
        self._free_slots.append(slot)
        os.pwrite(self._table, _encode_entry(0), slot * _ENTRY_BYTES)

    def kill_all(self) -> None:
        """Kill every child and everything that any of them has left behind, at once."""
        kill_processes(self._running, self.mark)

    def sweep(self) -> None:
        """Look for orphans now and then: to look after every child would cost more than the child."""
        if time.monotonic() >= self._next_sweep:
            self.end_orphans()

    def end_orphans(self) -> bool:
        """Ask orphans to end, and kill those that had their time; return False if there are none.

        Orphans are processes outside of the groups, of children that have exited.
        """
        now = time.monotonic()
        self._next_sweep = now + SWEEP_SECONDS
        running = list(self._running.values())
        ours = [process for process in list_processes() if self.mark in process.marks]
        found = [process.pid for process in ours if not any(mark in process.marks for mark in running)]
        send_signal(signal.SIGTERM, [pid for pid in found if pid not in self._asked])
        late = [pid for pid in found if now - self._asked.get(pid, now) > self._grace_seconds]
        send_signal(signal.SIGKILL, late)
        self._asked = {pid: self._asked.get(pid, now) for pid in found}
        return bool(found)


class Process(NamedTuple):
    """A living process: its group, and the marks that it and its ancestors were given."""

    pid: int
    group: int
    marks: bytes


def list_processes() -> list[Process]:
    """Return the processes that live and that we may look at; zombies do not count.

    Where the system has no /proc there are none, and processes are only known by their group.
    """
    try:
        names = os.listdir(_PROC)
    except OSError:
        return []
    own = os.getpid()
    found = (_read_process(int(name)) for name in names if name.isdigit() and int(name) != own)
    return [process for process in found if process]


def _read_process(pid: int) -> Process | None:
    """Return a process, None if it is gone; one that starts another program has no environment for a moment."""
    for look in range(_LOOKS + 1):
        fields = _read(f"{_PROC}/{pid}/stat").rpartition(b")")[2].split()[:3]
        if len(fields) < 3 or fields[0] in (b"Z", b"X"):
            return None
        environment = _read(f"{_PROC}/{pid}/environ")
        if environment or look == _LOOKS or fields[2] == b"0" or not _is_own(pid):  # the kernel's have no group
            break
        time.sleep(_LOOK_SECONDS)
    marks = (b"\0" + environment).partition(f"\0{MARK_VARIABLE}=".encode())[2].partition(b"\0")[0]
    return Process(pid, int(fields[2]), marks)


def _is_own(pid: int) -> bool:
    """Return whether it is a process of this user, whose environment we may read."""
    try:
        return os.stat(f"{_PROC}/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _read(path: str) -> bytes:
    """Return the content of a file, empty if it is gone or we may not read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    content = b""
    try:
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            content += chunk
    except OSError:
        return content
    finally:
        os.close(descriptor)
    return content


def find_living(groups: Collection[int], mark: bytes) -> list[int]:
    """Return the processes in one of the groups and those that bear the mark, as `os.kill` takes them.

    Without a /proc these are the groups themselves, as negative numbers.
    """
    found = [process.pid for process in list_processes() if process.group in groups or mark in process.marks]
    return found if os.path.exists(f"{_PROC}/self") else [-group for group in groups if group_exists(group)]


def group_exists(group: int) -> bool:
    """Return whether there is a process in the group, be it a zombie."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_signal(number: int, pids: Iterable[int]) -> None:
    """Send a signal to all of them, as far as they still exist."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_processes(groups: Collection[int], mark: bytes) -> None:
    """Kill the groups and what bears the mark, also what they start meanwhile."""
    for _ in range(_ROUNDS):
        send_signal(signal.SIGKILL, [-group for group in groups])
        found = find_living(groups, mark)
        if not found:
            return
        send_signal(signal.SIGKILL, found)
        time.sleep(0.005)


def open_pipe() -> tuple[int, int]:
    """Return the read end and the write end of a new pipe, neither of which is one of the first three descriptors."""
    read_end, write_end = os.pipe()
    return _above_stderr(read_end), _above_stderr(write_end)


def _above_stderr(descriptor: int) -> int:
    """Return the descriptor, moved if it is one of the first three: ours may have been closed when we started."""
    if descriptor > 2:
        return descriptor
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


def _open_unnamed_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("groups")
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _encode_entry(group: int) -> bytes:
    """Return a group as it stands in the table; 0 is an empty slot."""
    return group.to_bytes(_ENTRY_BYTES, "little")


def guard(parent: int, mark: bytes) -> None:
    """Wait for the parent's death; then end the groups that stand in the table, and all that bears the mark."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    _wait_for_death_of(parent)
    table = os.pread(_TABLE, _CHUNK_BYTES, 0)
    entries = [table[at : at + _ENTRY_BYTES] for at in range(0, len(table), _ENTRY_BYTES)]
    groups = {int.from_bytes(entry, "little") for entry in entries} - {0}
    send_signal(signal.SIGTERM, find_living(groups, mark))
    end = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < end and find_living(groups, mark):
        time.sleep(0.02)
    kill_processes(groups, mark)


def _wait_for_death_of(parent: int) -> None:
    """Standard input is a pipe that ends with the parent; but a fork of it may hold the other end."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    with contextlib.suppress(AttributeError, OSError):
        poll.register(os.pidfd_open(parent), select.POLLIN)
    poll.poll()


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2].encode())
