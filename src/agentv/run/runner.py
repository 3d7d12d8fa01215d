"""A plan -> EvalResults, concurrently. Only what is in flight is held.

`run_plan` deals out the workers to the files, a worker takes one case after another, and `run_case` is the
main path: request, response, scores, result.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, nullcontext
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from agentv import __version__
from agentv.calls.cache import Cache
from agentv.calls.caller import Caller
from agentv.calls.retry import FailedCall, RetryPolicy, call_with_retries
from agentv.cases.digest import case_digest
from agentv.cases.request import build_request
from agentv.errors import AgentvError, AttachmentError, ConfigError, ProviderError
from agentv.notices import say
from agentv.processes.child import end_strays
from agentv.protocols import Answers, BatchProvider, Check, Checked, Provider, ResultSink
from agentv.records import (
    Digests,
    EvalCase,
    EvalResult,
    EvaluatorResult,
    Exchange,
    ProviderRequest,
)
from agentv.run.batch_files import RawOutput
from agentv.run.dumps import CaseDumps
from agentv.run.outcome import Outcome, outcome_of, result_of
from agentv.run.plan import Plan, PlannedFile, Target
from agentv.system.compact_sets import Repeats
from agentv.system.dumps import Dumps

BREATH_SECONDS = 0.01


class RunOptions(NamedTuple):
    """How cases are run. `limits` is how many cases each target works on at once.

    A time limit and a number of retries that are given win over the targets' own.
    """

    workers: int = 1
    limits: Mapping[str, int] = {}
    timeout_seconds: float | None = None
    max_retries: int | None = None
    cache: Cache | None = None
    include_trace: bool = False
    prompts: Dumps | None = None
    traces: Dumps | None = None
    trials: int = 1
    """How often each case is run."""


class Watcher(Protocol):
    """Is told what goes on."""

    def started(self, worker: int, what: str) -> None: ...
    def batch_started(self, worker: int, target: str) -> None: ...
    def retried(self, what: str, attempt: int, reason: str) -> None: ...
    def finished(self, worker: int, result: EvalResult) -> None: ...


Ask = Callable[[EvalCase, ProviderRequest], Awaitable[Outcome]]
"""How a target is asked."""
IsDone = Callable[[EvalCase, PlannedFile, int], bool]
"""Whether this trial of a case of that file need not be run."""


class Job(NamedTuple):
    """One trial of a case, and who answers it."""

    case: EvalCase
    trial: int
    file: PlannedFile
    target: Target

    def request(self) -> ProviderRequest:
        """What is sent; `AttachmentError` if a file of the case cannot be read."""
        request = build_request(self.case, self.file.patterns, self.target.files)
        return request if self.trial == 1 else msgspec.structs.replace(request, trial=self.trial)


def worker_limits(plan: Plan, asked: int | None) -> tuple[int, dict[str, int]]:
    """How many workers the run has, and how many cases each target takes at once.

    What is asked for on the command line wins over what targets say; some targets can only do one thing at a time.
    """
    targets = {name: target for file in plan.files for name, target in file.targets.items()}
    limits = {name: 1 if target.is_alone else asked or target.workers or 1 for name, target in targets.items()}
    return asked or max(limits.values(), default=1), limits


def shares(workers: int, files: int) -> list[int]:
    """How many workers each file gets: at least one, up to the number of workers, the rest dealt out evenly."""
    lanes = min(workers, files)
    return [workers // lanes + (lane < workers % lanes) for lane in range(lanes)]


def check_trials(plan: Plan, trials: int) -> None:
    """`ConfigError` for cases whose trials could not be told from those of another."""
    if trials == 1 or len(plan.files) == 1:
        return
    repeats = Repeats()
    for file in plan.files:
        repeats.add((case.dataset, case.id) for case in plan.cases_of(file))
    if repeats.hashes():
        hint = "give one of the files another 'dataset:', so that their trials can be told apart"
        raise ConfigError("--trials: two eval files have the same dataset name and the same ids", hint=hint)


async def check_targets(plan: Plan) -> None:
    """`ConfigError` for a target that is not ready."""
    checks: dict[Check, str] = {}
    targets = [(target.name, target.provider) for file in plan.files for target in file.targets.values()]
    for name, provider in (*targets, *plan.builder.opened()):
        if isinstance(provider, Checked) and provider.check is not None:
            checks.setdefault(provider.check, name)
    for check, name in checks.items():
        try:
            await check.run()
        except ProviderError as error:
            hint = "this is what was found before the start; nothing was run"
            raise ConfigError(f"target {name!r} is not ready: {error.message}", hint=hint) from error


async def run_plan(
    plan: Plan,
    options: RunOptions,
    sink: ResultSink,
    watcher: Watcher,
    is_done: IsDone = lambda _case, _file, _trial: False,
) -> None:
    """Run each trial of each planned case that is not done already; its result is in the sink before it counts."""
    run = _Run(plan, options, sink, watcher, is_done)
    files = iter(plan.files)
    numbers = iter(range(options.workers))
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        stack.push_async_callback(end_strays)
        plan.builder.calls.begin(run.caller, stack, run.judge_retried)
        for share in shares(options.workers, len(plan.files)):
            group.create_task(run.take_files(files, [next(numbers) for _ in range(share)]))
    if run.caller.hits:
        say(f"{run.caller.hits} {'answer' if run.caller.hits == 1 else 'answers'} came from the cache")


class _Run:
    """What the workers of one run share."""

    def __init__(self, plan: Plan, options: RunOptions, sink: ResultSink, watcher: Watcher, is_done: IsDone):
        self._plan, self._options, self._sink, self._watcher, self._is_done = plan, options, sink, watcher, is_done
        limits = options.limits.items()
        self._gates = {name: asyncio.Semaphore(limit) for name, limit in limits if limit < options.workers}
        slots = asyncio.Semaphore(options.workers)
        self.caller = Caller(slots, options.timeout_seconds, options.max_retries, options.cache)
        """Asks whoever is outside, be it a target or a judge."""
        self._clock = asyncio.get_running_loop().time
        self._yielded = self._clock()
        self._dumps = CaseDumps(options.prompts, options.traces, several=len(plan.files) > 1, trials=options.trials > 1)

    async def take_files(self, files: Iterator[PlannedFile], workers: list[int]) -> None:
        for file in files:  # shared by all: each file is taken once
            async with AsyncExitStack() as stack:
                await self._take_file(file, workers, stack)

    async def _take_file(self, file: PlannedFile, workers: list[int], stack: AsyncExitStack) -> None:
        """Run the cases of a file: those that are asked alone while its batches are at work, then batch by batch.

        A batch has each case once, so that each trial is a batch of its own.
        """
        trials = range(1, self._options.trials + 1)
        alone: dict[str, Ask] = {}
        batches: list[_Batch] = []
        for name, target in file.targets.items():
            provider = target.provider
            if isinstance(provider, AbstractAsyncContextManager):
                await stack.enter_async_context(provider)
            if isinstance(provider, BatchProvider):
                turns = asyncio.Semaphore(len(workers))
                for trial in trials:
                    raw = stack.enter_context(RawOutput(self._label(f"{file.path.stem}-{name}", trial, "-trial-")))
                    answers = stack.enter_context(ExitStack())
                    batches.append(_Batch(target, provider, file, trial, turns, raw, answers))
            else:
                alone[name] = partial(self._ask, target, provider)
        answered: asyncio.Queue[tuple[_Batch, Ask]] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            for batch in batches:
                group.create_task(self._ask_batch(batch, answered, workers[0]))
            if alone:
                await self._take_pass(file, alone, trials, workers)
            for _ in batches:
                batch, ask = await answered.get()
                await self._take_pass(file, {batch.target.name: ask}, [batch.trial], workers)
                batch.answers.close()

    async def _take_pass(
        self, file: PlannedFile, asks: Mapping[str, Ask], trials: Sequence[int], workers: list[int]
    ) -> None:
        """Run these trials of the cases of a file whose targets are among these, all trials of a case in a row."""
        runs = ((case, trial) for case in self._plan.cases_of(file) for trial in trials)
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(self._take_runs(file, runs, asks, worker))

    async def _take_runs(
        self, file: PlannedFile, runs: Iterator[tuple[EvalCase, int]], asks: Mapping[str, Ask], worker: int
    ) -> None:
        for case, trial in runs:  # shared by the workers of the file; next() cannot be interrupted
            await self._breathe()
            name = self._plan.wanted.target_of(case)
            if name not in asks or self._is_done(case, file, trial):
                continue
            job = Job(case, trial, file, file.targets[name])
            async with self._gate(job.target):
                self._watcher.started(worker, self._label(case.id, trial))
                result = self._written(await self._safely(job, asks[name]))
                self._watcher.finished(worker, result)

    def _gate(self, target: Target) -> AbstractAsyncContextManager[None]:
        """Keeps more workers than the target can bear from asking it at once."""
        return self._gates.get(target.name) or nullcontext()

    def _written(self, result: EvalResult) -> EvalResult:
        """The result, once it is in the sink. What cannot be written down is an error of its case."""
        try:
            self._sink.write(result)
        except (ValueError, TypeError, RecursionError) as error:
            names = ("timestamp", "eval_id", "dataset", "target", "attempt", "trial")
            result = EvalResult(
                **{name: getattr(result, name) for name in names},
                score=0.0,
                verdict="fail",
                candidate_answer="",
                error=f"the answer cannot be written down: {type(error).__name__}: {str(error)!a}",
                failure="target",
                digests=result.digests,
            )
            self._sink.write(result)
        return result

    async def _safely(self, job: Job, ask: Ask) -> EvalResult:
        """The result of one case, be the answer ever so odd."""
        try:
            return await self.run_case(job, ask)
        except AgentvError:
            raise  # of what is written: not this case's trouble
        except Exception as error:
            digests = Digests(case="", target=job.target.digest, evaluators="", agentv=__version__)
            odd = f"the answer cannot be used: {type(error).__name__}: {error}"
            return self._result(job, Outcome(1, error=odd), digests)

    async def _breathe(self) -> None:
        """Let others have a turn now and then: targets that never wait must not keep signals from being heard."""
        if self._clock() - self._yielded > BREATH_SECONDS:
            await asyncio.sleep(0)
            self._yielded = self._clock()

    async def run_case(self, job: Job, ask: Ask) -> EvalResult:
        """The result of one case. Whatever goes wrong with it is in the result, and nobody else's trouble."""
        case, target = job.case, job.target
        judges = self._plan.builder.judges(case, target.name)
        request, unread = None, ""
        try:
            request = job.request()
        except AttachmentError as error:
            unread = f"{error.message} ({error.hint})" if error.hint else error.message
        stamp = case_digest(case, request)
        digests = Digests(case=stamp, target=target.digest, agentv=__version__, **judges.digests)
        if request is None:
            return self._result(job, Outcome(1, error=unread), digests)
        if job.trial == 1 or self._is_done(case, job.file, 1):  # it is the same in all trials
            self._dumps.prompt(case, request)
        outcome = await ask(case, request)
        self._dumps.trace(case, target.name, outcome, job.trial)
        if outcome.response is None:
            return self._result(job, outcome, digests)
        scores = await judges.results(Exchange(case=case, request=request, response=outcome.response))
        result = self._result(job, outcome, digests, scores)
        keep = self._options.include_trace or result.trace is None
        return result if keep else msgspec.structs.replace(result, trace=None)

    def _result(
        self, job: Job, outcome: Outcome, digests: Digests, scores: tuple[EvaluatorResult, ...] = ()
    ) -> EvalResult:
        result = result_of(job.case, job.target.name, outcome, digests, scores)
        return msgspec.structs.replace(result, trial=job.trial) if self._options.trials > 1 else result

    def _label(self, what: str, trial: int, between: str = ", trial ") -> str:
        """What it is called: with the trial, if there are several."""
        return f"{what}{between}{trial}" if self._options.trials > 1 else what

    async def _ask(self, target: Target, provider: Provider, case: EvalCase, request: ProviderRequest) -> Outcome:
        """Ask the target, and ask again when that may help."""

        def on_retry(attempt: int, failed: FailedCall) -> None:
            self._dumps.trace(case, target.name, outcome_of(attempt, failed), request.trial)
            self._watcher.retried(self._label(case.id, request.trial), attempt, failed.error)

        return outcome_of(*await self.caller.ask(provider, target.policy, request, on_retry))

    def judge_retried(self, name: str, attempt: int, failed: FailedCall) -> None:
        self._watcher.retried(f"judge {name}", attempt, failed.error)

    async def _ask_batch(self, batch: "_Batch", answered: "asyncio.Queue[tuple[_Batch, Ask]]", worker: int) -> None:
        """Ask a target for all that it is to answer in a file, at once; then its cases can be run."""
        target, provider, file, trial, turns, raw, answers = batch
        requests = partial(self._requests, target, file, trial)
        label = self._label(target.name, trial)

        def on_retry(attempt: int, failed: FailedCall) -> None:
            if self._options.traces is not None:
                for case in self._plan.cases_of(file):
                    self._dumps.trace(case, target.name, outcome_of(attempt, failed), trial)
            self._watcher.retried(f"target {label}", attempt, failed.error)

        seconds = self.caller.batch_seconds(target.policy, file.cases)
        policy = RetryPolicy(seconds, self.caller.backoff(target.policy), nullcontext(), on_retry)
        attempt = 1
        got: Answers | FailedCall = FailedCall("the batch was not asked for this case")
        async with turns, self._gate(target):
            if await anext(requests(), None) is not None:  # else there is nothing to ask
                self._watcher.batch_started(worker, label)
                attempt, got = await call_with_retries(
                    lambda attempt: provider.invoke_batch(requests, attempt, raw.new()), policy
                )
        if not isinstance(got, FailedCall):
            answers.callback(got.close)
        if isinstance(got, FailedCall) or provider.keeps_output:
            raw.keep()
        answered.put_nowait((batch, partial(self._answer, batch, attempt, got)))

    async def _answer(
        self, batch: "_Batch", attempt: int, answers: Answers | FailedCall, case: EvalCase, request: ProviderRequest
    ) -> Outcome:
        """How a batch ended for one of its cases. If that is not well, its raw output is worth keeping."""
        policy = batch.target.policy
        if (known := self.caller.remembered(policy, request)) is not None:
            self.caller.hits += 1
            return outcome_of(1, known)
        try:
            got = answers if isinstance(answers, FailedCall) else answers.answer(case.id)
        except ProviderError as error:
            got = FailedCall(error.message)
        if isinstance(got, FailedCall):
            return outcome_of(attempt, got._replace(error=got.error + batch.raw.keep()))
        self.caller.remember(policy, request, got)
        return outcome_of(attempt, got)

    async def _requests(self, target: Target, file: PlannedFile, trial: int) -> AsyncIterator[ProviderRequest]:
        """What the target is still to answer in a file."""
        for case in self._plan.cases_of(file):
            await self._breathe()
            if self._plan.wanted.target_of(case) == target.name and not self._is_done(case, file, trial):
                with contextlib.suppress(AttachmentError):  # which becomes an error of that case alone
                    request = Job(case, trial, file, target).request()
                    if self.caller.remembered(target.policy, request) is None:
                        yield request


class _Batch(NamedTuple):
    """The cases of a file that one target answers at once, for one of their trials."""

    target: Target
    provider: BatchProvider
    file: PlannedFile
    trial: int
    turns: asyncio.Semaphore
    """As many trials are asked for at once as the file has workers."""
    raw: RawOutput
    answers: ExitStack
    """Closes the answers, once they have been scored."""
