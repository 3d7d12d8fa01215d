"""A command -> a finished child, with nothing of it left running.

Every child leads a session of its own, without a terminal. When it exits, when it is cancelled or when we are
killed, the rest of its group ends too, and so does what has left the group: see `strays`. Its output is read
as it comes and kept up to a limit. Its end is told by a pidfd, which costs no thread.
"""

import asyncio
import contextlib
import fcntl
import itertools
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from agentv.processes import guardian as strays

GRACE_SECONDS = 2.0
SWEEP_SECONDS = 1.0
UNREAD_SECONDS = 0.01
TAIL_BYTES = 16 * 1024
_CHUNK = 64 * 1024
_PIPE_BYTES = 1 << 20
"""As much as a pipe can hold."""
_UNKNOWN = 255 << 8
_VARIABLE = strays.VARIABLE.encode()
_RUN = os.urandom(8).hex()
_numbers = itertools.count(1)
_at_work: dict[int, bytes] = {}
"""The groups that are at work, each with the mark of its processes."""


class Output(NamedTuple):
    """What was kept of a stream: its beginning, and its end; `is_whole` is False when there was more between them."""

    data: bytes = b""
    tail: bytes = b""
    is_whole: bool = True


class Finished(NamedTuple):
    """How a child ended: its exit code, negative for a signal, and what was kept of its output."""

    code: int
    stdout: Output
    stderr: Output


class Keep:
    """Keeps the beginning of a stream up to a limit, and the last `TAIL_BYTES`."""

    def __init__(self, limit: int = 0):
        self._limit, self._size = limit, 0
        self._chunks: list[bytes] = []
        self._tail = b""

    def add(self, chunk: bytes) -> None:
        if self._size < self._limit:
            self._chunks.append(chunk[: self._limit - self._size])
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        self._size += len(chunk)

    def kept(self) -> Output:
        return Output(b"".join(self._chunks), self._tail, self._size <= self._limit)


Stream = Keep | int
"""Where output goes: to what keeps some of it, or to an open file."""


async def run_process(
    argv: list[bytes],
    environment: Mapping[bytes, bytes],
    *,
    stdin: int | None = None,
    stdout: Stream | None = None,
    stderr: Keep | None = None,
) -> Finished:
    """Run a program to its end; `OSError` when it cannot be started.

    Cancelled, it asks the program to end, and kills it if it does not. `stdin` is an open file; without one
    there is no input.
    """
    stdout = Keep() if stdout is None else stdout
    stderr = Keep() if stderr is None else stderr
    child = _Child(argv, environment, stdin, (stdout, stderr))
    try:
        code = await child.exit_code()
    finally:
        child.close()
    _strays.sweep()
    return Finished(code, Output() if isinstance(stdout, int) else stdout.kept(), stderr.kept())


def kill_all() -> None:
    """Kill every child and all that any of them has left behind, at once."""
    strays.kill(_at_work, _mark())


async def end_strays() -> None:
    """End what finished children have left behind outside of their groups."""
    if not _watcher.is_started:
        return  # there were no children
    end = time.monotonic() + 2 * GRACE_SECONDS
    while _strays.ask() and time.monotonic() < end:
        await asyncio.sleep(0.02)


def _mark(number: str = "") -> bytes:
    """What all our children bear in their environment, or one of them."""
    return f"/{_RUN}-{number}".encode()


class _Strays:
    """The processes of children that have ended, outside of their groups: asked to end, then killed."""

    def __init__(self) -> None:
        self._next = 0.0
        self._asked: dict[int, float] = {}

    def sweep(self) -> None:
        """Look for some now and then: to look after every child would cost more than the child."""
        if time.monotonic() >= self._next:
            self.ask()

    def ask(self) -> bool:
        """Ask those to end that have not been asked, kill those that had their time; False when there are none."""
        now = time.monotonic()
        self._next = now + SWEEP_SECONDS
        at_work = list(_at_work.values())
        ours = [process for process in strays.processes() if _mark() in process.marks]
        found = [process.pid for process in ours if not any(mark in process.marks for mark in at_work)]
        strays.send(signal.SIGTERM, [pid for pid in found if pid not in self._asked])
        strays.send(signal.SIGKILL, [pid for pid in found if now - self._asked.get(pid, now) > GRACE_SECONDS])
        self._asked = {pid: self._asked.get(pid, now) for pid in found}
        return bool(found)


class _Child:
    """A child that is at work from the start, and leaves nothing behind once it is closed."""

    def __init__(
        self, argv: list[bytes], environment: Mapping[bytes, bytes], stdin: int | None, streams: tuple[Stream, Stream]
    ):
        loop = asyncio.get_running_loop()
        self._mark = _mark(f"{next(_numbers)}/")
        marks = os.environb.get(_VARIABLE, b"") + self._mark  # we may be a child of another run
        actions = [_NO_INPUT if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0)]
        self._pipes: list[_Pipe] = []
        _watcher.start()
        try:
            for target, stream in enumerate(streams, 1):
                if not isinstance(stream, int):
                    self._pipes.append(_Pipe(loop, stream))
                theirs = stream if isinstance(stream, int) else self._pipes[-1].theirs
                actions.append((os.POSIX_SPAWN_DUP2, theirs, target))
            self._pid = os.posix_spawn(
                argv[0],
                argv,
                {**environment, _VARIABLE: marks},
                file_actions=actions,
                setsid=True,
                setsigdef=_AS_USUAL,
            )
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for pipe in self._pipes:
                os.close(pipe.theirs)
        _at_work[self._pid] = self._mark
        _watcher.add(self._pid)
        self._status: int | None = None
        self._waiter: asyncio.Future[None] | None = None
        _when_exited(self._pid, loop, self._exited)
        self._reading = loop.call_later(UNREAD_SECONDS, self._read)

    def _read(self) -> None:
        for pipe in self._pipes:
            pipe.watch()

    def _exited(self, status: int) -> None:
        self._status = status
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _exit(self) -> int:
        """The status with which it exits. Waiting for it may be cancelled, and begun again."""
        while self._status is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._status

    async def exit_code(self) -> int:
        """The exit code, once the child has ended and its group is empty."""
        try:
            status = await self._exit()
            for pipe in self._pipes:
                pipe.drain()
            if strays.group_exists(self._pid):
                await self._end()
        except asyncio.CancelledError:
            await self._end()
            raise
        self._forget()
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Kill what is left, in case that nobody had the time to ask."""
        self._reading.cancel()
        self._close_pipes()
        if self._pid in _at_work:
            strays.kill([self._pid], self._mark)
            self._forget()

    async def _end(self) -> None:
        """Ask the group, and what has left it, to end; wait a little; kill them."""
        end = time.monotonic() + GRACE_SECONDS
        strays.send(signal.SIGTERM, [-self._pid])
        outside = [p.pid for p in strays.processes() if self._mark in p.marks and p.group != self._pid]
        strays.send(signal.SIGTERM, outside)
        await self._exit_within(GRACE_SECONDS)
        while time.monotonic() < end and strays.living([self._pid], self._mark):
            await asyncio.sleep(0.05)
        strays.kill([self._pid], self._mark)
        await self._exit_within(GRACE_SECONDS)

    async def _exit_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exit()

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    def _forget(self) -> None:
        del _at_work[self._pid]
        _watcher.remove(self._pid)


_NO_INPUT = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
_AS_USUAL = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and a child would inherit that."""


class _Pipe:
    """Reads what a child writes, as it comes. Who else may hold the other end is not waited for.

    A child that has ended before long is read once, at its end: what it wrote stands in the pipe, and to have
    the pipe watched would cost a tenth of the child.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, keep: Keep):
        self._loop, self._keep = loop, keep
        self._ours, self.theirs = map(_above_stderr, os.pipe())
        self._is_watched = False
        os.set_blocking(self._ours, False)

    def watch(self) -> None:
        """Read whenever there is something."""
        if self._ours >= 0:
            self._is_watched = True
            self._loop.add_reader(self._ours, self._read)

    def _read(self) -> int:
        try:
            chunk = os.read(self._ours, _CHUNK)
        except BlockingIOError:
            return 0
        if chunk:
            self._keep.add(chunk)
        else:
            self.close()
        return len(chunk)

    def drain(self) -> None:
        """Read what is there. Somebody may go on writing: what a pipe can hold is all that is of interest."""
        left = _PIPE_BYTES
        while self._ours >= 0 and left > 0 and (size := self._read()):
            left -= size

    def close(self) -> None:
        if self._ours >= 0:
            if self._is_watched:
                self._loop.remove_reader(self._ours)
            os.close(self._ours)
            self._ours = -1


def _above_stderr(descriptor: int) -> int:
    """The descriptor, out of the way of the child's own first three: ours may have been closed when we started."""
    if descriptor > 2:
        return descriptor
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return copy


def _when_exited(pid: int, loop: asyncio.AbstractEventLoop, tell: Callable[[int], None]) -> None:
    """Tell the status with which a child exits, once it does; it is buried then."""

    def exited() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        tell(_bury(pid))

    def wait() -> None:
        status = _bury(pid)
        with contextlib.suppress(RuntimeError):  # the run may be over
            loop.call_soon_threadsafe(tell, status)

    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not every system has them
        threading.Thread(target=wait, daemon=True).start()
    else:
        loop.add_reader(descriptor, exited)


def _bury(pid: int) -> int:
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return _UNKNOWN  # somebody else in this process has done it


class _Watcher:
    """A process that outlives us for a moment, and ends our children when we could not.

    It learns of our death by a pipe, and which groups there are from a table that it only reads then: it sleeps
    as long as we live.
    """

    def __init__(self) -> None:
        self._table = -1
        self._slots: dict[int, int] = {}
        self._free: list[int] = []

    @property
    def is_started(self) -> bool:
        return self._table >= 0

    def start(self) -> None:
        """Start it with the first child."""
        if self.is_started:
            return
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            with contextlib.suppress(ValueError):  # only the main thread may
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else exit codes get lost
        self._table = _above_stderr(_nameless_file())
        theirs, _ours = map(_above_stderr, os.pipe())
        argv = [sys.executable, "-I", "-S", strays.__file__, str(os.getpid()), _mark().decode()]
        handed = [(os.POSIX_SPAWN_DUP2, theirs, 0), (os.POSIX_SPAWN_DUP2, self._table, strays.TABLE)]
        silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        with contextlib.suppress(OSError):  # a system that cannot start it will have more to say soon
            os.posix_spawn(sys.executable, argv, os.environ, file_actions=handed + silent, setsid=True)
        os.close(theirs)

    def add(self, group: int) -> None:
        slot = self._free.pop() if self._free else len(self._slots)
        self._slots[group] = slot
        os.pwrite(self._table, strays.entry(group), slot * strays.ENTRY_BYTES)

    def remove(self, group: int) -> None:
        slot = self._slots.pop(group)
        self._free.append(slot)
        os.pwrite(self._table, strays.entry(0), slot * strays.ENTRY_BYTES)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("groups")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_watcher = _Watcher()
_strays = _Strays()
