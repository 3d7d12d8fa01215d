"""Count judge calls and their cost per judge. Answers from the cache are not counted."""

import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.protocols import Provider
from agentv.records import JudgeMetrics, ProviderRequest, ProviderResponse, TokenUsage

N = TypeVar("N", int, float)
Expense = tuple[TokenUsage | None, float | None]
"""The known tokens and cost (US dollars) of one answer."""


class MeterState(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a meter, per judge."""

    calls: dict[str, int] = {}
    answers: dict[str, list[Expense]] = {}
    seconds: dict[str, float] = {}


class JudgeMeter:
    """Counts judge calls. A failed call is assumed to cost nothing unless it reports a partial answer."""

    def __init__(self, known: MeterState | None = None) -> None:
        """Continue from the counts in `known`, if given."""
        self._calls: dict[str, int] = {}
        self._answers: dict[str, list[Expense]] = {}
        self._seconds: dict[str, float] = {}
        if known is not None:
            self._calls.update(known.calls)
            self._answers.update(known.answers)
            self._seconds.update(known.seconds)

    def state(self) -> MeterState:
        """Return the current counts, to be saved."""
        return MeterState(
            calls=self._calls,
            answers=self._answers,
            seconds=self._seconds,
        )

    def wrap(self, name: str, provider: Provider) -> Provider:
        """Return a provider that counts the calls of a judge."""
        return _MeteredProvider(name, provider, self)

    def called(self, name: str) -> None:
        """Count a call of a judge."""
        self._calls[name] = self._calls.get(name, 0) + 1

    def took(self, name: str, seconds: float) -> None:
        """Add the duration of a call, successful or not."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def answered(self, name: str, response: ProviderResponse) -> None:
        """Add the tokens and the cost of an answer."""
        expenses = self._answers.setdefault(name, [])
        expenses.append((response.token_usage, response.cost_usd))

    @property
    def metrics(self) -> dict[str, JudgeMetrics] | None:
        """The totals of each judge; None if no judge was called."""
        if not self._calls:
            return None
        return {name: self._metrics_of(name) for name in self._calls}

    def _metrics_of(self, name: str) -> JudgeMetrics:
        expenses = self._answers.get(name, [])
        costs = [cost for _, cost in expenses]
        usages = [usage for usage, _ in expenses if usage is not None]
        seconds = self._seconds.get(name, 0.0)
        return JudgeMetrics(
            calls=self._calls[name],
            token_usage=_total_usage(usages),
            cost_usd=_sum(costs),
            duration_ms=round(1000 * seconds, 3),
        )


def _total_usage(usages: list[TokenUsage]) -> TokenUsage | None:
    """Return the sum of the token counts; None if no answer reported any."""
    if not usages:
        return None
    return TokenUsage(
        input=_sum(usage.input for usage in usages),
        output=_sum(usage.output for usage in usages),
    )


def _sum(values: Iterable[N | None]) -> N | None:
    """Return the sum of the values; None if there are none, or if one of them is unknown."""
    total: N | None = None
    for value in values:
        if value is None:
            return None
        if total is None:
            total = value
        else:
            total += value
    return total


@dataclass(frozen=True)
class _MeteredProvider:
    """Counts the calls that it forwards to the provider of a judge."""

    name: str
    provider: Provider
    meter: JudgeMeter

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        self.meter.called(self.name)
        start = time.perf_counter()
        try:
            response = await self.provider.invoke(request)
        except ProviderError as error:
            if error.partial is not None:
                # A partial answer is billed although the call failed.
                self.meter.answered(self.name, error.partial)
            raise
        finally:
            seconds = time.perf_counter() - start
            self.meter.took(self.name, seconds)
        self.meter.answered(self.name, response)
        return response


judge_meter: ContextVar[JudgeMeter | None] = ContextVar("judge_meter", default=None)
"""The meter of the answer that is being scored in this task."""
