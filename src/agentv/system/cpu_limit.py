"""A call that may never end -> its value, or `TimeoutError`.

The limit is one of CPU time of the calling thread: how busy the machine is does not count, nor what other threads do.
An alarm of the operating system ends the call: the regular expressions of Python look for signals while they match.
Alarms ring in the main thread only.
"""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_SHORTEST_ALARM = 0.01
_set_signal: Any = getattr(signal.signal, "__wrapped__", signal.signal)
"""What `signal.signal` wraps to turn numbers into enums and back, which takes longer than most matches."""


def can_limit_cpu() -> bool:
    """Return whether a call can be limited here and now."""
    return threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")


def call_with_cpu_limit(seconds: float, call: Callable[[], T]) -> T:
    """Return what the call returns; raise `TimeoutError` if it takes more CPU time. For the main thread only.

    An alarm that somebody else has set is set again afterwards.
    """
    is_armed = True
    end = time.thread_time() + seconds

    def ring(_signal: int, _frame: Any) -> None:
        if not is_armed:
            return  # the call was over just in time
        left = end - time.thread_time()
        if left <= 0:
            raise TimeoutError
        signal.setitimer(signal.ITIMER_REAL, max(left, _SHORTEST_ALARM))  # no call gets CPU time faster than this

    before = _set_signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        try:
            return call()
        finally:
            is_armed = False
    finally:  # even if the alarm rings between the two
        signal.setitimer(signal.ITIMER_REAL, *timer)
        _set_signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
