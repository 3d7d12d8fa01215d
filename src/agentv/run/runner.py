"""Jobs -> results, one after another. Whoever runs many at a time, here or in a cluster, starts several `work`."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from agentv.protocols import ResultSink
from agentv.records import EvalResult
from agentv.run.case import CaseRunner, label
from agentv.run.forecast.budget import Budget
from agentv.run.jobs import Job
from agentv.run.outcome import unwritable_result
from agentv.run.plan import RunOptions
from agentv.run.watching.watcher import Watcher

YIELD_SECONDS = 0.01


class Jobs(Protocol):
    """Deals out jobs."""

    async def next(self) -> Job | None:
        """Return the next job; None when there are no more."""
        ...


class JobRunner:
    """Runs jobs; a result is in the sink before it counts. After too many errors `stop` is called, once and again."""

    def __init__(
        self, cases: CaseRunner, options: RunOptions, sink: ResultSink, watcher: Watcher, stop: Callable[[], None]
    ):
        self._cases, self._sink, self._watcher, self._stop = cases, sink, watcher, stop
        self._trials = options.trials
        self.budget: Budget | None = None
        """Says which jobs may still be run, if that is limited."""
        self._errors, self._max_errors = 0, options.max_errors
        self._yielded = time.monotonic()

    async def work(self, jobs: Jobs, worker: int) -> None:
        """Take one job after another, until there are no more."""
        trials = self._trials
        while (job := await jobs.next()) is not None:
            if self.budget is not None and not await self.budget.admit(job.planned.name):
                self._stop()
                return
            started = time.monotonic()
            self._watcher.started(worker, label(job, trials))
            result = await self._cases.run_case(job)
            if result is not None:
                result = self._write(result)
                self._cases.written(job)
                self._watcher.finished(worker, result)
                if result.error is not None and self._max_errors is not None:
                    self._count_error()
                if self.budget is not None:
                    self.budget.finished(job.planned.name, result, time.monotonic() - started)
            if job.batch is not None:
                job.batch.job_done(job.request)
            if time.monotonic() - self._yielded > YIELD_SECONDS:  # targets that never wait must not shut signals out
                await asyncio.sleep(0)
                self._yielded = time.monotonic()

    def _count_error(self) -> None:
        """Start no further case once there are too many errors; those in flight are finished."""
        self._errors += 1
        if self._max_errors is not None and self._errors >= self._max_errors:
            self._stop()

    def _write(self, result: EvalResult) -> EvalResult:
        """Return the result, once it is in the sink. What cannot be written is an error of its case."""
        try:
            self._sink.write(result)
        except (ValueError, TypeError, RecursionError) as error:
            result = unwritable_result(result, error)
            self._sink.write(result)
        return result
