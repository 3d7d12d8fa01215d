"""The seam: what runs the jobs of a plan, here or elsewhere."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from agentv.run.case import CaseRunner
from agentv.run.extensions import Results
from agentv.run.jobs import IsDone
from agentv.run.watching.watcher import Watcher


class Executor(AbstractAsyncContextManager["Executor"], Protocol):
    """Runs the jobs of a plan. Entering it raises `ConfigError` if that cannot be done; then nothing was run."""

    async def run_jobs(
        self, cases: CaseRunner, *, results: Results, watcher: Watcher, is_done: IsDone | None = None
    ) -> None:
        """Run each job that is not done already, and hand its one result to `results`.

        An error that ends the run is an `AgentvError` in an `ExceptionGroup`.
        """
        ...
