"""A target and a request -> its answer: remembered from before, else asked for within the limits of the run."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from hashlib import file_digest
from pathlib import Path
from typing import Any

import msgspec

from agentv.calls.cache import Cache
from agentv.calls.rate_limit import RateLimiter
from agentv.calls.retry import Backoff, FailedCall, RetryPolicy, call_with_retries
from agentv.errors import ProviderError
from agentv.protocols import Provider
from agentv.providers.settings import RetrySettings, TargetSettings
from agentv.records import ProviderRequest, ProviderResponse

TIMEOUT_SECONDS = 600.0
INITIAL_MS, MOST_MS, FACTOR = 1000, 60_000, 2
OnRetry = Callable[[int, FailedCall], None]
NOT_SENT = frozenset((*RetrySettings.__struct_fields__, "api_key", "timeout_seconds")) - {"provider"}
"""Settings that do not change what a target is sent, and the one that is nobody's business."""


class CallPolicy:
    """How a target is asked: how fast, how often, how long, and by how many at once."""

    def __init__(
        self,
        pace: RateLimiter | None = None,
        backoff: Backoff | None = None,
        seconds: float | None = None,
        gate: asyncio.Semaphore | None = None,
        sent: Callable[[], Any] = lambda: None,
    ):
        self.pace, self.backoff, self.seconds = pace or RateLimiter(), backoff or Backoff(), seconds
        self.gate, self._sent = gate, sent

    @cached_property
    def sent(self) -> Any:
        """What is sent with every request: its settings, and what they speak of."""
        return self._sent()


class CallPolicies:
    """How each of the targets of a run is asked; those that are set up alike share their pace."""

    def __init__(self) -> None:
        self._paces: dict[bytes, RateLimiter] = {}
        self._gates: dict[bytes, asyncio.Semaphore] = {}
        self._alone = asyncio.Semaphore(1)

    def of(self, settings: TargetSettings, folder: Path, *, limited: bool = False) -> CallPolicy:
        """How a target with these settings is asked, by the eval files in a folder; `limited` by its own workers."""
        key = msgspec.json.encode(settings, enc_hook=str)
        gate = self._alone if settings.is_alone else None
        if limited and gate is None and isinstance(settings.workers, int):
            gate = self._gates.setdefault(key, asyncio.Semaphore(settings.workers))
        return CallPolicy(
            self._paces.setdefault(key, _pace(settings)),
            _backoff(settings),
            getattr(settings, "timeout_seconds", None),
            gate,
            lambda: _sent(settings, folder),
        )


def _sent(settings: TargetSettings, folder: Path) -> Any:
    fields = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in NOT_SENT}
    if isinstance(settings, RetrySettings):
        return fields
    at_work = [folder / str(fields[name]) for name in ("cwd", "workspace_template") if fields.get(name)]
    found = [fingerprint for place in (folder, *at_work) for fingerprint in _contents(fields, place)]
    if settings.reads_files:  # what an agent works on is part of what it is asked
        found += [fingerprint for place in at_work for fingerprint in _tree(place)]
    return [fields, str(folder), found]


def _contents(fields: Any, folder: Path) -> Iterator[str]:
    """What is in the files that the settings of a target here speak of, such as a function's."""
    if isinstance(fields, str):
        for word in _WORD.findall(fields):
            for place in (folder / word, folder / f"{word.replace('.', '/')}.py"):
                with suppress(OSError, ValueError):
                    yield from _fingerprint(place)
    elif isinstance(fields, dict | list | tuple):
        for inner in fields.values() if isinstance(fields, dict) else fields:
            yield from _contents(inner, folder)


_WORD = re.compile(r"[^\s'\":;|&<>(){}$`]+")


def _tree(folder: Path) -> Iterator[str]:
    """What is in all the files of a folder, but for what Git has to say of them."""
    for path in sorted(folder.rglob("*")):
        if ".git" not in path.parts:
            with suppress(OSError):
                yield str(path.relative_to(folder))
                yield from _fingerprint(path)


def _fingerprint(path: Path) -> Iterator[str]:
    if path.is_file():
        with path.open("rb") as file:
            yield file_digest(file, "blake2b").hexdigest()


def _pace(settings: TargetSettings) -> RateLimiter:
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
    """A setting that is a number; variables have been filled in by now."""
    return value if isinstance(value, int | float) else None


class _Turn:
    """One's turn to ask a target: when it is free, at its pace, in a slot of the run."""

    def __init__(self, policy: CallPolicy, slots: asyncio.Semaphore, expected: float):
        self._policy, self._slots, self._expected = policy, slots, expected

    async def __aenter__(self) -> None:
        gate = self._policy.gate
        if gate is not None:
            await gate.acquire()
        try:
            await self._policy.pace.turn(self._expected)
            await self._slots.acquire()
        except BaseException:
            if gate is not None:
                gate.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._slots.release()
        if self._policy.gate is not None:
            self._policy.gate.release()


class Caller:
    """Asks the targets of one run, be it for an answer or for a judgement.

    `slots` are how many may be asked at once; a time limit and a number of retries that are given here win over the
    targets' own.
    """

    def __init__(
        self,
        slots: asyncio.Semaphore,
        seconds: float | None = None,
        retries: int | None = None,
        cache: Cache | None = None,
    ):
        self._slots, self._seconds, self._retries, self._cache = slots, seconds, retries, cache
        self.hits = 0
        """How many answers were remembered."""

    async def ask(
        self, provider: Provider, policy: CallPolicy, request: ProviderRequest, on_retry: OnRetry
    ) -> tuple[int, ProviderResponse | FailedCall]:
        """The answer, or why there is none, and after how many attempts."""
        if (known := self.remembered(policy, request)) is not None:
            self.hits += 1
            return 1, known
        expected = _expected(request)

        async def call(attempt: int) -> ProviderResponse:
            start = time.perf_counter()
            asked = request if attempt == 1 else msgspec.structs.replace(request, attempt=attempt)
            try:
                response = await provider.invoke(asked)
                if not isinstance(response, ProviderResponse):  # a package's code is not checked by us
                    raise ProviderError(f"the provider returned {type(response).__name__}, and no ProviderResponse")
            except BaseException:
                policy.pace.failed()
                raise
            policy.pace.answered(_tokens(response, expected), expected)
            if response.duration_ms is not None:
                return response
            return msgspec.structs.replace(response, duration_ms=round((time.perf_counter() - start) * 1000, 3))

        turn = _Turn(policy, self._slots, expected)
        retries = RetryPolicy(self.seconds(policy), self.backoff(policy), turn, on_retry, policy.pace.hold)
        attempt, got = await call_with_retries(call, retries)
        if not isinstance(got, FailedCall):
            self.remember(policy, request, got)
        return attempt, got

    def seconds(self, policy: CallPolicy) -> float:
        """How long one attempt may take."""
        return self._seconds or policy.seconds or TIMEOUT_SECONDS

    def batch_seconds(self, policy: CallPolicy, cases: int) -> float:
        """How long a batch may take: the limit that was set, else as long as its cases may take one after another."""
        return self._seconds or policy.seconds or TIMEOUT_SECONDS * cases

    def backoff(self, policy: CallPolicy) -> Backoff:
        """How what failed is repeated."""
        return policy.backoff if self._retries is None else policy.backoff._replace(retries=self._retries)

    def remembered(self, policy: CallPolicy, request: ProviderRequest) -> ProviderResponse | None:
        """What the target answered before."""
        return self._cache.get(self._cache.name(policy.sent, request)) if self._cache is not None else None

    def remember(self, policy: CallPolicy, request: ProviderRequest, response: ProviderResponse) -> None:
        if self._cache is not None:
            self._cache.put(self._cache.name(policy.sent, request), response)


def _expected(request: ProviderRequest) -> float:
    """About how many tokens a request has."""
    return (len(request.question) + len(request.guidelines)) / 4


def _tokens(response: ProviderResponse, expected: float) -> float:
    usage = response.token_usage
    if usage is None:
        return expected
    return (usage.input or 0) + (usage.output or 0)
