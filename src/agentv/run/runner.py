"""Run jobs one after another. Local lanes and the workers of a cluster run several `work` at a time."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from agentv.run.case import run_case
from agentv.run.jobs import Job
from agentv.run.run import Run

YIELD_SECONDS = 0.01


class Jobs(Protocol):
    """A source of jobs."""

    async def next(self) -> Job | None:
        """Return the next job, or None at the end."""
        ...


async def work(run: Run, jobs: Jobs, worker: int, stop: Callable[[], None]) -> None:
    """Run jobs until the stream ends. Call `stop` when no further case may start."""
    yielded = time.monotonic()
    while (job := await jobs.next()) is not None:
        if run.extensions and not await run.admits(job):
            stop()
            return
        limit = _limit(run.deadline)
        try:
            async with limit:
                if run.room.is_full:
                    await run.room.wait()
                run.progress.started(worker, run.label(job))
                run.room.enter()
                try:
                    result = await run_case(job, run)
                finally:
                    run.room.leave()
        except TimeoutError:
            if not isinstance(limit, asyncio.Timeout) or not limit.expired():
                raise
            stop()
            return
        result = run.results.take(result)
        run.progress.finished(worker, result)
        if run.stopped_by:
            stop()
        if job.batch is not None:
            job.batch.job_done(job.request)
        # A target that never waits would keep signals and timers from being handled.
        if time.monotonic() - yielded > YIELD_SECONDS:
            await asyncio.sleep(0)
            yielded = time.monotonic()


def _limit(deadline: float | None) -> AbstractAsyncContextManager[object]:
    """Return a context that is cancelled at the deadline. Without a deadline, it needs no timer."""
    if deadline is None:
        return nullcontext()
    return asyncio.timeout_at(deadline)
