"""Calls targets: from the cache, or within the limits of the run and of the target."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from agentv.calls.cache import Cache
from agentv.calls.cache_key import cache_key, target_key
from agentv.calls.format_1 import target_key_1
from agentv.calls.rate_limit import RateLimiter
from agentv.calls.retry import Backoff, FailedCall, Retries, RetryPolicy
from agentv.calls.slots import WHOLE, Share, Slots
from agentv.calls.timeout import within
from agentv.files.encode import to_json
from agentv.protocols import Provider
from agentv.providers.inner_retries import on_inner_retry
from agentv.providers.settings import RetrySettings, TargetSettings
from agentv.records import ProviderRequest, ProviderResponse

TIMEOUT_SECONDS = 600.0
INITIAL_DELAY_MS = 1000
MAX_DELAY_MS = 60_000
BACKOFF_FACTOR = 2
OnRetry = Callable[[int, FailedCall], None]
"""Called with the number of a failed attempt that is repeated, and why it failed."""
CallOutcome = ProviderResponse | FailedCall
Accepts = Callable[[ProviderResponse], bool]
"""Returns whether a cached response may be used."""


@dataclass(eq=False)
class CallPolicy:
    """The limits on calls to one target: concurrency, rate, time and retries."""

    limiter: RateLimiter = field(default_factory=RateLimiter)
    backoff: Backoff = field(default=Backoff())
    seconds: float | None = None
    slots: asyncio.Semaphore | Slots | None = None
    """Limits the concurrent calls of all callers; None if the limit of the run is enough."""
    make_target_key: Callable[[], Any] = lambda: None
    make_target_key_1: Callable[[], Any] = lambda: None

    @cached_property
    def target_key(self) -> Any:
        """The part of a cache key that all requests to the target share."""
        return self.make_target_key()

    @cached_property
    def target_key_1(self) -> Any:
        """The `target_key` in format 1; None if there can be no responses in that format."""
        return self.make_target_key_1()


class CallPolicies:
    """Makes the call policies of one run. Targets with equal settings share a rate limit.

    If several processes share a run, each one keeps to its share of the limits.
    """

    def __init__(self, share: Share = WHOLE) -> None:
        self._share = share
        self._limiters: dict[bytes, RateLimiter] = {}
        self._serial_slot = asyncio.Semaphore(1)
        self._slots: dict[object, tuple[Slots, int]] = {}
        """The slots of each target, and their number in all processes."""

    def rebalance(self, share: Share) -> None:
        """Use another share of the limits from now on."""
        if share == self._share:
            return
        self._share = share
        for limiter in self._limiters.values():
            limiter.divide(share.parts)
        for slots, limit in self._slots.values():
            slots.resize(share.of(limit))

    def policy(
        self,
        settings: TargetSettings,
        folder: Path,
        key: tuple[Path | None, str],
        most: int | None,
    ) -> CallPolicy:
        """Return the policy of a target.

        The key is the targets file and the name; `most` limits the concurrent calls to all targets with this key.
        """
        targets_file = key[0]
        return CallPolicy(
            limiter=self._limiter(settings),
            backoff=_backoff(settings),
            seconds=getattr(settings, "timeout_seconds", None),
            slots=self._slots_of(settings, key, most),
            make_target_key=lambda: target_key(settings, folder, targets_file),
            make_target_key_1=lambda: target_key_1(settings, folder, targets_file),
        )

    def _slots_of(self, settings: TargetSettings, key: object, most: int | None) -> asyncio.Semaphore | Slots | None:
        """Return the concurrency limit of a target. All serial targets of the run share a single slot."""
        if settings.is_serial:
            return self._serial_slot
        if most is None:
            return None
        if key in self._slots:
            slots, _ = self._slots[key]
            return slots
        slots = Slots(self._share.of(most))
        self._slots[key] = (slots, most)
        return slots

    def _limiter(self, settings: TargetSettings) -> RateLimiter:
        """Return the rate limiter that all targets with these settings share."""
        encoded = to_json(settings)
        if encoded not in self._limiters:
            limiter = _new_limiter(settings)
            limiter.divide(self._share.parts)
            self._limiters[encoded] = limiter
        return self._limiters[encoded]


def _new_limiter(settings: TargetSettings) -> RateLimiter:
    if not isinstance(settings, RetrySettings):
        return RateLimiter()
    return RateLimiter(
        requests_per_minute=_number(settings.requests_per_minute),
        tokens_per_minute=_number(settings.tokens_per_minute),
    )


def _backoff(settings: TargetSettings) -> Backoff:
    if not isinstance(settings, RetrySettings):
        return Backoff()
    retries = _number_or(settings.max_retries, settings.retries)
    initial_ms = _number_or(settings.initial_delay_ms, INITIAL_DELAY_MS)
    max_ms = _number_or(settings.max_delay_ms, MAX_DELAY_MS)
    return Backoff(
        retries=int(retries),
        initial=initial_ms / 1000,
        most=max_ms / 1000,
        factor=_number_or(settings.backoff_factor, BACKOFF_FACTOR),
    )


def _number_or(value: float | str | None, default: float) -> float:
    number = _number(value)
    if number is None:
        return default
    return number


def _number(value: float | str | None) -> float | None:
    """Return a setting if it is a number, else None. Variables have been substituted before."""
    if isinstance(value, int | float):
        return value
    return None


def report_inner_retries(on_retry: OnRetry) -> None:
    """Report the retries that a target makes itself to `on_retry`, for the calls of this task."""
    on_inner_retry.set(lambda inner, reason: on_retry(inner, FailedCall(reason, is_inner=True)))


class Caller:
    """Calls the targets of one run, for answers and for judgements.

    `slots` limits all concurrent calls, for runs that can have more calls in flight than workers. A time limit or a
    number of retries that is given here overrides that of the targets.
    """

    def __init__(
        self,
        slots: asyncio.Semaphore | None = None,
        seconds: float | None = None,
        retries: int | None = None,
        cache: Cache | None = None,
    ):
        self._slots = slots
        self._seconds = seconds
        self._retries = retries
        self._cache = cache
        self.cache_hits = 0
        self.format_1_hits = 0
        """How many responses were stored under keys of format 1."""

    async def call(
        self,
        provider: Provider,
        policy: CallPolicy,
        request: ProviderRequest,
        on_retry: OnRetry,
    ) -> CallOutcome:
        """Return the response to a request, from the cache or from the provider, or the failure of the last attempt."""
        cached = self.cached(policy, request)
        if cached is not None:
            return cached
        report_inner_retries(on_retry)
        retries = self.retries(policy, on_retry)
        while True:
            outcome = await self.ask(provider, policy, request, retries.number)
            if not isinstance(outcome, FailedCall):
                self.keep(policy, request, outcome)
                return outcome
            final = await retries.next(outcome)
            if final is not None:
                return final

    def retries(self, policy: CallPolicy, on_retry: OnRetry) -> Retries:
        """Return the counter of the attempts at one call."""
        retry_policy = RetryPolicy(
            seconds=self.seconds(policy),
            backoff=self.backoff(policy),
            on_retry=on_retry,
            hold=policy.limiter.hold,
        )
        return Retries(retry_policy)

    async def ask(
        self,
        provider: Provider,
        policy: CallPolicy,
        request: ProviderRequest,
        attempt: int,
    ) -> CallOutcome:
        """Call the provider once, when both the target and the run have a free slot."""
        if attempt > 1:
            request = msgspec.structs.replace(request, attempt=attempt)
        limiter = policy.limiter
        slots = policy.slots
        if slots is not None:
            await slots.acquire()
        seconds = None
        if getattr(provider, "waits", True):
            seconds = self.seconds(policy)
        try:
            is_limited = limiter.is_needed
            if is_limited:
                await limiter.wait(_expected_tokens(request))
            if self._slots is None:
                start = time.perf_counter()
                got = await within(seconds, provider.invoke(request))
            else:
                async with self._slots:
                    start = time.perf_counter()
                    got = await within(seconds, provider.invoke(request))
        finally:
            if slots is not None:
                slots.release()
        outcome = _checked_outcome(got)
        if isinstance(outcome, FailedCall):
            limiter.failed()
            return outcome
        if is_limited:
            limiter.answered(_tokens(outcome, request), _expected_tokens(request))
        if outcome.duration_ms is None:
            milliseconds = (time.perf_counter() - start) * 1000
            outcome = msgspec.structs.replace(outcome, duration_ms=round(milliseconds, 3))
        return outcome

    @property
    def default_seconds(self) -> float:
        """The time limit in seconds for calls that do not belong to a target."""
        return self._seconds or TIMEOUT_SECONDS

    def seconds(self, policy: CallPolicy) -> float:
        """Return the time limit of one attempt, in seconds."""
        return self._seconds or policy.seconds or TIMEOUT_SECONDS

    def batch_seconds(self, policy: CallPolicy, cases: int) -> float:
        """Return the time limit of a batch, in seconds. Defaults to the sum of the limits of its cases."""
        return self._seconds or policy.seconds or TIMEOUT_SECONDS * cases

    def backoff(self, policy: CallPolicy) -> Backoff:
        """Return how failed calls are retried."""
        if self._retries is None:
            return policy.backoff
        return policy.backoff._replace(retries=self._retries)

    def cached(
        self,
        policy: CallPolicy,
        request: ProviderRequest,
        takes: Accepts | None = None,
    ) -> ProviderResponse | None:
        """Return the cached response to a request and count it as a hit; None if there is none that `takes` accepts."""
        if self._cache is None:
            return None
        key = cache_key(policy.target_key, request)
        response = self._cache.get(key) or self._adopt(self._cache, key, policy, request)
        if response is None:
            return None
        if takes is not None and not takes(response):
            return None
        self.cache_hits += 1
        return response

    def _adopt(
        self,
        cache: Cache,
        key: str,
        policy: CallPolicy,
        request: ProviderRequest,
    ) -> ProviderResponse | None:
        """Move a response that is stored under its key of format 1 to its key of today, and return it."""
        if policy.target_key_1 is None:
            return None
        old_key = cache_key(policy.target_key_1, request)
        response = cache.get(old_key)
        if response is not None:
            self.format_1_hits += 1
            # Moved, not copied: the old key would still be found after a change that format 1 does not notice.
            cache.put(key, response)
            cache.remove(old_key)
        return response

    def is_cached(self, policy: CallPolicy, request: ProviderRequest) -> bool:
        """Return whether the cache has a response, without counting a hit."""
        if self._cache is None:
            return False
        keys = [cache_key(policy.target_key, request)]
        if policy.target_key_1 is not None:
            keys.append(cache_key(policy.target_key_1, request))
        return any(self._cache.get(key) is not None for key in keys)

    def keep(self, policy: CallPolicy, request: ProviderRequest, response: ProviderResponse) -> None:
        """Store a response in the cache, if the run has one."""
        if self._cache is not None:
            key = cache_key(policy.target_key, request)
            self._cache.put(key, response)


def _checked_outcome(got: object) -> CallOutcome:
    """Return the outcome of a call; a failure if a provider from another package returned an unexpected type."""
    if isinstance(got, CallOutcome):
        return got
    return FailedCall(f"the provider returned {type(got).__name__} instead of a ProviderResponse")


def _expected_tokens(request: ProviderRequest) -> float:
    """Return the approximate number of tokens in a request, at four characters per token."""
    characters = len(request.question) + len(request.guidelines)
    return characters / 4


def _tokens(response: ProviderResponse, request: ProviderRequest) -> float:
    """Return the tokens that a response reports; without usage data, the estimate for its request."""
    usage = response.token_usage
    if usage is None:
        return _expected_tokens(request)
    return (usage.input or 0) + (usage.output or 0)
