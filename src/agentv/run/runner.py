"""Jobs -> results, many at a time. Only what is in flight is held."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack

from agentv.calls.retry import FailedCall
from agentv.notices import say
from agentv.protocols import ResultSink
from agentv.records import EvalResult, ProviderRequest
from agentv.run.batch import Batch
from agentv.run.case import CaseRunner, label
from agentv.run.jobs import IsDone, JobStream, Lane, divide
from agentv.run.outcome import unwritable_result
from agentv.run.plan import Plan, PlannedFile, PlannedTarget
from agentv.run.targets import OpenTarget, OpenTargets
from agentv.run.watcher import Watcher
from agentv.system.temporary import remove_stale

YIELD_SECONDS = 0.01


async def run_jobs(  # noqa: PLR0913
    plan: Plan,
    targets: OpenTargets,
    cases: CaseRunner,
    *,
    sink: ResultSink,
    watcher: Watcher,
    is_done: IsDone | None = None,
) -> None:
    """Run each job of the plan that is not done already; a result is in the sink before it counts."""
    remove_stale()
    await targets.start()
    with ExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            stream = JobStream(plan, targets, is_done)
            run = _Run(stream, targets, cases, sink=sink, watcher=watcher, group=group, stack=stack)
            files = iter(plan.files)
            first = 0
            for count in divide(targets.workers, len(plan.files)):
                lane = Lane(files, run.open_file, range(first, first + count))
                first += count
                run.lanes.append(lane)
                for worker in lane.workers:
                    group.create_task(run.work(lane, worker))
    if hits := targets.caller.cache_hits:
        say(f"{hits} {'answer' if hits == 1 else 'answers'} came from the cache")


class _Run:
    """What the workers of one run share."""

    def __init__(  # noqa: PLR0913
        self,
        stream: JobStream,
        targets: OpenTargets,
        cases: CaseRunner,
        *,
        sink: ResultSink,
        watcher: Watcher,
        group: asyncio.TaskGroup,
        stack: ExitStack,
    ):
        self._stream, self._cases, self._sink, self._watcher = stream, cases, sink, watcher
        self._group, self._stack = group, stack
        self._caller, self._trials = targets.caller, targets.options.trials
        self._errors, self._max_errors = 0, targets.options.max_errors
        self.lanes: list[Lane] = []
        self._yielded = time.monotonic()

    async def work(self, lane: Lane, worker: int) -> None:
        """Take one job after another, until there are no more."""
        trials = self._trials
        while (job := await lane.next()) is not None:
            self._watcher.started(worker, label(job, trials))
            result = self._write(await self._cases.run_case(job))
            self._watcher.finished(worker, result)
            if result.error is not None and self._max_errors is not None:
                self._count_error()
            if job.batch is not None:
                job.batch.job_done()
            if time.monotonic() - self._yielded > YIELD_SECONDS:  # targets that never wait must not shut signals out
                await asyncio.sleep(0)
                self._yielded = time.monotonic()

    def _count_error(self) -> None:
        """Start no further case once there are too many errors; those in flight are finished."""
        self._errors += 1
        if self._max_errors is not None and self._errors >= self._max_errors:
            for lane in self.lanes:
                lane.close()

    def _write(self, result: EvalResult) -> EvalResult:
        """Return the result, once it is in the sink. What cannot be written is an error of its case."""
        try:
            self._sink.write(result)
        except (ValueError, TypeError, RecursionError) as error:
            result = unwritable_result(result, error)
            self._sink.write(result)
        return result

    def open_file(self, file: PlannedFile, lane: Lane) -> None:
        """Give the jobs of a file to a lane: single ones now, those of batches once they are answered."""
        lane.add(self._stream.single_jobs(file))
        for planned, target in self._stream.batch_targets(file):
            slots = asyncio.Semaphore(len(lane.workers))  # as many trials are asked at once as the file has workers
            for trial in range(1, self._trials + 1):
                batch = self._new_batch(file, planned, target, trial)
                lane.expect(1)
                self._group.create_task(self._ask_batch(file, batch, lane, slots))

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
            async for request in self._stream.requests(file, batch):
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
