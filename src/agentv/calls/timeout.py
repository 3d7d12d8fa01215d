"""A call with a time limit; whatever it raises becomes a value."""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

from agentv.calls.retry import FailedCall
from agentv.errors import ProviderError

T = TypeVar("T")


async def within(seconds: float | None, call: Awaitable[T]) -> T | FailedCall:
    """Return what a call gives; whatever it raises, a timeout included, becomes a `FailedCall`."""
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
        return FailedCall(error.message, "target", error.may_pass, error.status, error.retry_after, error.details)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the run is being stopped
        return FailedCall("the target cancelled itself", may_pass=True)
    except Exception as error:
        if limit is not None and limit.expired():
            notes = "".join(getattr(error.__cause__, "__notes__", ()))  # what a command had printed by then
            return FailedCall(f"timed out after {seconds:g} s{notes}", "timeout", may_pass=True)
        return FailedCall(f"{type(error).__name__}: {error}")


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
