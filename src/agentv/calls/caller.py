"""Call a target: answer from the cache, else ask within the limits of the run and of the target."""

import asyncio
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agentv.calls.cache import Cache
from agentv.calls.cache_key import cache_key, target_key
from agentv.calls.rate_limit import RateLimiter
from agentv.calls.retry import Attempts, Backoff, FailedCall, RetryPolicy
from agentv.calls.slots import WHOLE, Share, Slots
from agentv.calls.timeout import within
from agentv.notices import on_inner_retry
from agentv.protocols import Provider
from agentv.providers.settings import RetrySettings, TargetSettings
from agentv.records import ProviderRequest, ProviderResponse

TIMEOUT_SECONDS = 600.0
INITIAL_MS, MOST_MS, FACTOR = 1000, 60_000, 2
OnRetry = Callable[[int, FailedCall], None]
"""Is told the number of an attempt that failed and is repeated, and why it failed."""


class Preparation(Protocol):
    """What is done around each attempt at a call. Its time is not that of the answer."""

    def takes(self, cached: ProviderResponse) -> bool:
        """Return whether an answer of the cache will do."""
        ...

    async def prepare(self, request: ProviderRequest) -> ProviderRequest:
        """Return what is sent in this attempt; raise `ProviderError` if nothing can be."""
        ...

    async def complete(self, response: ProviderResponse) -> ProviderResponse:
        """Return the answer with what can only be told now."""
        ...


class Preparations:
    """Several preparations as one; what the first does, the last undoes."""

    def __init__(self, *preparations: Preparation):
        self._preparations = preparations

    def takes(self, cached: ProviderResponse) -> bool:
        return all(each.takes(cached) for each in self._preparations)

    async def prepare(self, request: ProviderRequest) -> ProviderRequest:
        for each in self._preparations:
            request = await each.prepare(request)
        return request

    async def complete(self, response: ProviderResponse) -> ProviderResponse:
        for each in reversed(self._preparations):
            response = await each.complete(response)
        return response


class CallPolicy:
    """The limits on calling one target: how many calls at once, how fast, how long, and how often again.

    `slots` limits the calls at once, whoever makes them; None if the run's own limit is enough.
    """

    def __init__(
        self,
        limiter: RateLimiter | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008  # a value
        seconds: float | None = None,
        slots: asyncio.Semaphore | Slots | None = None,
        make_target_key: Callable[[], Any] = lambda: None,
    ):
        self.limiter, self.backoff, self.seconds = limiter or RateLimiter(), backoff, seconds
        self.slots, self._make_target_key = slots, make_target_key

    @cached_property
    def target_key(self) -> Any:
        """The part of a cache key that all requests to the target share."""
        return self._make_target_key()


class CallPolicies:
    """Makes the call policies of one run. Targets that are set up alike share their rate limit.

    Where several processes share a run, each keeps to its share of the limits.
    """

    def __init__(self, share: Share = WHOLE) -> None:
        self._share = share
        self._limiters: dict[bytes, RateLimiter] = {}
        self._alone = asyncio.Semaphore(1)
        self._slots: dict[object, tuple[Slots, int]] = {}

    def rebalance(self, share: Share) -> None:
        """Keep to another share from now on."""
        if share != self._share:
            self._share = share
            for limiter in self._limiters.values():
                limiter.divide(share.parts)
            for slots, limit in self._slots.values():
                slots.resize(share.of(limit))

    def policy(
        self, settings: TargetSettings, folder: Path, key: tuple[Path | None, str], most: int | None
    ) -> CallPolicy:
        """Return the policy of a target; `most` limits the calls at once to all targets of the same `key`.

        The key is the targets file and the name.
        """
        slots: asyncio.Semaphore | Slots | None = self._alone if settings.is_serial else None
        if slots is None and most is not None:
            slots = self._slots.setdefault(key, (Slots(self._share.of(most)), most))[0]
        alike = msgspec.json.encode(settings, enc_hook=str)
        limiter = self._limiters.setdefault(alike, _limiter(settings))
        limiter.divide(self._share.parts)
        return CallPolicy(
            limiter,
            _backoff(settings),
            getattr(settings, "timeout_seconds", None),
            slots,
            lambda: target_key(settings, folder, key[0]),
        )


def _limiter(settings: TargetSettings) -> RateLimiter:
    if not isinstance(settings, RetrySettings):
        return RateLimiter()
    return RateLimiter(_number(settings.requests_per_minute), _number(settings.tokens_per_minute))


def _backoff(settings: TargetSettings) -> Backoff:
    if not isinstance(settings, RetrySettings):
        return Backoff()
    retries, initial, most, factor = (
        default if (value := _number(given)) is None else value
        for given, default in (
            (settings.max_retries, settings.retries),
            (settings.initial_delay_ms, INITIAL_MS),
            (settings.max_delay_ms, MOST_MS),
            (settings.backoff_factor, FACTOR),
        )
    )
    return Backoff(int(retries), initial / 1000, most / 1000, factor)


def _number(value: float | str | None) -> float | None:
    """Return a setting that is a number; variables have been filled in by now."""
    return value if isinstance(value, int | float) else None


class Caller:
    """Calls the targets of one run, for answers and for judgements alike.

    `slots` limits all calls at once, where they can be more than there are workers. A time limit and a number of
    retries that are given here win over those of the targets.
    """

    def __init__(
        self,
        slots: asyncio.Semaphore | None = None,
        seconds: float | None = None,
        retries: int | None = None,
        cache: Cache | None = None,
    ):
        self._slots, self._seconds, self._retries, self._cache = slots, seconds, retries, cache
        self.cache_hits = 0

    async def call(
        self,
        provider: Provider,
        policy: CallPolicy,
        request: ProviderRequest,
        on_retry: OnRetry,
        preparation: Preparation | None = None,
    ) -> tuple[int, ProviderResponse | FailedCall, bool]:
        """Return the number of the last attempt, its answer or why there is none, and whether the cache had it."""
        takes = preparation.takes if preparation is not None else None
        if self._cache is not None and (known := self.cached(policy, request, takes)) is not None:
            return 1, known, True
        attempts = None
        number = 1
        on_inner_retry.set(lambda inner, reason: on_retry(inner, FailedCall(reason, is_inner=True)))
        while True:
            prepared = request if preparation is None else await within(None, preparation.prepare(request))
            if isinstance(prepared, FailedCall):
                return number, prepared, False
            got = await self._attempt(provider, policy, prepared, number)
            if preparation is not None:
                got = await _complete(preparation, got)
            if not isinstance(got, FailedCall):
                if self._cache is not None:
                    self.keep(policy, request, got)
                return number, got, False
            if attempts is None:
                seconds = self.seconds(policy)
                attempts = Attempts(RetryPolicy(seconds, self.backoff(policy), on_retry, policy.limiter.hold))
            if (final := await attempts.another(got)) is not None:
                return number, final, False
            number = attempts.number

    async def _attempt(
        self, provider: Provider, policy: CallPolicy, request: ProviderRequest, number: int
    ) -> ProviderResponse | FailedCall:
        """Call the provider once, when the target and the run have a free slot."""
        if number > 1:
            request = msgspec.structs.replace(request, attempt=number)
        limiter, slots = policy.limiter, policy.slots
        if slots is not None:
            await slots.acquire()
        try:
            if is_limited := limiter.is_needed:
                await limiter.wait(_expected_tokens(request))
            if self._slots is None:
                start = time.perf_counter()
                got = await within(self.seconds(policy), provider.invoke(request))
            else:
                async with self._slots:
                    start = time.perf_counter()
                    got = await within(self.seconds(policy), provider.invoke(request))
        finally:
            if slots is not None:
                slots.release()
        if isinstance(got, FailedCall):
            limiter.failed()
            return got
        if not isinstance(got, ProviderResponse):  # the code of a package is not checked by us
            limiter.failed()
            return FailedCall(f"the provider returned {type(got).__name__}, and no ProviderResponse")
        if is_limited:
            limiter.answered(_tokens(got, request), _expected_tokens(request))
        if got.duration_ms is not None:
            return got
        return msgspec.structs.replace(got, duration_ms=round((time.perf_counter() - start) * 1000, 3))

    def seconds(self, policy: CallPolicy) -> float:
        """Return the seconds that one attempt may take."""
        return self._seconds or policy.seconds or TIMEOUT_SECONDS

    def batch_seconds(self, policy: CallPolicy, cases: int) -> float:
        """Return the seconds that a batch may take: its limit, else as long as its cases one after another."""
        return self._seconds or policy.seconds or TIMEOUT_SECONDS * cases

    def backoff(self, policy: CallPolicy) -> Backoff:
        """Return how failed calls are repeated."""
        return policy.backoff if self._retries is None else policy.backoff._replace(retries=self._retries)

    def cached(
        self,
        policy: CallPolicy,
        request: ProviderRequest,
        takes: Callable[[ProviderResponse], bool] | None = None,
    ) -> ProviderResponse | None:
        """Return what the target answered before, if the cache has it and it will do."""
        if self._cache is None:
            return None
        known = self._cache.get(cache_key(policy.target_key, request))
        if known is None or (takes is not None and not takes(known)):
            return None
        self.cache_hits += 1
        return known

    def is_cached(self, policy: CallPolicy, request: ProviderRequest) -> bool:
        """Return whether the cache has an answer; it does not count as used."""
        return self._cache is not None and self._cache.get(cache_key(policy.target_key, request)) is not None

    def keep(self, policy: CallPolicy, request: ProviderRequest, response: ProviderResponse) -> None:
        """Put an answer into the cache, if there is one."""
        if self._cache is not None:
            self._cache.put(cache_key(policy.target_key, request), response)


async def _complete(preparation: Preparation, got: ProviderResponse | FailedCall) -> ProviderResponse | FailedCall:
    """Return an answer, or what is known of a failed call, with what the preparation adds to it."""
    if not isinstance(got, FailedCall):
        return await preparation.complete(got)
    known = await preparation.complete(got.partial) if got.partial is not None else got
    return got if isinstance(known, FailedCall) else got._replace(partial=known)


def _expected_tokens(request: ProviderRequest) -> float:
    """Return about how many tokens a request has."""
    return (len(request.question) + len(request.guidelines)) / 4


def _tokens(response: ProviderResponse, request: ProviderRequest) -> float:
    usage = response.token_usage
    if usage is None:
        return _expected_tokens(request)
    return (usage.input or 0) + (usage.output or 0)
