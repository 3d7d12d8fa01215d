"""Exit with code 130 and without a traceback on SIGINT, SIGTERM and SIGHUP, whenever they arrive.

`install` is called before anything heavy is imported, so this module imports nothing from agentv. A signal ends the
process immediately, after the registered cleanups. During a run, it asks the run to stop instead, so that completed
results are written and reported; a second Ctrl-C ends the process immediately.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_CODE = 130
_MISSED_SECONDS = 1.0
"""How often a wait without an event loop checks for a signal that did not interrupt it."""
_cleanups: list[Callable[[], object]] = []
_runs: list[Stop | EndOnCtrlC] = []


def install() -> None:
    """Handle the signals from now on, except those that the parent set to be ignored, as `nohup` does."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)


def disable() -> None:
    """Ignore the signals: the exit code is decided, and Python is about to restore the default handlers.

    Python keeps the setting "ignore" until the process has ended. Blocking would not be enough: a mask covers one
    thread, and another thread that is still running would receive the signal.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def cleanup(call: Callable[[], object]) -> Iterator[None]:
    """Make the call if a signal ends the process inside this block."""
    _cleanups.append(call)
    try:
        yield
    finally:
        _cleanups.remove(call)


class Stop:
    """Ask a task to stop when a signal arrives."""

    def __init__(self, task: asyncio.Task[object]):
        self._task = task
        self._loop = task.get_loop()
        self.is_requested = False
        self.is_over = False

    def request(self, number: int) -> None:
        """Cancel the task; if it is already being cancelled, a further Ctrl-C ends the process immediately."""
        if self.is_requested:
            if number == signal.SIGINT:
                leave()
            return
        self.is_requested = True
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed: there is nothing left to stop
            leave()

    def _cancel(self) -> None:
        if not self.is_over:  # once the block has ended, the task continues with other work
            self._task.cancel()


class EndOnCtrlC:
    """Wait for Ctrl-C, the only way to end a command that serves until it is interrupted."""

    def __init__(self) -> None:
        import threading

        self._event = threading.Event()

    def request(self, number: int) -> None:
        """End the wait; other signals, and a second Ctrl-C, end the process immediately."""
        if number != signal.SIGINT or self._event.is_set():
            leave()
        self._event.set()

    def end(self) -> None:
        """End the wait."""
        self._event.set()

    def wait(self) -> None:
        """Return when Ctrl-C is pressed, or when `end` is called."""
        while not self._event.wait(_MISSED_SECONDS):
            pass  # lets Python run the handler of a signal that arrived just before the wait


@contextmanager
def end_on_ctrl_c() -> Iterator[EndOnCtrlC]:
    """Inside this block, let Ctrl-C end a wait instead of ending the process."""
    ending = EndOnCtrlC()
    _runs.append(ending)
    try:
        yield ending
    finally:
        _runs.remove(ending)


@contextmanager
def stop_on_signal(task: asyncio.Task[object]) -> Iterator[Stop]:
    """Ask the task to stop when a signal arrives inside this block. Needs `install`."""
    stop = Stop(task)
    _runs.append(stop)
    try:
        with _wake_up(task.get_loop()):
            yield stop
    finally:
        stop.is_over = True
        _runs.remove(stop)


@contextmanager
def _wake_up(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Wake the event loop whenever a signal arrives.

    Python runs a handler between two instructions of the main thread. A signal that arrives just before the loop
    starts to wait, or in another thread, does not end that wait: its handler would run after the next event, which may
    never come.
    """
    if not any(signal.getsignal(number) is _on_signal for number in SIGNALS):
        yield  # a program that uses agentv as a library handles signals in its own way
        return
    import socket

    try:
        read_end, write_end = socket.socketpair()
    except OSError:  # the process has no file descriptor left: the wait ends at the next event
        yield
        return
    with read_end, write_end:
        read_end.setblocking(False)
        write_end.setblocking(False)
        previous = signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
        loop.add_reader(read_end, read_end.recv, 4096)
        try:
            yield
        finally:
            loop.remove_reader(read_end)
            signal.set_wakeup_fd(previous)


def _on_signal(number: int, _frame: object) -> None:
    if _runs:
        _runs[-1].request(number)
    else:
        leave()


def leave() -> NoReturn:
    """Clean up and end the process immediately."""
    for call in reversed(_cleanups):
        with suppress(Exception):
            call()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the reader of the stream may have exited
            stream.flush()
    os._exit(EXIT_CODE)
