"""Time limits of calls. Exceptions become values."""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar, cast

from agentv.calls.retry import FailedCall
from agentv.errors import ProviderError
from agentv.protocols import attached_outcome
from agentv.records import ProviderResponse

T = TypeVar("T")


async def within(seconds: float | None, call: Awaitable[T]) -> T | FailedCall:
    """Await a call with a time limit and return its value; any exception, including a timeout, becomes a `FailedCall`.

    A call that exceeds the limit is cancelled. It can still attach an answer, or a partial one, to its cancellation.
    """
    limit: asyncio.Timeout | None = None
    try:
        steps = call.__await__()
        try:
            waits_for = next(steps)
        except StopIteration as ended:
            # The call never waited. Setting a timer would cost more than many such calls.
            answer: T = ended.value
            return answer
        limit = asyncio.timeout(seconds)
        async with limit:
            return await _Rest(steps, waits_for)
    except ProviderError as error:
        return _failed(error)
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
        return FailedCall(f"{type(error).__name__}: {error}")


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
        # A command attaches what it had printed as notes.
        notes = getattr(cancelled, "__notes__", ())
        text = message + "".join(notes)
        return FailedCall(text, "timeout", may_pass=True)
    if outcome.message:
        message = f"{message}: {outcome.message}"
    failed = _failed(outcome)
    return failed._replace(error=message, failure="timeout")


class _Rest(Generic[T]):
    """Awaits the rest of a call whose first step has been taken."""

    def __init__(self, steps: Generator[Any, Any, T], waits_for: Any):
        self._steps, self._waits_for = steps, waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        steps, waits_for = self._steps, self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as error:
                    waits_for = steps.throw(error)
                else:
                    waits_for = steps.send(sent)
        except StopIteration as ended:
            answer: T = ended.value
            return answer
