"""The seam between a run and where its cases run: in this process, or on a cluster."""

from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, NamedTuple, Protocol, Self

from agentv.cases.discovery import eval_files
from agentv.run.local import LocalExecutor
from agentv.run.options import EvalOptions
from agentv.run.planning.plan import Plan
from agentv.run.run import Run
from agentv.run.targets import OpenTargets


class Executor(AbstractAsyncContextManager["Executor"], Protocol):
    """Runs the jobs of a plan. Entering it raises `ConfigError` if they cannot be run; no case has run then."""

    async def run_jobs(self, run: Run) -> None:
        """Run each job that is not done yet, and pass its single result to `run.results`.

        An error that ends the run is an `AgentvError` in an `ExceptionGroup`.
        """
        ...


class ExecutorChoice(NamedTuple):
    """Where the cases of a run are executed: on a cluster, or in this process if there is no address."""

    address: Any = None
    """The address of the cluster's scheduler."""
    cluster: str = ""
    """The address as the user wrote it."""

    @classmethod
    def parse(cls, cluster: str | None) -> Self:
        """Parse the value of `--cluster`. Raise `ConfigError` if it is invalid."""
        if cluster is None:
            return cls()
        module = import_module("agentv.cluster.address")
        address = module.parse_address(cluster)
        return cls(address, cluster)

    @property
    def is_cluster(self) -> bool:
        return self.address is not None

    @property
    def text(self) -> str:
        """The end of the line that describes the run before it starts."""
        if not self.is_cluster:
            return ""
        return f" each, on the cluster {self.cluster}"

    def executor(self, options: EvalOptions, plan: Plan, targets: OpenTargets) -> Executor:
        """Return the executor of the jobs."""
        if not self.is_cluster:
            return LocalExecutor(targets)
        module = import_module("agentv.cluster.executor")
        cluster_options = module.ClusterOptions(
            self.address,
            tuple(eval_files(options.paths)),
            options.project,
            options.check_judge,
        )
        executor: Executor = module.ClusterExecutor(cluster_options, plan, targets)
        return executor
