"""Runs the jobs of a plan in this process, many at a time. Only what is in flight is held."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from agentv.calls.caller import Caller
from agentv.calls.retry import FailedCall
from agentv.notices import say
from agentv.records import ProviderRequest
from agentv.run.batches.batch import Batch
from agentv.run.batches.vendor import VendorBatch, forget_leftovers
from agentv.run.case import CaseRunner
from agentv.run.extensions import Results
from agentv.run.jobs import IsDone, JobStream, Lane, divide
from agentv.run.plan import Plan, PlannedFile, PlannedTarget
from agentv.run.runner import JobRunner
from agentv.run.targets import OpenTarget, OpenTargets
from agentv.run.watching.watcher import Watcher
from agentv.system.temporary import remove_stale

Work = Callable[[Lane, int], Coroutine[Any, Any, None]]
"""What the worker of this number does with the jobs of a lane."""


class LocalExecutor:
    """Runs jobs here. Entering it raises `ConfigError` if a target is not ready."""

    def __init__(self, plan: Plan, targets: OpenTargets):
        self._plan = plan
        self._targets = targets

    async def __aenter__(self) -> Self:
        await self._targets.check()
        self._targets.warn_of_limits()
        return self

    async def __aexit__(self, *_: object) -> None:
        """The targets are closed by whoever opened them."""

    async def run_jobs(
        self, cases: CaseRunner, *, results: Results, watcher: Watcher, is_done: IsDone | None = None
    ) -> None:
        """Run each job of the plan that is not done already."""
        targets, rounds = self._targets, cases.rounds
        remove_stale()
        await targets.start()
        results.start()
        lanes = _Lanes(self._plan, targets.workers)
        runner = JobRunner(cases, results, watcher, targets.options.trials, lanes.close)
        with ExitStack() as stack:
            if rounds is not None:
                stack.callback(rounds.close)
            async with asyncio.TaskGroup() as group:
                stream = JobStream(self._plan, targets, is_done)
                files = _Files(stream, targets, cases, watcher=watcher, group=group, stack=stack)
                files.ask_vendors()
                lanes.start(group, runner.work, files.open_file)
            while rounds is not None and rounds.has_requests and not lanes.is_closed:
                await rounds.ask()
                async with asyncio.TaskGroup() as group:
                    stream = JobStream(self._plan, targets, rounds.is_settled)
                    lanes.start(group, runner.work, partial(_add_settled, stream))
        if not lanes.is_closed:
            _forget_leftovers(JobStream(self._plan, targets, None), self._plan, cases)
        tell_cache_hits(targets.caller.cache_hits)


def _forget_leftovers(stream: JobStream, plan: Plan, cases: CaseRunner) -> None:
    """Forget what is left of earlier runs in the journal of batches: all jobs of the plan have results now."""
    for target, files in stream.vendor_targets().items():
        assert target.vendor_batch is not None
        forget_leftovers(target.vendor_batch, partial(stream.custom_ids, files, target.vendor_batch))
    if cases.rounds is not None and cases.rounds.pending.has_any:
        for file in plan.files:
            for job in stream.settled_jobs(file):
                cases.forget(job)
        cases.rounds.pending.tidy()
        cases.rounds.close()


def _add_settled(stream: JobStream, file: PlannedFile, lane: Lane) -> None:
    """Give a lane the jobs of a file that have waited for their judges."""
    lane.add(stream.settled_jobs(file))


class _Lanes:
    """The lanes in which the files of a plan are run, as many as there are workers for."""

    def __init__(self, plan: Plan, workers: int):
        self._plan, self._workers = plan, workers
        self._lanes: list[Lane] = []
        self.is_closed = False
        """Whether no more cases are to be started."""

    def start(self, group: asyncio.TaskGroup, work: Work, open_file: Callable[[PlannedFile, Lane], None]) -> None:
        """Let workers run the files of the plan."""
        files, first = iter(self._plan.files), 0
        for count in divide(self._workers, len(self._plan.files)):
            lane = Lane(files, open_file, range(first, first + count))
            first += count
            self._lanes.append(lane)
            for worker in lane.workers:
                group.create_task(work(lane, worker))

    def close(self) -> None:
        """Start no more cases."""
        self.is_closed = True
        for lane in self._lanes:
            lane.close()


def tell_cache_hits(hits: int) -> None:
    """Tell the user how many answers came from the cache, if any did."""
    if hits:
        say(f"{hits} {'answer' if hits == 1 else 'answers'} came from the cache")


class _Files:
    """Gives the jobs of a file to a lane: single ones at once, those of batches once they are answered."""

    def __init__(  # noqa: PLR0913
        self,
        stream: JobStream,
        targets: OpenTargets,
        cases: CaseRunner,
        *,
        watcher: Watcher,
        group: asyncio.TaskGroup,
        stack: ExitStack,
    ):
        self._stream, self._cases, self._watcher = stream, cases, watcher
        self._group, self._stack = group, stack
        self._caller: Caller = targets.caller
        self._trials, self._batch_options = targets.options.trials, targets.options.batches
        self._at_vendors: dict[OpenTarget, tuple[VendorBatch, asyncio.Event]] = {}

    def ask_vendors(self) -> None:
        """Submit what is asked in batches at vendors: all of it at once, since an answer may take a day."""
        for target, files in self._stream.vendor_targets().items():
            assert target.vendor_batch is not None
            batch = VendorBatch(
                target.vendor_batch, self._batch_options, self._stack, partial(self._watcher.batch_changed, target.name)
            )
            is_answered = asyncio.Event()
            self._at_vendors[target] = batch, is_answered
            self._group.create_task(self._ask_vendor(batch, files, is_answered))

    async def _ask_vendor(self, batch: VendorBatch, files: list[PlannedFile], is_answered: asyncio.Event) -> None:
        await batch.ask(self._stream.vendor_requests(files, batch, self._caller, self._cases.is_answered))
        is_answered.set()

    async def _await_vendor(self, file: PlannedFile, target: OpenTarget, lane: Lane) -> None:
        """Give the jobs of a target to a lane when they are answered."""
        batch, is_answered = self._at_vendors[target]
        await is_answered.wait()
        lane.add(self._stream.vendor_jobs(file, target.name, batch))
        lane.expect(-1)

    def open_file(self, file: PlannedFile, lane: Lane) -> None:
        """Give the jobs of a file to a lane."""
        lane.add(self._stream.single_jobs(file))
        for planned, target in self._stream.batch_targets(file):
            slots = asyncio.Semaphore(len(lane.workers))  # as many trials are asked at once as the file has workers
            for trial in range(1, self._trials + 1):
                batch = self._new_batch(file, planned, target, trial)
                lane.expect(1)
                self._group.create_task(self._ask_batch(file, batch, lane, slots))
        for target in self._stream.vendor_targets_of(file):
            lane.expect(1)
            self._group.create_task(self._await_vendor(file, target, lane))

    def _new_batch(self, file: PlannedFile, planned: PlannedTarget, target: OpenTarget, trial: int) -> Batch:
        name = f"{file.path.stem}-{planned.name}"
        if self._trials > 1:
            name = f"{name}-trial-{trial}"
        return Batch(target, trial, file.cases, name, self._stack.enter_context(ExitStack()))

    async def _ask_batch(self, file: PlannedFile, batch: Batch, lane: Lane, slots: asyncio.Semaphore) -> None:
        """Ask a target for all that it is to answer in a file; then give the jobs to the lane."""
        name = batch.target.name
        shown = f"{name}, trial {batch.trial}" if self._trials > 1 else name
        policy = batch.target.policy

        async def requests() -> AsyncIterator[ProviderRequest]:
            async for request in self._stream.requests(file, batch, self._cases.is_answered):
                if not self._caller.is_cached(policy, request):
                    yield request

        def on_retry(attempt: int, failed: FailedCall) -> None:
            self._cases.dump_failed_batch(file, batch, attempt, failed)
            self._watcher.retried(f"target {shown}", attempt, failed.error)

        async with slots:
            if policy.slots is not None:
                await policy.slots.acquire()
            try:
                if await anext(requests(), None) is not None:  # else there is nothing to ask
                    self._watcher.batch_started(lane.workers[0], shown)
                    await batch.ask(requests, self._caller, on_retry)
            finally:
                if policy.slots is not None:
                    policy.slots.release()
        lane.add(batch.deal(self._stream.batch_jobs(file, batch)))
        lane.expect(-1)
