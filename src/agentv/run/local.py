"""Run the jobs of a plan in this process, many at a time. Only cases in flight are held in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

from agentv.calls.retry import FailedCall
from agentv.files.temporary import remove_stale
from agentv.log import info
from agentv.records import ProviderRequest
from agentv.run.batch import Batch
from agentv.run.jobs import Lane, divide
from agentv.run.outcome import outcome_of
from agentv.run.planning.plan import PlannedFile, PlannedTarget
from agentv.run.run import Run
from agentv.run.runner import work
from agentv.run.targets import OpenTarget, OpenTargets
from agentv.text import plural

Work = Callable[[Lane, int, Callable[[], None]], Coroutine[Any, Any, None]]
OpenFile = Callable[[PlannedFile, Lane], None]
"""Adds the jobs of a file to a lane."""


class LocalExecutor:
    """Runs jobs in this process. Entering it raises `ConfigError` if a target is not ready."""

    def __init__(self, targets: OpenTargets):
        self._targets = targets

    async def __aenter__(self) -> Self:
        await self._targets.check()
        self._targets.warn_of_limits()
        return self

    async def __aexit__(self, *_: object) -> None:
        """The caller closes the targets."""

    async def run_jobs(self, run: Run) -> None:
        """Run each job of the plan that is not done already."""
        remove_stale()
        await self._targets.start()
        lanes = _Lanes(run, partial(work, run))
        planned = run.plan.files
        with ExitStack() as stack:
            async with asyncio.TaskGroup() as tasks:
                await run.start(tasks)
                files = _Files(run, tasks, stack)
                lanes.start(tasks, planned, files.open_file)
                for target, ready in files.later.items():
                    open_file = partial(files.add_jobs, target)
                    waiting = lanes.start_when(ready, tasks, planned, open_file)
                    tasks.create_task(waiting)
        caller = self._targets.caller
        log_cache_hits(caller.cache_hits, caller.format_1_hits)


class _Lanes:
    """The lanes in which the files of a plan run, as many as there are workers for."""

    def __init__(self, run: Run, work: Work):
        """`work` runs the jobs of a lane."""
        self._work = work
        self._workers = run.targets.workers
        self._open_cases = run.open_cases
        self._lanes: list[Lane] = []
        self._is_closed = False

    def start(
        self,
        tasks: asyncio.TaskGroup,
        files: Iterable[PlannedFile],
        open_file: OpenFile,
    ) -> None:
        """Let workers run the files."""
        left = list(files)
        if not left or self._is_closed:
            return
        shared = iter(left)
        lanes = min(self._workers, len(left))
        first = 0
        for count in divide(self._open_cases, lanes):
            workers = range(first, first + count)
            first += count
            lane = Lane(shared, open_file, workers)
            self._lanes.append(lane)
            for worker in lane.workers:
                tasks.create_task(self._work(lane, worker, self.close))

    async def start_when(
        self,
        ready: Awaitable[object],
        tasks: asyncio.TaskGroup,
        files: Iterable[PlannedFile],
        open_file: OpenFile,
    ) -> None:
        """Let workers run the files when their answers have arrived."""
        await ready
        self.start(tasks, files, open_file)

    def close(self) -> None:
        """Start no more cases."""
        self._is_closed = True
        for lane in self._lanes:
            lane.close()


def log_cache_hits(hits: int, old_hits: int = 0) -> None:
    """Log the number of cache hits, and how many of them were stored in an older format."""
    if not hits:
        return
    line = f"{plural(hits, 'answer')} served from the cache"
    if old_hits:
        line += f", {old_hits} of them stored in an older format"
    info(line)


class _Files:
    """Adds the jobs of a file to a lane: single jobs immediately, those of a batch program once it has answered."""

    def __init__(self, run: Run, tasks: asyncio.TaskGroup, stack: ExitStack):
        """`stack` closes the files of batches at the end of the run."""
        self._run = run
        self._tasks = tasks
        self._stack = stack
        self._targets = run.targets
        self._caller = run.targets.caller
        self._trials = run.options.trials
        self.later: dict[OpenTarget, Awaitable[object]] = {}
        """The targets whose cases start later, each with the event to wait for."""
        for target in self._targets.open_targets:
            for extension in run.extensions:
                ready = extension.answers_later(target)
                if ready is not None:
                    self.later[target] = ready

    def open_file(self, file: PlannedFile, lane: Lane) -> None:
        """Add the jobs of a file to a lane."""
        single = []
        for planned in file.targets.values():
            target = self._targets.target(file, planned)
            if target.is_batch:
                self._start_batches(file, planned, target, lane)
            elif target not in self.later:
                single.append(planned)
        if single:
            lane.add(self._run.jobs.jobs(file, single))

    def add_jobs(self, target: OpenTarget, file: PlannedFile, lane: Lane) -> None:
        """Add the jobs of a file that one target answers to a lane."""
        planned = []
        for each in file.targets.values():
            if self._targets.target(file, each) is target:
                planned.append(each)
        if planned:
            lane.add(self._run.jobs.jobs(file, planned))

    def _start_batches(
        self,
        file: PlannedFile,
        planned: PlannedTarget,
        target: OpenTarget,
        lane: Lane,
    ) -> None:
        """Start a batch program, once for each trial."""
        # As many trials run at once as the file has workers. It may have more tasks, for cases that wait for judges.
        slots = asyncio.Semaphore(min(len(lane.workers), self._targets.workers))
        for trial in range(1, self._trials + 1):
            name = f"{file.path.stem}-{planned.name}"
            if self._trials > 1:
                name = f"{name}-trial-{trial}"
            stack = self._stack.enter_context(ExitStack())
            batch = Batch(target, trial, file.cases, name, stack)
            lane.expect(1)
            asking = self._ask_batch(file, planned, batch, lane, slots)
            self._tasks.create_task(asking)

    async def _ask_batch(
        self,
        file: PlannedFile,
        planned: PlannedTarget,
        batch: Batch,
        lane: Lane,
        slots: asyncio.Semaphore,
    ) -> None:
        """Call a batch program for all cases that have no answer yet; then add its jobs to the lane."""
        shown = batch.target.name
        if self._trials > 1:
            shown = f"{shown}, trial {batch.trial}"
        policy = batch.target.policy

        def on_retry(attempt: int, failed: FailedCall) -> None:
            self._dump_failed_batch(file, planned, batch, attempt, failed)
            self._run.progress.retried(f"target {shown}", attempt, failed.error)

        requests = partial(self._requests, file, planned, batch)
        async with slots:
            if policy.slots is not None:
                await policy.slots.acquire()
            try:
                first_request = await anext(requests(), None)
                if first_request is not None:
                    self._run.progress.batch_started(lane.workers[0], shown)
                    await batch.ask(requests, self._caller, on_retry)
            finally:
                if policy.slots is not None:
                    policy.slots.release()
        jobs = self._run.jobs.batch_jobs(file, planned, batch)
        lane.add(batch.deal(jobs))
        lane.expect(-1)

    async def _requests(
        self,
        file: PlannedFile,
        planned: PlannedTarget,
        batch: Batch,
    ) -> AsyncIterator[ProviderRequest]:
        """Yield the requests that a batch program has yet to answer."""
        policy = batch.target.policy
        jobs = self._run.jobs.batch_jobs(file, planned, batch)
        for number, job in enumerate(jobs):
            if number % 100 == 0:
                await asyncio.sleep(0)
            # A case without a request becomes an error of its own, later.
            if job.request is None or self._run.is_known(job):
                continue
            if not self._caller.is_cached(policy, job.request):
                yield job.request

    def _dump_failed_batch(
        self,
        file: PlannedFile,
        planned: PlannedTarget,
        batch: Batch,
        attempt: int,
        failed: FailedCall,
    ) -> None:
        """Write how an attempt at a batch ended to the dump of each of its cases."""
        dumps = self._run.dumps
        if not dumps.has_traces:
            return
        name = batch.target.name
        for job in self._run.jobs.batch_jobs(file, planned, batch):
            outcome = outcome_of(job, attempt, failed)
            dumps.trace(job.case, name, outcome, batch.trial)
