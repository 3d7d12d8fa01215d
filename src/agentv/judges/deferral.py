"""Judgements that come later: what is known of a case whose judges are asked in a batch.

An evaluator asks its judge as always. If the judge has not answered yet, `DeferredJudgement` goes up to whoever runs
the case, and the evaluators run once more when it has. What they found meanwhile is kept here, and not paid for twice.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from agentv.judges.metering import JudgeMeter, MeterState
from agentv.records import EvaluatorResult, ProviderRequest, ProviderResponse

T = TypeVar("T")


class DeferredJudgement(BaseException):
    """A judge answers later. No evaluator can do anything about that, so that it is no `Exception`."""


class CaseJudging:
    """What is known of the judgements of one trial of a case, as far as they are made."""

    def __init__(self, dataset: str, fence: str | None = None, metered: MeterState | None = None):
        self.dataset, self.meter = dataset, JudgeMeter(metered)
        self.fence = fence or secrets.token_hex(8)
        """The mark around what the agent wrote. It is the same whenever the case is judged."""
        self.results: dict[str, EvaluatorResult] = {}
        """What evaluators found, by their places."""
        self.replies: dict[str, ProviderResponse] = {}
        """What judges said that were asked at once, by the id of the request."""
        self.used: list[str] = []
        """The ids of the requests that were answered in a batch."""
        self.asked: list[tuple[Any, str, ProviderRequest]] = []
        """What is to be asked: the target, the id, and the request."""


current: ContextVar[CaseJudging | None] = ContextVar("current_judging", default=None)
"""The judgements that may be deferred in this task; None if all judges are to answer at once."""
place: ContextVar[str] = ContextVar("evaluator_place", default="")
"""The place of the evaluator that asks, among those of the case."""


async def once(own_place: str, evaluate: Callable[[], Coroutine[Any, Any, EvaluatorResult]]) -> EvaluatorResult:
    """Return the result of an evaluator; what is known already is not found again."""
    judging = current.get()
    assert judging is not None
    known = judging.results.get(own_place)
    if known is None:
        token = place.set(own_place)
        try:
            known = judging.results[own_place] = await evaluate()
        finally:
            place.reset(token)
    return known


async def settle(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what all the calls give; raise `DeferredJudgement`, if one of them does, when all have ended."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_caught(call)) for call in calls]
    found = [task.result() for task in tasks]
    settled = [each for each in found if not isinstance(each, DeferredJudgement)]
    if len(settled) < len(found):
        raise DeferredJudgement
    return settled


async def _caught(call: Coroutine[Any, Any, T]) -> T | DeferredJudgement:
    try:
        return await call
    except DeferredJudgement as deferred:
        return deferred
