"""Runs the jobs of a plan on the workers of a Dask cluster.

The driver, which is this process, sends numbers of cases and fetches results, in one conversation with each worker.
The first result of a run is the one that counts; whatever else arrives for the same run is dropped.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from agentv.errors import ConfigError
from agentv.notices import warn
from agentv.providers.python import PythonFunction
from agentv.records import Problem
from agentv.run.case import CaseRunner
from agentv.run.executors.address import Address, is_private
from agentv.run.executors.connection import Unreachable, check_version, connect
from agentv.run.executors.conversation import ClusterRun, Link
from agentv.run.executors.setup import Setup, environment_of, manifest_of
from agentv.run.extensions import Results
from agentv.run.jobs import IsDone
from agentv.run.plan import Plan
from agentv.run.planner import PlanOptions
from agentv.run.targets import OpenTargets
from agentv.run.watching.watcher import Watcher

BUSY_SECONDS = 30.0
PREPARE_POLL_SECONDS = 0.5
STOP_SECONDS = 3.0


class ClusterJob(NamedTuple):
    """What a cluster is asked to do, besides the plan."""

    address: Address
    paths: tuple[Path, ...]
    """The eval files."""
    targets: Path | None
    """The targets file that was asked for, if one was."""
    prices: Path | None = None
    """The price list that was asked for, if one was."""
    checks_judges: bool = False
    """Whether some answers are judged again, by the driver."""


class ClusterExecutor:
    """Runs jobs on a cluster. Entering it connects, and raises `ConfigError` if a worker cannot take part."""

    def __init__(self, job: ClusterJob, plan: Plan, targets: OpenTargets):
        self._job, self._plan, self._targets = job, plan, targets
        self._run_id = targets.options.run_id or "run"
        self._stack = AsyncExitStack()
        self._links: dict[str, Link] = {}

    async def __aenter__(self) -> Self:
        _check_plan(self._plan, self._targets)
        async with AsyncExitStack() as stack:
            self._connection = await stack.enter_async_context(connect(self._job.address))
            workers = await self._wait_for_workers()
            await self._check_versions(workers)
            stack.push_async_callback(self._leave)
            try:
                await self._connection.install(self._run_id)
            except Unreachable as error:
                raise ConfigError(
                    f"a worker of the cluster does not answer: {error}", hint="nothing was run"
                ) from error
            self._make_setup()
            self._links = {url: Link(url, name) for url, name in workers.items()}
            await self._prepare_all()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _wait_for_workers(self) -> dict[str, str]:
        """Return the workers; raise `ConfigError` if there are none in time."""
        expected, seconds = self._connection.expected
        end = asyncio.get_running_loop().time() + seconds
        while len(found := await self._connection.workers()) < expected:
            if asyncio.get_running_loop().time() > end:
                if found:
                    break
                hint = "start workers first, such as with: dask worker tcp://HOST:PORT"
                raise ConfigError(f"the cluster at {self._connection.url} has no workers", hint=hint)
            await asyncio.sleep(0.1)
        return found

    async def _check_versions(self, workers: dict[str, str]) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._version_problem(url, name)) for url, name in workers.items()]
        for task in tasks:
            if problem := task.result():
                raise ConfigError(problem, hint="nothing was run")

    async def _version_problem(self, url: str, name: str) -> str:
        """Return what is wrong with the agentv of a worker, if anything is."""
        try:
            return check_version(shown(url, name), await self._connection.version(url))
        except Unreachable as error:
            return f"worker {shown(url, name)} does not answer: {error}"

    def _make_setup(self) -> None:
        plan, options = self._plan, self._targets.options
        plan_options = PlanOptions(
            plan.selection, self._job.targets, plan.stand_in, plan.dry_run, options.trials, prices=self._job.prices
        )
        self._setup = Setup(
            self._job.paths,
            plan.folder,
            plan_options,
            options._replace(max_errors=None),
            manifest_of(plan),
            checks_judges=self._job.checks_judges,
        )
        self._environment = environment_of(plan)

    async def _prepare_all(self) -> None:
        """Get all workers ready; raise `ConfigError` if one cannot be."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.prepare(link)) for link in self._links.values()]
        problems = [problem for task in tasks if (problem := task.result())]
        if problems:
            hint = "nothing was run" + (f"; {len(problems)} workers are not ready" if len(problems) > 1 else "")
            raise ConfigError(problems[0], hint=hint)

    async def prepare(self, link: Link) -> str:
        """Get a worker ready; return what is wrong with it, if anything is."""
        end = asyncio.get_running_loop().time() + BUSY_SECONDS
        name = shown(link.url, link.name)
        try:
            while (got := await self._start(link))["state"] == "busy":
                if asyncio.get_running_loop().time() > end:
                    return f"worker {name} is busy with another run of agentv"
                await asyncio.sleep(1)
            if got["state"] == "failed":
                return f"worker {name}: {got['problem']}"
            while True:
                got = await self._connection.ask(
                    link.url, run=self._run_id, do="poll", ack=0, share=(0, 1), wait=PREPARE_POLL_SECONDS, drop=False
                )
                if got["state"] == "ready":
                    link.is_ready = True
                    return ""
                if got["state"] != "preparing":
                    return f"worker {name}: {got.get('problem') or 'it is gone'}"
        except Unreachable as error:
            return f"worker {name} does not answer: {error}"
        except ConfigError as error:
            return f"{error.message} ({error.hint})" if error.hint else error.message

    async def _start(self, link: Link) -> dict[str, Any]:
        setup = self._setup
        if is_private(self._connection.url) and is_private(link.url):  # else a worker has its own, or does without
            setup = replace(setup, environment=self._environment)
        elif isinstance(self._plan.stand_in, PythonFunction):
            hint = "name a target of the targets file, or use a cluster with TLS"
            raise ConfigError("a Python function, which may hold secrets, is not sent in the clear", hint=hint)
        return await self._connection.ask(link.url, run=self._run_id, do="start", setup=_pickled(setup))

    async def join(self, url: str, name: str) -> Link | None:
        """Return a worker that came later, ready to work; None if it cannot take part, which the user is told."""
        link = Link(url, name)
        problem = await self._version_problem(url, name) or await self.prepare(link)
        if problem:
            if url in await self._connection.workers():  # else it was gone before it could do anything
                warn(Problem(message=f"{problem}: it gets no cases", severity="warning"))
            return None
        return link

    async def run_jobs(
        self, cases: CaseRunner, *, results: Results, watcher: Watcher, is_done: IsDone | None = None
    ) -> None:
        """Run each job of the plan that is not done already on one of the workers."""
        results.start()
        run = ClusterRun(self, self._plan, self._targets, cases, results=results, watcher=watcher)
        await run.run(self._connection, self._run_id, list(self._links.values()), is_done)

    async def _leave(self) -> None:
        """End the run on all workers."""
        with suppress(TimeoutError, Exception):
            async with asyncio.timeout(STOP_SECONDS), asyncio.TaskGroup() as group:
                for url in await self._connection.workers():
                    group.create_task(self._stop(url))
        await self._connection.leave(self._run_id)

    async def _stop(self, url: str) -> None:
        with suppress(Unreachable):
            while (await self._connection.ask(url, run=self._run_id, do="stop"))["state"] == "ready":
                await asyncio.sleep(0.05)


def _pickled(setup: Setup) -> bytes:
    """Return the set-up as bytes; raise `ConfigError` if a function in it cannot be sent."""
    import cloudpickle  # which comes with distributed

    try:
        data: bytes = cloudpickle.dumps(setup)
    except Exception as error:  # whatever is in the function's reach
        raise ConfigError(f"the function cannot be sent to a cluster: {error}") from error
    return data


def shown(url: str, name: str) -> str:
    """Return how a worker is called: by its name, if it has one besides its address."""
    return url if name == url else f"{name} ({url})"


def _check_plan(plan: Plan, targets: OpenTargets) -> None:
    """Raise `ConfigError` for what cannot be done on a cluster."""
    if targets.has_batch_judges:
        hint = "run it without --cluster, or set 'batch_api: false' on the target that judges"
        raise ConfigError("--cluster: a target that judges is asked through a batch API", hint=hint)
    for file in plan.files:
        for target in file.targets.values():
            if targets.target(file, target).vendor_batch is not None:
                hint = "run it without --cluster, or set 'batch_api: false'"
                raise ConfigError(f"--cluster: target {target.name!r} is asked through a batch API", hint=hint)
            if targets.target(file, target).is_batch:
                hint = "run it without --cluster, or set 'provider_batching: false'"
                raise ConfigError(
                    f"--cluster: target {target.name!r} answers all cases of a file in one batch", hint=hint
                )
