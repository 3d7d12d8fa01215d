"""The attempts at one case: known answers, the cache, calls to the target, and the scopes around them."""

from types import TracebackType
from typing import Self, TypeVar

from msgspec.structs import replace

from agentv.calls.caller import report_inner_retries
from agentv.calls.retry import FailedCall, Retries
from agentv.calls.timeout import within
from agentv.errors import ProviderError
from agentv.evaluators.score import CaseEvaluators
from agentv.protocols import attached_outcome
from agentv.records import EvalResult, ProviderRequest, ProviderResponse, RetryMetrics, TokenUsage
from agentv.run.extensions import Scope
from agentv.run.jobs import Job
from agentv.run.outcome import Outcome, exchange_of, outcome_of
from agentv.run.run import Run

N = TypeVar("N", int, float)


class Attempts:
    """Tries a case until it is answered, or fails in a way that another attempt cannot change.

    A context manager: the scopes of the last attempt are always left.
    """

    def __init__(
        self,
        job: Job,
        request: ProviderRequest,
        run: Run,
        evaluators: CaseEvaluators,
    ):
        self._job = job
        self._request = request
        self._run = run
        self._caller = run.targets.caller
        self._policy = job.target.policy
        self._scopes: list[Scope] = []
        for extension in run.extensions:
            scope = extension.scope(job, evaluators)
            if scope is not None:
                self._scopes.append(scope)
        self._to_leave = [*self._scopes]
        """The scopes that have yet to be left, the first one last."""
        self._is_calling = False
        self._without_room = 0
        """How often the machine had no room for an attempt."""
        self._retries: Retries | None = None
        self._failed: RetryMetrics | None = None
        """The failed attempts that were repeated."""
        self._outcome: Outcome | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._scopes:
            await self._leave(None)

    async def answer(self) -> Outcome:
        """Return the answer to the case, or why there is none."""
        outcome = self._find_answer()
        if outcome is None:
            report_inner_retries(self._on_retry)
        number = 1
        while outcome is None:
            request: ProviderRequest | FailedCall = self._request
            if self._scopes:
                # Preparing an attempt does not count against the target's time limit.
                request = await within(None, self._enter())
            if isinstance(request, FailedCall):
                outcome = await self._not_entered(request, number)
            else:
                self._is_calling = True
                got = await self._caller.ask(self._job.target.provider, self._policy, request, number)
                self._is_calling = False
                if isinstance(got, FailedCall):
                    outcome = await self._after_failure(got, number)
                else:
                    exchange = exchange_of(self._job, got, request.workspace)
                    outcome = Outcome(number, exchange, is_new=True)
            number += 1
        if self._failed is not None:
            outcome = replace(outcome, retries=self._failed)
        self._outcome = outcome
        return await self._complete(outcome)

    def costs(self, cancelled: BaseException) -> list[float | None]:
        """Return the costs of the attempts until the case was cancelled. An unknown cost is None."""
        costs: list[float | None] = []
        if self._failed is not None and self._failed.cost_usd is not None:
            costs.append(self._failed.cost_usd)
        if self._outcome is not None:
            is_free = self._outcome.is_cached or self._run.context.is_stored(self._job)
            if self._outcome.known is not None and not is_free:
                costs.append(self._outcome.known.cost_usd)
        elif self._is_calling:
            outcome = attached_outcome(cancelled)
            if isinstance(outcome, ProviderError):
                outcome = outcome.partial
            if outcome is None:
                costs.append(None)
            else:
                costs.append(outcome.cost_usd)
        return costs

    async def end(self, result: EvalResult) -> EvalResult:
        """Leave the scopes of the last attempt; return the result as they complete it."""
        if not self._scopes:
            return result
        return await self._leave(result) or result

    def _find_answer(self) -> Outcome | None:
        """Return an answer that exists already: from an earlier run, from a batch, or from the cache."""
        for extension in self._run.extensions:
            outcome = extension.known_outcome(self._job, self._request)
            if outcome is not None:
                return outcome
        if self._job.batch is not None:
            found = self._job.batch.answer(self._request, self._caller)
            return outcome_of(self._job, found.attempt, found.answer, is_cached=found.is_cached)
        cached = self._caller.cached(self._policy, self._request, self._accepts)
        if cached is None:
            return None
        return outcome_of(self._job, 1, cached, is_cached=True)

    def _accepts(self, cached: ProviderResponse) -> bool:
        return all(scope.accepts(cached) for scope in self._scopes)

    async def _not_entered(self, failed: FailedCall, number: int) -> Outcome | None:
        """Return the outcome of an attempt that could not be prepared; None if it is repeated."""
        if failed.failure == "machine":
            self._without_room += 1
            if await self._run.room.make(failed.error, self._without_room):
                await self._leave(None)
                return None
        partial = await self._describe_failure(failed.partial)
        return outcome_of(self._job, number, failed._replace(partial=partial))

    async def _after_failure(self, failed: FailedCall, number: int) -> Outcome | None:
        """Return the outcome of an attempt that failed; None if it is repeated, after the wait for the next one."""
        if failed.failure == "machine":
            return await self._not_entered(failed, number)
        partial = await self._describe_failure(failed.partial)
        failed = failed._replace(partial=partial)
        if self._retries is None:
            self._retries = self._caller.retries(self._policy, self._on_retry)
        earlier = self._failed
        self._failed = _add_attempt(earlier, failed.partial)
        final = await self._retries.next(failed)
        if final is not None:
            self._failed = earlier  # the last attempt is described by the outcome itself
            return outcome_of(self._job, number, final)
        await self._leave(None)
        return None

    async def _complete(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the additions of the scopes. A new answer is stored in the cache."""
        exchange = outcome.exchange
        if exchange is None:
            return outcome
        if self._scopes:
            for scope in reversed(self._scopes):
                exchange = await scope.answered(exchange)
            outcome = replace(outcome, exchange=exchange)
        if outcome.is_new:
            self._caller.keep(self._policy, self._request, exchange.response)
        return outcome

    async def _enter(self) -> ProviderRequest:
        self._to_leave = [*self._scopes]
        request = self._request
        for scope in self._scopes:
            request = await scope.enter(request)
        return request

    async def _describe_failure(self, partial: ProviderResponse | None) -> ProviderResponse | None:
        """Return what the scopes know about a failed attempt, given the partial response of the target."""
        for scope in reversed(self._scopes):
            partial = await scope.failed(partial)
        return partial

    async def _leave(self, result: EvalResult | None) -> EvalResult | None:
        """Leave the scopes, each once per attempt, even if one of them is interrupted."""
        while self._to_leave:
            scope = self._to_leave.pop()
            result = await scope.leave(result)
        return result

    def _on_retry(self, attempt: int, failed: FailedCall) -> None:
        job = self._job
        what = self._run.label(job)
        if failed.is_inner:
            what = f"{what}, inner request"
        else:
            outcome = outcome_of(job, attempt, failed)
            self._run.dumps.trace(job.case, job.planned.name, outcome, job.trial)
        self._run.progress.retried(what, attempt, failed.error)


def _add_attempt(earlier: RetryMetrics | None, partial: ProviderResponse | None) -> RetryMetrics:
    """Return the metrics of failed attempts with the known metrics of another one added."""
    sums = earlier or RetryMetrics(attempts=0)
    cost = None
    tokens = None
    if partial is not None:
        cost = partial.cost_usd
        tokens = partial.token_usage
    return RetryMetrics(
        attempts=sums.attempts + 1,
        cost_usd=_sum_of_known(sums.cost_usd, cost),
        token_usage=_sum_of_tokens(sums.token_usage, tokens),
    )


def _sum_of_tokens(first: TokenUsage | None, second: TokenUsage | None) -> TokenUsage | None:
    if first is None or second is None:
        return first or second
    sums = {}
    for name in TokenUsage.__struct_fields__:
        sums[name] = _sum_of_known(getattr(first, name), getattr(second, name))
    return TokenUsage(**sums)


def _sum_of_known(first: N | None, second: N | None) -> N | None:
    if first is None:
        return second
    if second is None:
        return first
    return first + second
