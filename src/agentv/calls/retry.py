"""Decide whether a failed call is retried, and after which delay."""

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple

from agentv.records import Failure, ProviderResponse

TOO_MANY_REQUESTS = 429


class FailedCall(NamedTuple):
    """Why a call failed, and whether another attempt may succeed."""

    error: str
    failure: Failure = "target"
    may_pass: bool = False
    status: int | None = None
    retry_after: float | None = None
    details: str | None = None
    """The traceback of the user's own code."""
    partial: ProviderResponse | None = None
    """The output, tool calls and cost of the target until it failed."""
    is_inner: bool = False
    """Whether the failure is that of a single request inside the target, which the target repeats itself."""


class Backoff(NamedTuple):
    """Exponential backoff: the number of retries, and the delays in seconds."""

    retries: int = 0
    initial: float = 0.0
    most: float = 0.0
    factor: float = 1.0

    def delay(self, attempt: int, retry_after: float | None) -> float:
        """Return the seconds to wait after an attempt: the server's `Retry-After`, else the exponential delay.

        The exponential delay has random jitter, so that calls that failed together are not repeated together.
        """
        if retry_after is not None:
            return retry_after
        try:
            growth = self.factor ** (attempt - 1)
            longest = min(self.most, self.initial * growth)
        except OverflowError:
            longest = self.most
        jitter = random.uniform(0.5, 1.0)
        return longest * jitter


class RetryPolicy(NamedTuple):
    """The time limit of a call, its backoff, and the functions to call on a retry and on a 429."""

    seconds: float
    """The time limit of one attempt. The delays between all attempts together may not exceed it either."""
    backoff: Backoff
    on_retry: Callable[[int, FailedCall], None]
    hold: Callable[[float], None] = lambda _seconds: None
    """Stop all calls to the target for this many seconds."""


class Retries:
    """Counts the attempts at one call, and waits between them."""

    def __init__(self, policy: RetryPolicy):
        self._policy = policy
        self._seconds_left = policy.seconds
        self.number = 1

    async def next(self, failed: FailedCall) -> FailedCall | None:
        """Wait for the next attempt and return None, or return the final failure if the call is not repeated."""
        policy = self._policy
        delay = policy.backoff.delay(self.number, failed.retry_after)
        is_busy = failed.status == TOO_MANY_REQUESTS
        if is_busy and delay <= self._seconds_left:
            # Other calls have to wait even if this call is not repeated.
            policy.hold(delay)
        if not failed.may_pass or self.number > policy.backoff.retries:
            return failed
        self._seconds_left -= delay
        if self._seconds_left < 0:
            limit = f"waiting {delay:.0f} s more would exceed the time limit of {policy.seconds:g} s"
            return failed._replace(error=f"{failed.error}; {limit}")
        policy.on_retry(self.number, failed)
        self.number += 1
        # After a 429, the rate limiter delays the next attempt.
        if delay and not is_busy:
            await asyncio.sleep(delay)
        return None
