"""A call of a provider -> what it gave, or why it gave nothing, however often it had to be made."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, TypeVar

from agentv.errors import ProviderError
from agentv.records import Failure

T = TypeVar("T")
TOO_MANY_REQUESTS = 429


class FailedCall(NamedTuple):
    """Why there is no answer, and whether there may be one next time."""

    error: str
    failure: Failure = "target"
    may_pass: bool = False
    status: int | None = None
    retry_after: float | None = None


class Backoff(NamedTuple):
    """How often a call is repeated, and after how many seconds: ever more, up to a limit."""

    retries: int = 0
    initial: float = 0.0
    most: float = 0.0
    factor: float = 1.0

    def delay(self, attempt: int, asked: float | None) -> float:
        """How long to wait after an attempt: as long as a server asks for, else about as long as is set up.

        By chance it is less, so that those who failed together do not come back together.
        """
        if asked is not None:
            return asked
        try:
            longest = min(self.most, self.initial * self.factor ** (attempt - 1))
        except OverflowError:
            longest = self.most
        return longest * random.uniform(0.5, 1.0)


class RetryPolicy(NamedTuple):
    """How long a call may take, how often it is repeated, and who is told when it is."""

    seconds: float
    backoff: Backoff
    turn: AbstractAsyncContextManager[object]
    """Entered before each attempt, again and again; waiting for it is on nobody's time."""
    on_retry: Callable[[int, FailedCall], None]
    hold: Callable[[float], None] = lambda _seconds: None
    """Keeps everybody from asking for a while."""


async def call_with_retries(call: Callable[[int], Awaitable[T]], policy: RetryPolicy) -> tuple[int, T | FailedCall]:
    """Make a call, and make it again when that may help: the number of the last attempt, and how it ended."""
    left = policy.seconds
    for attempt in itertools.count(1):
        async with policy.turn:
            got = await _once(call(attempt), policy.seconds)
        if not isinstance(got, FailedCall):
            break
        delay = policy.backoff.delay(attempt, got.retry_after)
        if got.status == TOO_MANY_REQUESTS and delay <= left:
            policy.hold(delay)  # whether or not it is this request that comes back
        if not got.may_pass or attempt > policy.backoff.retries:
            break
        left -= delay
        if left < 0:
            limit = f"to wait {delay:.0f} s more would take longer than the time limit of {policy.seconds:g} s"
            got = got._replace(error=f"{got.error}; {limit}")
            break
        policy.on_retry(attempt, got)
        if got.status != TOO_MANY_REQUESTS and delay:
            await asyncio.sleep(delay)
    return attempt, got


async def _once(call: Awaitable[T], seconds: float) -> T | FailedCall:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call
    except ProviderError as error:
        return FailedCall(error.message, may_pass=error.may_pass, status=error.status, retry_after=error.retry_after)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # this run is being stopped
        return FailedCall("the target cancelled itself", may_pass=True)
    except Exception as error:
        if limit.expired():
            notes = "".join(getattr(error.__cause__, "__notes__", ()))  # what a command had said by then
            return FailedCall(f"timed out after {seconds:g} s{notes}", "timeout", may_pass=True)
        return FailedCall(f"{type(error).__name__}: {error}")
