"""Calls of judges -> how many they were and what they cost, by judge. What comes from a cache is no call."""

import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.protocols import Provider
from agentv.records import JudgeMetrics, ProviderRequest, ProviderResponse, TokenUsage

N = TypeVar("N", int, float)


class MeterState(msgspec.Struct, frozen=True, kw_only=True):
    """What a meter has counted, by judge."""

    calls: dict[str, int] = {}
    answers: dict[str, list[tuple[TokenUsage | None, float | None]]] = {}
    seconds: dict[str, float] = {}


class JudgeMeter:
    """Counts the calls of judges. A call that fails costs nothing, as far as is known."""

    def __init__(self, known: "MeterState | None" = None) -> None:
        """`known` is what was counted before."""
        self._calls: dict[str, int] = dict(known.calls) if known else {}
        self._answers: dict[str, list[tuple[TokenUsage | None, float | None]]] = dict(known.answers) if known else {}
        self._seconds: dict[str, float] = dict(known.seconds) if known else {}

    def state(self) -> "MeterState":
        """Return what was counted so far, to be written down."""
        return MeterState(calls=self._calls, answers=self._answers, seconds=self._seconds)

    def wrap(self, name: str, provider: Provider) -> Provider:
        """Return a judge's provider, whose calls are counted."""
        return _Counted(name, provider, self)

    def called(self, name: str) -> None:
        """Count a call of a judge."""
        self._calls[name] = self._calls.get(name, 0) + 1

    def took(self, name: str, seconds: float) -> None:
        """Count the time of a call, whether or not it has failed."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def answered(self, name: str, response: ProviderResponse) -> None:
        """Count what a call has cost."""
        self._answers.setdefault(name, []).append((response.token_usage, response.cost_usd))

    @property
    def metrics(self) -> dict[str, JudgeMetrics] | None:
        """What each judge took; None if none was asked."""
        return {name: self._metrics(name, calls) for name, calls in self._calls.items()} or None

    def _metrics(self, name: str, calls: int) -> JudgeMetrics:
        answers = self._answers.get(name, [])
        used = [usage for usage, _ in answers if usage is not None]
        usage = None
        if used:
            usage = TokenUsage(input=_sum(each.input for each in used), output=_sum(each.output for each in used))
        return JudgeMetrics(
            calls=calls,
            token_usage=usage,
            cost_usd=_sum(cost for _, cost in answers),
            duration_ms=round(1000 * self._seconds.get(name, 0.0), 3),
        )


def _sum(values: Iterable[N | None]) -> N | None:
    """Return the sum; None if there is nothing to add, or one of the values is not known."""
    total: N | None = None
    for value in values:
        if value is None:
            return None
        total = value if total is None else total + value
    return total


class _Counted:
    def __init__(self, name: str, provider: Provider, meter: JudgeMeter):
        self._name, self._provider, self._meter = name, provider, meter

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        self._meter.called(self._name)
        start = time.perf_counter()
        try:
            response = await self._provider.invoke(request)
        except ProviderError as error:
            if error.partial is not None:  # which is paid for
                self._meter.answered(self._name, error.partial)
            raise
        finally:
            self._meter.took(self._name, time.perf_counter() - start)
        self._meter.answered(self._name, response)
        return response


judge_meter: ContextVar[JudgeMeter | None] = ContextVar("judge_meter", default=None)
"""Counts the calls of judges for the answer that is being scored."""
