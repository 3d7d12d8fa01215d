"""A call that may never end -> its value, or `TimeoutError`.

An alarm of the operating system ends it: the regular expressions of Python look for signals while they match. Alarms
ring in the main thread only.
"""

import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_set_signal: Any = getattr(signal.signal, "__wrapped__", signal.signal)
"""What `signal.signal` wraps to turn numbers into enums and back, which takes longer than most matches."""


def can_end_calls() -> bool:
    """Whether a call made here and now can be ended."""
    return threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")


def within(seconds: float, call: Callable[[], T]) -> T:
    """What the call returns, in the main thread. An alarm that somebody else has set is set again afterwards."""
    armed = True

    def ring(_signal: int, _frame: Any) -> None:
        if armed:  # else the call was over just in time
            raise TimeoutError

    before = _set_signal(signal.SIGALRM, ring)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        try:
            return call()
        finally:
            armed = False
    finally:  # even if the alarm rings between the two
        signal.setitimer(signal.ITIMER_REAL, *timer)
        _set_signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
