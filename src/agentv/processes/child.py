"""Run a child process to its end, and leave none of its descendants running.

Every child leads a session of its own, without a terminal. When it exits, is cancelled or when we are killed, the rest
of its process group ends too, and so do descendants that left the group: see `guardian`. A pidfd reports the exit of a
child, which needs no thread.
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
from agentv.processes.machine import original_file_limit
from agentv.processes.streams import Capture, Destination, Pipe, StreamOutput, open_spare_pipes

GRACE_SECONDS = 2.0
UNREAD_SECONDS = 0.01
STOP_SECONDS = 0.5
"""How long to wait for our own stop if a child was stopped by a signal that we did not send."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPED = frozenset((*(-number for number in _STOP_SIGNALS), *(128 + number for number in _STOP_SIGNALS)))
"""The exit codes of a child that was stopped by a signal, and of a shell whose child was."""
_UNKNOWN_STATUS = 255 << 8
_MARK_VARIABLE = guardian.MARK_VARIABLE.encode()
_NO_INPUT = (
    (os.POSIX_SPAWN_CLOSE, 0),  # leaves a descriptor below the limit of the child to open the file
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
)
_DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals, and a child would inherit that."""
_INHERITED_MARKS = os.environb.get(_MARK_VARIABLE, b"")
"""The marks of the runs that started this one."""
_guardians: dict[int, guardian.Guardian] = {}
"""The guardian of this process, by process id: after a fork, the children of the parent are not ours."""
_numbers = itertools.count(1)


def _own_guardian() -> guardian.Guardian:
    """Return the guardian of this process, which is created on first use."""
    pid = os.getpid()
    if pid not in _guardians:
        _guardians[pid] = guardian.Guardian(GRACE_SECONDS)
    return _guardians[pid]


class ProcessResult(NamedTuple):
    """How a child ended: its exit code and its captured output."""

    code: int
    """Negative if a signal killed the child."""
    stdout: StreamOutput
    stderr: StreamOutput


async def run_process(  # noqa: PLR0913  # all that is known of a child
    argv: list[bytes],
    environment: Mapping[bytes, bytes],
    *,
    stdin: int | None = None,
    stdout: Destination | None = None,
    stderr: Capture | None = None,
    grace: float = GRACE_SECONDS,
) -> ProcessResult:
    """Run a program to its end and return its result; raise `OSError` if it cannot be started.

    When cancelled, terminate the program, and kill it if it does not end within `grace` seconds. `stdin` is the
    descriptor of an open file; without one, the input is empty.
    """
    if stdout is None:
        stdout = Capture()
    if stderr is None:
        stderr = Capture()
    child = _Child(argv, environment, stdin, (stdout, stderr), grace)
    try:
        code = await child.wait()
        if code in _STOPPED:
            # A signal to the whole process tree reaches the child first. If we are stopped too, it is not a failure.
            await asyncio.sleep(STOP_SECONDS)
    finally:
        child.close()
    _own_guardian().sweep()
    captured = StreamOutput()
    if isinstance(stdout, Capture):
        captured = stdout.output()
    return ProcessResult(code, captured, stderr.output())


def kill_all() -> None:
    """Immediately kill all children and everything that they left behind."""
    _own_guardian().kill_all()


async def end_orphans() -> None:
    """End the processes outside of their groups that exited children left behind."""
    own = _own_guardian()
    if not own.is_started:
        return  # no child was ever started
    end = time.monotonic() + 2 * GRACE_SECONDS
    while own.end_orphans() and time.monotonic() < end:
        await asyncio.sleep(0.02)


class _Child:
    """A running child process. It starts on construction, and leaves nothing behind once it is closed."""

    def __init__(
        self,
        argv: list[bytes],
        environment: Mapping[bytes, bytes],
        stdin: int | None,
        destinations: tuple[Destination, Destination],
        grace: float,
    ):
        loop = asyncio.get_running_loop()
        self._grace = grace
        self._guardian = _own_guardian()
        self._mark = self._guardian.mark + b"%d/" % next(_numbers)
        marks = _INHERITED_MARKS + self._mark
        streams = {}
        if stdin is not None:
            streams[0] = stdin
        self._pipes: list[Pipe] = []
        self._guardian.start()
        try:
            for descriptor, destination in enumerate(destinations, 1):
                if isinstance(destination, int):
                    target = destination
                else:
                    pipe = Pipe(loop, destination)
                    self._pipes.append(pipe)
                    target = pipe.write_end
                streams[descriptor] = target
            with original_file_limit(list(streams.values())) as descriptors:
                actions: list[tuple[object, ...]] = []
                if stdin is None:
                    actions.extend(_NO_INPUT)
                for copy, descriptor in zip(descriptors, streams, strict=True):
                    actions.append((os.POSIX_SPAWN_DUP2, copy, descriptor))
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
        """Wait for the exit of the child and return its status. The wait may be cancelled and started again."""
        while self._status is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._status

    async def wait(self) -> int:
        """Wait until the child has ended and its group is empty, and return the exit code."""
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
        """Kill the child if it is still running: a cancelled wait may not have had the time to terminate it."""
        self._reading.cancel()
        self._close_pipes()
        if self._is_guarded:
            guardian.kill_processes([self._pid], self._mark)
            self._release()

    async def _end(self) -> None:
        """Terminate the group and the processes that left it, wait for a grace period, then kill them."""
        end = time.monotonic() + self._grace
        guardian.send_signal(signal.SIGTERM, [-self._pid])
        outside = []
        for process in guardian.list_processes():
            if self._mark in process.marks and process.group != self._pid:
                outside.append(process.pid)
        guardian.send_signal(signal.SIGTERM, outside)
        await self._wait_at_most(self._grace)
        while time.monotonic() < end and guardian.find_living([self._pid], self._mark):
            await asyncio.sleep(0.05)
        guardian.kill_processes([self._pid], self._mark)
        await self._wait_at_most(self._grace)

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


def _call_on_exit(
    pid: int,
    loop: asyncio.AbstractEventLoop,
    callback: Callable[[int], None],
) -> None:
    """Call `callback` with the wait status of a child once it has exited and was reaped."""

    def reap() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        callback(_reap(pid))

    def wait() -> None:
        status = _reap(pid)
        with contextlib.suppress(RuntimeError):  # the event loop may be closed
            loop.call_soon_threadsafe(callback, status)

    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not every system has pidfds
        threading.Thread(target=wait, daemon=True).start()
    else:
        loop.add_reader(descriptor, reap)


def _reap(pid: int) -> int:
    """Wait for a child and return its wait status."""
    try:
        _, status = os.waitpid(pid, 0)
        return status
    except ChildProcessError:
        return _UNKNOWN_STATUS  # other code in this process has reaped the child
