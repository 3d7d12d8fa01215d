"""Repeat a call that failed, when that may help."""

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

from agentv.records import Failure, ProviderResponse

TOO_MANY_REQUESTS = 429


class FailedCall(NamedTuple):
    """Why there is no answer, and whether there may be one next time."""

    error: str
    failure: Failure = "target"
    may_pass: bool = False
    status: int | None = None
    retry_after: float | None = None
    details: str | None = None
    """The traceback of the user's own code."""
    partial: ProviderResponse | None = None
    """What the target had said, done and cost by then."""
    is_inner: bool = False
    """Whether only a request of the target's own failed, which it repeats itself."""


class Backoff(NamedTuple):
    """How often a call is repeated, and after how many seconds: longer each time, up to a limit."""

    retries: int = 0
    initial: float = 0.0
    most: float = 0.0
    factor: float = 1.0

    def delay(self, attempt: int, retry_after: float | None) -> float:
        """Return the seconds to wait after an attempt: what the server asks for, else what is set up.

        The latter is shortened at random, so that calls that failed together do not come back together.
        """
        if retry_after is not None:
            return retry_after
        try:
            longest = min(self.most, self.initial * self.factor ** (attempt - 1))
        except OverflowError:
            longest = self.most
        return longest * random.uniform(0.5, 1.0)


class RetryPolicy(NamedTuple):
    """How long a call may take, how often it is repeated, and who is told when it is."""

    seconds: float
    """Seconds that one attempt may take; all waiting together may not take longer."""
    backoff: Backoff
    on_retry: Callable[[int, FailedCall], None]
    hold: Callable[[float], None] = lambda _seconds: None
    """Keeps everybody from calling the target for so many seconds."""


class Attempts:
    """Counts the attempts at one call, and waits between them."""

    def __init__(self, policy: RetryPolicy):
        self._policy = policy
        self._left = policy.seconds
        self.number = 1

    async def another(self, failed: FailedCall) -> FailedCall | None:
        """Return None after waiting for the next attempt; return the final failure if there is to be none."""
        policy = self._policy
        delay = policy.backoff.delay(self.number, failed.retry_after)
        is_busy = failed.status == TOO_MANY_REQUESTS
        if is_busy and delay <= self._left:
            policy.hold(delay)  # whether or not this call is repeated
        if not failed.may_pass or self.number > policy.backoff.retries:
            return failed
        self._left -= delay
        if self._left < 0:
            limit = f"to wait {delay:.0f} s more would take longer than the time limit of {policy.seconds:g} s"
            return failed._replace(error=f"{failed.error}; {limit}")
        policy.on_retry(self.number, failed)
        self.number += 1
        if delay and not is_busy:
            await asyncio.sleep(delay)
        return None
