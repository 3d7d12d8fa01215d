"""End the processes that would outlive us.

A process is recognized as ours by its group, or by a mark in its environment, which its own children inherit and keep
even when they leave the group. Run as a script, this module is the guardian process: it waits for the death of the
process that started it, and then ends what that process left behind. The script runs in a bare interpreter, so this
module imports nothing from agentv.
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
"""How long the guardian process waits between SIGTERM and SIGKILL."""
_ROUNDS = 50
_TABLE = 3
"""The descriptor of the table in the guardian process."""
_ENTRY_BYTES = 8
_EMPTY_SLOT = 0
_PROC = "/proc"
_LOOKS = 5
_LOOK_SECONDS = 0.001
"""How often an empty environment is read again, and the pause before each time."""
_CHUNK_BYTES = 1 << 20


class Guardian:
    """Keep track of running children and end what they leave behind. After our death, the guardian process does so.

    The guardian process detects our death through a pipe. Only then does it read the groups from a table that we
    write, so it sleeps as long as we live.
    """

    def __init__(self, grace_seconds: float) -> None:
        self.mark = f"/{os.urandom(8).hex()}-".encode()
        """The mark in the environment of all our children; each child appends a number of its own."""
        self._grace_seconds = grace_seconds
        self._running: dict[int, bytes] = {}
        self._table = -1
        self._slots: dict[int, int] = {}
        self._free_slots: list[int] = []
        self._next_sweep = 0.0
        self._terminated: dict[int, float] = {}
        """When each orphan was sent SIGTERM."""

    @property
    def is_started(self) -> bool:
        return self._table >= 0

    def start(self) -> None:
        """Start the guardian process, unless it is already running."""
        if self.is_started:
            return
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            # While SIGCHLD is ignored, the kernel reaps children and their exit codes are lost.
            with contextlib.suppress(ValueError):  # raised outside of the main thread
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._table = _above_stderr(_open_unnamed_file())
        # The write end stays open until we die: that is how the guardian process detects our death.
        read_end, _write_end = open_pipe()
        with contextlib.suppress(OSError):  # a system that cannot start it will soon fail elsewhere
            os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", __file__, str(os.getpid()), self.mark.decode()],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, read_end, 0),
                    (os.POSIX_SPAWN_DUP2, self._table, _TABLE),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
            )
        os.close(read_end)

    def add(self, group: int, mark: bytes) -> None:
        """Guard the group of a child, and the processes with its mark."""
        slot = self._free_slots.pop() if self._free_slots else len(self._slots)
        self._running[group] = mark
        self._slots[group] = slot
        self._write_slot(slot, group)

    def remove(self, group: int) -> None:
        """Stop guarding the group; processes with the mark of its child are orphans from now on."""
        del self._running[group]
        slot = self._slots.pop(group)
        self._free_slots.append(slot)
        self._write_slot(slot, _EMPTY_SLOT)

    def _write_slot(self, slot: int, group: int) -> None:
        entry = group.to_bytes(_ENTRY_BYTES, "little")
        os.pwrite(self._table, entry, slot * _ENTRY_BYTES)

    def kill_all(self) -> None:
        """Immediately kill all children and everything that they left behind."""
        kill_processes(self._running, self.mark)

    def sweep(self) -> None:
        """End orphans, at most once per `SWEEP_SECONDS`: a search after every child would cost more than the child."""
        if time.monotonic() >= self._next_sweep:
            self.end_orphans()

    def end_orphans(self) -> bool:
        """Terminate orphans, and kill those whose grace period is over; return False if there are none.

        Orphans are descendants of exited children, outside of the groups of running children.
        """
        now = time.monotonic()
        self._next_sweep = now + SWEEP_SECONDS
        orphans = self._find_orphans()
        new = [pid for pid in orphans if pid not in self._terminated]
        late = [pid for pid in orphans if now - self._terminated.get(pid, now) > self._grace_seconds]
        send_signal(signal.SIGTERM, new)
        send_signal(signal.SIGKILL, late)
        self._terminated = {pid: self._terminated.get(pid, now) for pid in orphans}
        return bool(orphans)

    def _find_orphans(self) -> list[int]:
        running = list(self._running.values())
        orphans = []
        for process in list_processes():
            if self.mark not in process.marks:
                continue
            if not any(mark in process.marks for mark in running):
                orphans.append(process.pid)
        return orphans


class Process(NamedTuple):
    """A living process, with its group and the marks of itself and its ancestors."""

    pid: int
    group: int
    marks: bytes


def list_processes() -> list[Process]:
    """Return the living processes that we may inspect, without zombies.

    On systems without /proc the list is empty, and processes are known only by their group.
    """
    try:
        names = os.listdir(_PROC)
    except OSError:
        return []
    own = os.getpid()
    processes = []
    for name in names:
        if not name.isdigit() or int(name) == own:
            continue
        process = _read_process(int(name))
        if process is not None:
            processes.append(process)
    return processes


def _read_process(pid: int) -> Process | None:
    """Return a process, or None if it no longer exists."""
    for look in range(_LOOKS + 1):
        # The fields after the program name, which is in parentheses: state, parent, group.
        fields = _read(f"{_PROC}/{pid}/stat").rpartition(b")")[2].split()[:3]
        if len(fields) < 3 or fields[0] in (b"Z", b"X"):
            return None
        environment = _read(f"{_PROC}/{pid}/environ")
        is_kernel_thread = fields[2] == b"0"
        if environment or look == _LOOKS or is_kernel_thread or not _is_own(pid):
            break
        # During execve(), a process has no environment for a moment.
        time.sleep(_LOOK_SECONDS)
    group = int(fields[2])
    return Process(pid, group, _marks_in(environment))


def _marks_in(environment: bytes) -> bytes:
    """Return the value of `MARK_VARIABLE` in a NUL-separated environment; empty if it is not set."""
    _, _, rest = (b"\0" + environment).partition(f"\0{MARK_VARIABLE}=".encode())
    value, _, _ = rest.partition(b"\0")
    return value


def _is_own(pid: int) -> bool:
    """Return whether a process belongs to this user, so that we may read its environment."""
    try:
        return os.stat(f"{_PROC}/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _read(path: str) -> bytes:
    """Return the content of a file, or an empty string if it no longer exists or cannot be read."""
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
    """Return the processes in one of the groups and those with the mark, as arguments for `os.kill`.

    On systems without /proc, these are the groups themselves, as negative numbers.
    """
    if not os.path.exists(f"{_PROC}/self"):
        return [-group for group in groups if group_exists(group)]
    found = []
    for process in list_processes():
        if process.group in groups or mark in process.marks:
            found.append(process.pid)
    return found


def group_exists(group: int) -> bool:
    """Return whether there is a process in the group, including zombies."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def send_signal(number: int, pids: Iterable[int]) -> None:
    """Send a signal to each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_processes(groups: Collection[int], mark: bytes) -> None:
    """Kill the groups and the marked processes, including any that they start in the meantime."""
    for _ in range(_ROUNDS):
        send_signal(signal.SIGKILL, [-group for group in groups])
        found = find_living(groups, mark)
        if not found:
            return
        send_signal(signal.SIGKILL, found)
        time.sleep(0.005)


def open_pipe() -> tuple[int, int]:
    """Return the read end and the write end of a new pipe, neither of them one of the first three descriptors."""
    read_end, write_end = os.pipe()
    return _above_stderr(read_end), _above_stderr(write_end)


def _above_stderr(descriptor: int) -> int:
    """Return the descriptor, moved if it is one of the first three, which may have been closed when we started."""
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


def guard(parent: int, mark: bytes) -> None:
    """Wait for the parent's death, then end the groups in the table and all processes with the mark."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    _wait_for_death_of(parent)
    groups = _read_groups()
    send_signal(signal.SIGTERM, find_living(groups, mark))
    end = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < end and find_living(groups, mark):
        time.sleep(0.02)
    kill_processes(groups, mark)


def _read_groups() -> set[int]:
    """Return the groups in the table of the parent."""
    table = os.pread(_TABLE, _CHUNK_BYTES, 0)
    groups = set()
    for start in range(0, len(table), _ENTRY_BYTES):
        entry = table[start : start + _ENTRY_BYTES]
        groups.add(int.from_bytes(entry, "little"))
    groups.discard(_EMPTY_SLOT)
    return groups


def _wait_for_death_of(parent: int) -> None:
    """Wait until standard input, a pipe from the parent, is closed, or the parent has exited.

    The pipe alone is not enough: a fork of the parent may hold its other end.
    """
    poll = select.poll()
    poll.register(0, select.POLLIN)
    with contextlib.suppress(AttributeError, OSError):
        poll.register(os.pidfd_open(parent), select.POLLIN)
    poll.poll()


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2].encode())
