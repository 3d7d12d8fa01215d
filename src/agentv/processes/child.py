"""A command -> a child that has ended, with nothing of it left running.

Every child leads a session of its own, without a terminal. When it exits, when it is cancelled or when we are
killed, the rest of its process group ends too, and so does what has left the group: see `guardian`. The end of a
child is told by a pidfd, which costs no thread.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from agentv.processes import guardian
from agentv.processes.streams import Capture, Destination, Output, Pipe, open_spare_pipes

GRACE_SECONDS = 2.0
UNREAD_SECONDS = 0.01
_UNKNOWN_STATUS = 255 << 8
_MARK_VARIABLE = guardian.MARK_VARIABLE.encode()
_NO_INPUT = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these, and a child would inherit that."""
_INHERITED_MARKS = os.environb.get(_MARK_VARIABLE, b"")
"""We may be a child of another run."""
_guardians: dict[int, guardian.Guardian] = {}
"""The guardian of this process, by process id: a fork has children of its own, and those of its parent are not its."""
_numbers = itertools.count(1)


def _own_guardian() -> guardian.Guardian:
    """Return the guardian of this process, which is made on first use."""
    own = _guardians.get(os.getpid())
    if own is None:
        own = _guardians[os.getpid()] = guardian.Guardian(GRACE_SECONDS)
    return own


class ProcessResult(NamedTuple):
    """How a child ended: its exit code, negative for a signal, and what was kept of its output."""

    code: int
    stdout: Output
    stderr: Output


async def run_process(
    argv: list[bytes],
    environment: Mapping[bytes, bytes],
    *,
    stdin: int | None = None,
    stdout: Destination | None = None,
    stderr: Capture | None = None,
) -> ProcessResult:
    """Run a program to its end and return how it ended; raise `OSError` if it cannot be started.

    When cancelled, ask the program to end, and kill it if it does not. `stdin` is an open file; without one there
    is no input.
    """
    stdout = Capture() if stdout is None else stdout
    stderr = Capture() if stderr is None else stderr
    child = _Child(argv, environment, stdin, (stdout, stderr))
    try:
        code = await child.wait()
    finally:
        child.close()
    _own_guardian().sweep()
    return ProcessResult(code, Output() if isinstance(stdout, int) else stdout.output(), stderr.output())


def kill_all() -> None:
    """Kill every child and everything that any of them has left behind, at once."""
    _own_guardian().kill_all()


async def end_orphans() -> None:
    """End what children that have exited left behind outside of their groups."""
    own = _own_guardian()
    if not own.is_started:
        return  # there were no children
    end = time.monotonic() + 2 * GRACE_SECONDS
    while own.end_orphans() and time.monotonic() < end:
        await asyncio.sleep(0.02)


class _Child:
    """A child that runs from the start, and leaves nothing behind once it is closed."""

    def __init__(
        self,
        argv: list[bytes],
        environment: Mapping[bytes, bytes],
        stdin: int | None,
        destinations: tuple[Destination, Destination],
    ):
        loop = asyncio.get_running_loop()
        self._guardian = _own_guardian()
        self._mark = self._guardian.mark + b"%d/" % next(_numbers)
        marks = _INHERITED_MARKS + self._mark
        actions = [_NO_INPUT if stdin is None else (os.POSIX_SPAWN_DUP2, stdin, 0)]
        self._pipes: list[Pipe] = []
        self._guardian.start()
        try:
            for descriptor, destination in enumerate(destinations, 1):
                if not isinstance(destination, int):
                    self._pipes.append(Pipe(loop, destination))
                end = destination if isinstance(destination, int) else self._pipes[-1].write_end
                actions.append((os.POSIX_SPAWN_DUP2, end, descriptor))
            self._pid = os.posix_spawn(
                argv[0],
                argv,
                {**environment, _MARK_VARIABLE: marks},
                file_actions=actions,
                setsid=True,
                setsigdef=_DEFAULT_SIGNALS,
            )
        except BaseException:
            self._close_pipes()
            raise
        finally:
            for pipe in self._pipes:
                os.close(pipe.write_end)
        self._guardian.add(self._pid, self._mark)
        self._is_guarded = True
        self._status: int | None = None
        self._waiter: asyncio.Future[None] | None = None
        _call_on_exit(self._pid, loop, self._set_status)
        self._reading = loop.call_later(UNREAD_SECONDS, self._watch_pipes)
        open_spare_pipes()

    def _watch_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.watch()

    def _set_status(self, status: int) -> None:
        self._status = status
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait_for_status(self) -> int:
        """Return the status with which it exits. Waiting may be cancelled, and begun again."""
        while self._status is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._status

    async def wait(self) -> int:
        """Return the exit code, once the child has ended and its group is empty."""
        try:
            status = await self._wait_for_status()
            for pipe in self._pipes:
                pipe.drain()
            if guardian.group_exists(self._pid):
                await self._end()
        except asyncio.CancelledError:
            await self._end()
            raise
        self._release()
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Kill what is left, in case that there was no time to ask it to end."""
        self._reading.cancel()
        self._close_pipes()
        if self._is_guarded:
            guardian.kill_processes([self._pid], self._mark)
            self._release()

    async def _end(self) -> None:
        """Ask the group, and what has left it, to end; wait a little; kill them."""
        end = time.monotonic() + GRACE_SECONDS
        guardian.send_signal(signal.SIGTERM, [-self._pid])
        outside = [p.pid for p in guardian.list_processes() if self._mark in p.marks and p.group != self._pid]
        guardian.send_signal(signal.SIGTERM, outside)
        await self._wait_at_most(GRACE_SECONDS)
        while time.monotonic() < end and guardian.find_living([self._pid], self._mark):
            await asyncio.sleep(0.05)
        guardian.kill_processes([self._pid], self._mark)
        await self._wait_at_most(GRACE_SECONDS)

    async def _wait_at_most(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wait_for_status()

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    def _release(self) -> None:
        self._is_guarded = False
        self._guardian.remove(self._pid)


def _call_on_exit(pid: int, loop: asyncio.AbstractEventLoop, callback: Callable[[int], None]) -> None:
    """Call `callback` with the wait status of a child once it has exited and was reaped."""

    def reap() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        callback(_reap(pid))

    def wait() -> None:
        status = _reap(pid)
        with contextlib.suppress(RuntimeError):  # the run may be over
            loop.call_soon_threadsafe(callback, status)

    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not every system has them
        threading.Thread(target=wait, daemon=True).start()
    else:
        loop.add_reader(descriptor, reap)


def _reap(pid: int) -> int:
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return _UNKNOWN_STATUS  # somebody else in this process has done it
