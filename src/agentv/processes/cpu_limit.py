"""CPU time limits for calls that may never return, such as matching a regular expression.

The limit applies to the CPU time of the calling thread; the load of the machine and other threads do not count. A
signal of the operating system (SIGALRM) interrupts the call: Python's regular expressions check for signals while
they match. Python handles signals in the main thread only.
"""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_SHORTEST_ALARM = 0.01
_set_signal: Any = getattr(signal.signal, "__wrapped__", signal.signal)
"""The function inside `signal.signal`, without its conversion to enums, which takes longer than most matches."""


def can_limit_cpu() -> bool:
    """Return whether a call can be limited on this platform and in the current thread."""
    is_main_thread = threading.current_thread() is threading.main_thread()
    return is_main_thread and hasattr(signal, "setitimer")


def call_with_cpu_limit(seconds: float, call: Callable[[], T]) -> T:
    """Return the value of the call; raise `TimeoutError` if it exceeds the CPU time. For the main thread only.

    A timer and a signal handler that were set before are restored.
    """
    is_armed = True
    end = time.thread_time() + seconds

    def on_alarm(_signal: int, _frame: Any) -> None:
        if not is_armed:
            # The call returned just before the alarm.
            return
        left = end - time.thread_time()
        if left <= 0:
            raise TimeoutError
        # The timer runs in real time, and CPU time never passes faster: check again when the rest may be used up.
        signal.setitimer(signal.ITIMER_REAL, max(left, _SHORTEST_ALARM))

    previous_handler = _set_signal(signal.SIGALRM, on_alarm)
    previous_timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        try:
            return call()
        finally:
            is_armed = False
    finally:
        # A separate block, since the alarm may interrupt the inner one.
        signal.setitimer(signal.ITIMER_REAL, *previous_timer)
        if previous_handler is None:
            previous_handler = signal.SIG_DFL
        _set_signal(signal.SIGALRM, previous_handler)
