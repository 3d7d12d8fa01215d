"""The seam between a run and where its cases run: in this process, or on a cluster."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from agentv.run.run import Run


class Executor(AbstractAsyncContextManager["Executor"], Protocol):
    """Runs the jobs of a plan. Entering it raises `ConfigError` if that cannot be done; nothing was run then."""

    async def run_jobs(self, run: Run) -> None:
        """Run each job that is not done already, and hand its one result to `run.results`.

        An error that ends the run is an `AgentvError` in an `ExceptionGroup`.
        """
        ...
