"""Time limits of calls. Exceptions become values."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar, cast

from agentv.calls.retry import FailedCall
from agentv.errors import ProviderError
from agentv.processes.machine import machine_error
from agentv.protocols import attached_outcome
from agentv.records import ProviderResponse

T = TypeVar("T")


async def within(seconds: float | None, call: Awaitable[T]) -> T | FailedCall:
    """Await a call with a time limit and return its value; any exception, including a timeout, becomes a `FailedCall`.

    A call that exceeds the limit is cancelled. It can still attach an answer, or a partial one, to its cancellation.
    """
    limit: asyncio.Timeout | None = None
    try:
        if seconds is None:
            return await call
        async with asyncio.timeout(seconds) as limit:
            return await call
    except ProviderError as error:
        return _machine_failure(error) or _failed(error)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            # The run is being stopped.
            raise
        return FailedCall("the target cancelled itself", may_pass=True)
    except Exception as error:
        if seconds is not None and limit is not None and limit.expired():
            outcome = _timed_out(seconds, error.__cause__)
            return cast(T | FailedCall, outcome)
        return _machine_failure(error) or FailedCall(f"{type(error).__name__}: {error}")


def _machine_failure(error: Exception) -> FailedCall | None:
    """Return the failure of a call that the machine had no room for, or None if the machine did not cause the error."""
    machine = machine_error(error)
    if machine is None:
        return None
    return FailedCall(machine.message, "machine")


def _failed(error: ProviderError) -> FailedCall:
    return FailedCall(
        error=error.message,
        failure="target",
        may_pass=error.may_pass,
        status=error.status,
        retry_after=error.retry_after,
        details=error.details,
        partial=error.partial,
    )


def _timed_out(seconds: float, cancelled: BaseException | None) -> ProviderResponse | FailedCall:
    """Return the outcome of a call that was cancelled by its time limit."""
    outcome = attached_outcome(cancelled)
    if isinstance(outcome, ProviderResponse):
        return outcome
    message = f"timed out after {seconds:g} s"
    if outcome is None:
        # A command attaches its output so far as notes.
        notes = getattr(cancelled, "__notes__", ())
        text = message + "".join(notes)
        return FailedCall(text, "timeout", may_pass=True)
    if outcome.message:
        message = f"{message}: {outcome.message}"
    failed = _failed(outcome)
    return failed._replace(error=message, failure="timeout")
