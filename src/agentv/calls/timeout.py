"""A call with a time limit; whatever it raises becomes a value."""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar, cast

from agentv.calls.retry import FailedCall
from agentv.errors import ProviderError
from agentv.protocols import attached_outcome
from agentv.records import ProviderResponse

T = TypeVar("T")


async def within(seconds: float | None, call: Awaitable[T]) -> T | FailedCall:
    """Return what a call gives; whatever it raises, a timeout included, becomes a `FailedCall`.

    A call whose time is up is cancelled. It may say even then that it has an answer, or what it knows.
    """
    limit: asyncio.Timeout | None = None
    try:
        steps = call.__await__()
        try:
            waits_for = next(steps)
        except StopIteration as ended:  # it never waited: setting a timer costs more than many a call
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
            raise  # the run is being stopped
        return FailedCall("the target cancelled itself", may_pass=True)
    except Exception as error:
        if seconds is not None and limit is not None and limit.expired():
            return cast(T | FailedCall, _timed_out(seconds, error.__cause__))
        return FailedCall(f"{type(error).__name__}: {error}")


def _failed(error: ProviderError) -> FailedCall:
    return FailedCall(
        error.message, "target", error.may_pass, error.status, error.retry_after, error.details, error.partial
    )


def _timed_out(seconds: float, cancelled: BaseException | None) -> ProviderResponse | FailedCall:
    """Return what became of a call that was cancelled because its time was up."""
    known = attached_outcome(cancelled)
    if isinstance(known, ProviderResponse):
        return known
    message = f"timed out after {seconds:g} s"
    if known is None:
        notes = "".join(getattr(cancelled, "__notes__", ()))  # what a command had printed by then
        return FailedCall(f"{message}{notes}", "timeout", may_pass=True)
    return _failed(known)._replace(error=": ".join(filter(None, (message, known.message))), failure="timeout")


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
