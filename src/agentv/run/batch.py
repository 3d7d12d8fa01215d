"""A batch program: one call of a target answers one trial of all cases of a file."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TypeVar

from agentv.calls.caller import Caller
from agentv.calls.retry import FailedCall, Retries, RetryPolicy
from agentv.calls.timeout import within
from agentv.errors import ProviderError
from agentv.protocols import Answers, Requests
from agentv.records import ProviderRequest, ProviderResponse
from agentv.run.batch_files import RawOutput
from agentv.run.jobs import BatchAnswer
from agentv.run.targets import OpenTarget

T = TypeVar("T")


class Batch:
    """Calls a target once for many cases, and keeps the answers until every case has a result.

    `stack` closes what the batch opens, at the latest at the end of the run. The raw output is removed unless a case
    has no answer.
    """

    def __init__(
        self,
        target: OpenTarget,
        trial: int,
        cases: int,
        label: str,
        stack: ExitStack,
    ):
        self.target = target
        self.trial = trial
        self._cases = cases
        self._raw = stack.enter_context(RawOutput(label))
        self._stack = stack
        self._attempt = 1
        self._answers: Answers | FailedCall = FailedCall("this case was not part of the batch")
        self._in_flight = 0
        self._is_dealt = False
        """Whether all jobs have been started."""

    async def ask(
        self,
        requests: Requests,
        caller: Caller,
        on_retry: Callable[[int, FailedCall], None],
    ) -> None:
        """Call the target with all requests, and retry as its settings allow."""
        provider = self.target.batch_provider
        policy = self.target.policy
        assert provider is not None
        seconds = caller.batch_seconds(policy, self._cases)
        retries = Retries(RetryPolicy(seconds, caller.backoff(policy), on_retry))
        while True:
            call = provider.invoke_batch(requests, retries.number, self._raw.new())
            answers = await within(seconds, call)
            if not isinstance(answers, FailedCall):
                self._stack.callback(answers.close)
                break
            final = await retries.next(answers)
            if final is not None:
                answers = final
                break
        self._answers = answers
        self._attempt = retries.number
        if isinstance(answers, FailedCall) or provider.keeps_output:
            self._raw.keep()

    def answer(self, request: ProviderRequest, caller: Caller) -> BatchAnswer:
        """Return the answer to a request, or why there is none."""
        policy = self.target.policy
        cached = caller.cached(policy, request)
        if cached is not None:
            return BatchAnswer(cached, attempt=1, is_cached=True)
        answer = self._find_answer(request)
        if isinstance(answer, FailedCall):
            failed = answer._replace(error=answer.error + self._raw.keep())
            return BatchAnswer(failed, self._attempt)
        caller.keep(policy, request, answer)
        return BatchAnswer(answer, self._attempt)

    def _find_answer(self, request: ProviderRequest) -> ProviderResponse | FailedCall:
        if isinstance(self._answers, FailedCall):
            return self._answers
        try:
            return self._answers.answer(request.eval_id)
        except ProviderError as error:
            return FailedCall(error.message)

    def deal(self, jobs: Iterable[T]) -> Iterator[T]:
        """Yield the jobs, and close the batch when all of them are done."""
        for job in jobs:
            self._in_flight += 1
            yield job
        self._is_dealt = True
        self._close_when_done()

    def job_done(self, _request: ProviderRequest | None) -> None:
        """Record that one of the jobs has its result."""
        self._in_flight -= 1
        self._close_when_done()

    def _close_when_done(self) -> None:
        if self._is_dealt and not self._in_flight:
            self._stack.close()
