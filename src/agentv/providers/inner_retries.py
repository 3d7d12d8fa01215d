"""Retries that a target makes itself during a call, such as an agent that repeats a failed request."""

from collections.abc import Callable
from contextvars import ContextVar

OnInnerRetry = Callable[[int, str], None]
"""Called with the number of the failed attempt and the reason."""
on_inner_retry: ContextVar[OnInnerRetry | None] = ContextVar("on_inner_retry", default=None)
"""The callback for retries that the target itself makes during the current call."""


def report_inner_retry(attempt: int, reason: str) -> None:
    """Report that the target retries a failed request itself, to the callback of the current call."""
    callback = on_inner_retry.get()
    if callback is not None:
        callback(attempt, reason)
