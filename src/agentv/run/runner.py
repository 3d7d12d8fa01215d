"""Run jobs one after another. Local lanes and the workers of a cluster start several `work` at a time."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from agentv.run.case import CaseRunner, label
from agentv.run.extensions import Results
from agentv.run.jobs import Job
from agentv.run.watching.watcher import Watcher

YIELD_SECONDS = 0.01


class Jobs(Protocol):
    """Deals out jobs."""

    async def next(self) -> Job | None:
        """Return the next job; None when there are no more."""
        ...


class JobRunner:
    """Runs jobs and hands their results on. `stop` is called when no further case may start."""

    def __init__(self, cases: CaseRunner, results: Results, watcher: Watcher, trials: int, stop: Callable[[], None]):
        self._cases = cases
        self._results = results
        self._watcher = watcher
        self._trials = trials
        self._stop = stop
        self._yielded = time.monotonic()

    async def work(self, jobs: Jobs, worker: int) -> None:
        """Take one job after another, until there are no more or none may start."""
        while (job := await jobs.next()) is not None:
            if not await self._results.admits(job):
                self._stop()
                return
            self._watcher.started(worker, label(job, self._trials))
            result = await self._cases.run_case(job)
            if result is not None:
                result = self._results.take(result)
                self._cases.written(job)
                self._watcher.finished(worker, result)
                if self._results.stopped_by:
                    self._stop()
            if job.batch is not None:
                job.batch.job_done(job.request)
            # A target that never waits would keep signals and timers from being handled.
            if time.monotonic() - self._yielded > YIELD_SECONDS:
                await asyncio.sleep(0)
                self._yielded = time.monotonic()
