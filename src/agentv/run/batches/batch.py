"""The cases of a file that one target answers at once, in one of their trials."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import TypeVar

from agentv.calls.caller import Caller
from agentv.calls.retry import Attempts, FailedCall, RetryPolicy
from agentv.calls.timeout import within
from agentv.errors import ProviderError
from agentv.protocols import Answers, Requests
from agentv.records import ProviderRequest, ProviderResponse
from agentv.run.batches.batch_files import RawOutput
from agentv.run.targets import OpenTarget

T = TypeVar("T")


class Batch:
    """Asks a target once for many cases, and keeps the answers until all of them have a result.

    What it opens is closed by `stack`, at the latest; its raw output is removed when all went well.
    """

    def __init__(self, target: OpenTarget, trial: int, cases: int, label: str, stack: ExitStack):
        self.target, self.trial, self._cases = target, trial, cases
        self._raw = stack.enter_context(RawOutput(label))
        self._stack = stack
        self._attempt = 1
        self._answers: Answers | FailedCall = FailedCall("the batch was not asked for this case")
        self._in_flight, self._is_dealt = 0, False

    async def ask(self, requests: Requests, caller: Caller, on_retry: Callable[[int, FailedCall], None]) -> None:
        """Ask the target for all the requests, and ask again when that may help."""
        provider, policy = self.target.batch_provider, self.target.policy
        assert provider is not None
        seconds = caller.batch_seconds(policy, self._cases)
        attempts = Attempts(RetryPolicy(seconds, caller.backoff(policy), on_retry))
        while True:
            call = provider.invoke_batch(requests, attempts.number, self._raw.new())
            got = await within(seconds, call)
            if not isinstance(got, FailedCall):
                self._stack.callback(got.close)
                break
            if (final := await attempts.another(got)) is not None:
                got = final
                break
        self._answers, self._attempt = got, attempts.number
        if isinstance(got, FailedCall) or provider.keeps_output:
            self._raw.keep()

    def answer(self, request: ProviderRequest, caller: Caller) -> tuple[int, ProviderResponse | FailedCall, bool]:
        """Return the attempt, the answer to one of the requests or why there is none, and if the cache had it."""
        policy = self.target.policy
        if (known := caller.cached(policy, request)) is not None:
            return 1, known, True
        try:
            got = self._answers if isinstance(self._answers, FailedCall) else self._answers.answer(request.eval_id)
        except ProviderError as error:
            got = FailedCall(error.message)
        if isinstance(got, FailedCall):
            return self._attempt, got._replace(error=got.error + self._raw.keep()), False
        caller.keep(policy, request, got)
        return self._attempt, got, False

    def deal(self, jobs: Iterable[T]) -> Iterator[T]:
        """Yield the jobs, and notice when all of them are done."""
        for job in jobs:
            self._in_flight += 1
            yield job
        self._is_dealt = True
        self._close_when_done()

    def job_done(self, _request: ProviderRequest | None) -> None:
        """Take note that one of the jobs has its result."""
        self._in_flight -= 1
        self._close_when_done()

    def _close_when_done(self) -> None:
        if self._is_dealt and not self._in_flight:
            self._stack.close()
