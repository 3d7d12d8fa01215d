"""Run the jobs of a plan on the workers of a Dask cluster.

The driver is this process. It sends numbers of case runs and fetches results, in one conversation with each worker.
The first result of a case run counts; later results of the same case run are dropped.
"""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from agentv.cluster.address import Address, is_private
from agentv.cluster.connection import Unreachable, connect, version_problem
from agentv.cluster.conversation import ClusterRun, RemoteWorker
from agentv.cluster.setup import PickledSetup, Setup, environment_of, manifest_of
from agentv.errors import ConfigError
from agentv.log import warn
from agentv.providers.python import PythonFunction
from agentv.records import Problem
from agentv.run.options import ProjectOptions
from agentv.run.planning.plan import Plan
from agentv.run.planning.planner import PlanOptions
from agentv.run.run import Run
from agentv.run.targets import OpenTargets

BUSY_SECONDS = 30.0
"""How long to wait for a worker that is busy with another run."""
PREPARE_POLL_SECONDS = 0.5
STOP_SECONDS = 3.0


class ClusterOptions(NamedTuple):
    """The options of a run on a cluster that are not in the plan."""

    address: Address
    paths: tuple[Path, ...]
    """The eval files."""
    project: ProjectOptions
    checks_judges: bool = False
    """Whether the driver judges some answers a second time."""


class ClusterExecutor:
    """Runs jobs on a cluster. Entering it connects, and raises `ConfigError` if a worker cannot take part."""

    def __init__(self, options: ClusterOptions, plan: Plan, targets: OpenTargets):
        self._options = options
        self._plan = plan
        self._targets = targets
        self._stack = AsyncExitStack()
        self._workers: list[RemoteWorker] = []

    async def __aenter__(self) -> Self:
        _check_plan(self._plan, self._targets)
        run_id = self._targets.options.run_id or "run"
        async with AsyncExitStack() as stack:
            self._connection = await stack.enter_async_context(connect(self._options.address, run_id))
            names = await self._wait_for_workers()
            await self._check_versions(names)
            stack.push_async_callback(self._leave)
            try:
                await self._connection.install_plugin()
            except Unreachable as error:
                raise ConfigError(
                    f"a worker of the cluster does not respond: {error}", hint="nothing was run"
                ) from error
            self._make_setup()
            self._workers = [RemoteWorker(url, name) for url, name in names.items()]
            await self._prepare_all()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _wait_for_workers(self) -> dict[str, str]:
        """Return the names of the workers by address; raise `ConfigError` if there are none in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connection.wait_seconds
        while True:
            names = await self._connection.workers()
            if len(names) >= self._connection.expected_workers:
                return names
            if loop.time() > deadline:
                if names:
                    return names
                hint = "start workers first, for example: dask worker tcp://HOST:PORT"
                raise ConfigError(f"the cluster at {self._connection.url} has no workers", hint=hint)
            await asyncio.sleep(0.1)

    async def _check_versions(self, names: dict[str, str]) -> None:
        """Raise `ConfigError` if a worker has another version of agentv."""
        async with asyncio.TaskGroup() as group:
            tasks = []
            for url, name in names.items():
                check = self._version_problem(url, name)
                tasks.append(group.create_task(check))
        for task in tasks:
            problem = task.result()
            if problem:
                raise ConfigError(problem, hint="nothing was run")

    async def _version_problem(self, url: str, name: str) -> str:
        """Return why the agentv of a worker cannot take part; empty if it can."""
        label = _worker_label(url, name)
        try:
            version = await self._connection.version(url)
        except Unreachable as error:
            return f"worker {label} does not respond: {error}"
        return version_problem(label, version)

    def _make_setup(self) -> None:
        """Collect what workers need. Reads all eval files, so it comes after what may fail sooner."""
        plan = self._plan
        options = self._targets.options
        plan_options = PlanOptions(
            selection=plan.selection,
            project=self._options.project,
            stand_in=plan.stand_in,
            stand_in_version=plan.stand_in_version,
            dry_run=plan.dry_run,
            trials=options.trials,
        )
        self._setup = Setup(
            paths=self._options.paths,
            folder=plan.folder,
            plan_options=plan_options,
            options=options,
            manifest=manifest_of(plan),
            checks_judges=self._options.checks_judges,
        )
        self._environment = environment_of(plan)

    async def _prepare_all(self) -> None:
        """Prepare all workers; raise `ConfigError` if one cannot take part."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.prepare(worker)) for worker in self._workers]
        problems = []
        for task in tasks:
            problem = task.result()
            if problem:
                problems.append(problem)
        if not problems:
            return
        hint = "nothing was run"
        if len(problems) > 1:
            hint = f"{hint}; {len(problems)} workers are not ready"
        raise ConfigError(problems[0], hint=hint)

    async def prepare(self, worker: RemoteWorker) -> str:
        """Prepare a worker; return why that failed, or an empty string."""
        label = _worker_label(worker.url, worker.name)
        try:
            problem = await self._start_session(worker, label)
            if not problem:
                problem = await self._wait_until_ready(worker, label)
        except Unreachable as error:
            return f"worker {label} does not respond: {error}"
        except ConfigError as error:
            if error.hint:
                return f"{error.message} ({error.hint})"
            return error.message
        return problem

    async def _start_session(self, worker: RemoteWorker, label: str) -> str:
        """Start the run on a worker; return why that failed, or an empty string."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BUSY_SECONDS
        while True:
            answer = await self._send_setup(worker)
            if answer["state"] == "failed":
                return f"worker {label}: {answer['problem']}"
            if answer["state"] != "busy":
                return ""
            if loop.time() > deadline:
                return f"worker {label} is busy with another run of agentv"
            await asyncio.sleep(1)

    async def _wait_until_ready(self, worker: RemoteWorker, label: str) -> str:
        """Wait until a worker can run cases; return why that failed, or an empty string."""
        while True:
            report = await self._connection.ask(
                worker.url,
                "poll",
                ack=0,
                share=(0, 1),
                wait=PREPARE_POLL_SECONDS,
                drop=False,
            )
            if report["state"] == "ready":
                worker.is_ready = True
                return ""
            if report["state"] != "preparing":
                problem = report.get("problem") or "it disconnected"
                return f"worker {label}: {problem}"

    async def _send_setup(self, worker: RemoteWorker) -> dict[str, Any]:
        setup = self._setup
        if is_private(self._connection.url) and is_private(worker.url):
            setup = replace(setup, environment=self._environment)
        elif isinstance(self._plan.stand_in, PythonFunction):
            hint = "use a target of the targets file, or a cluster with TLS"
            raise ConfigError("a Python function may contain secrets and is not sent unencrypted", hint=hint)
        return await self._connection.ask(worker.url, "start", setup=_pickled(setup))

    async def join(self, url: str, name: str) -> RemoteWorker | None:
        """Prepare a worker that joined the cluster during the run; warn and return None if it cannot take part."""
        worker = RemoteWorker(url, name)
        problem = await self._version_problem(url, name)
        if not problem:
            problem = await self.prepare(worker)
        if not problem:
            return worker
        # A worker that has left in the meantime is not worth a warning.
        if url in await self._connection.workers():
            warn(Problem(message=f"{problem}: the worker gets no cases", severity="warning"))
        return None

    async def run_jobs(self, run: Run) -> None:
        """Run each job of the plan that is not done yet on one of the workers."""
        async with asyncio.TaskGroup() as tasks:
            await run.start(tasks)
            await ClusterRun(self, self._connection, run).run(self._workers)

    async def _leave(self) -> None:
        """End the run on all workers."""
        with suppress(TimeoutError, Exception):
            async with asyncio.timeout(STOP_SECONDS), asyncio.TaskGroup() as group:
                for url in await self._connection.workers():
                    group.create_task(self._stop_session(url))
        await self._connection.remove_plugin()

    async def _stop_session(self, url: str) -> None:
        with suppress(Unreachable):
            while True:
                answer = await self._connection.ask(url, "stop")
                if answer["state"] != "ready":
                    return
                await asyncio.sleep(0.05)


def _pickled(setup: Setup) -> Any:
    """Return the setup as a part of a message; raise `ConfigError` if a function in it cannot be sent."""
    import cloudpickle  # installed with distributed
    from distributed.protocol.serialize import Serialize

    try:
        data: bytes = cloudpickle.dumps(setup)
    except Exception as error:  # pickling calls code of any object that the function refers to
        raise ConfigError(f"the function cannot be sent to a cluster: {error}") from error
    # The scheduler passes it on without reading it.
    return Serialize(PickledSetup(data))  # type: ignore[no-untyped-call]


def _worker_label(url: str, name: str) -> str:
    """Return the name and address of a worker. The name defaults to the address."""
    if name == url:
        return url
    return f"{name} ({url})"


def _check_plan(plan: Plan, targets: OpenTargets) -> None:
    """Raise `ConfigError` for targets that cannot be used on a cluster."""
    if not plan.dry_run and targets.batched_judges:
        hint = "run without --cluster, or set 'batch_api: false' in the judge target"
        raise ConfigError("--cluster: a judge target uses a batch API", hint=hint)
    for file in plan.files:
        for planned in file.targets.values():
            target = targets.target(file, planned)
            if target.uses_batch_api:
                hint = "run without --cluster, or set 'batch_api: false'"
                raise ConfigError(f"--cluster: target {planned.name!r} uses a batch API", hint=hint)
            if target.is_batch:
                hint = "run without --cluster, or set 'provider_batching: false'"
                raise ConfigError(
                    f"--cluster: target {planned.name!r} answers all cases of a file in one batch", hint=hint
                )
