"""The targets of a plan -> providers that can be called, for the duration of one run.

Connections and semaphores are made when a run starts, and closed when it ends.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Self

from agentv.calls.cache import Cache
from agentv.calls.caller import Caller, CallPolicies, CallPolicy
from agentv.calls.slots import WHOLE, Share
from agentv.errors import ConfigError, ProviderError
from agentv.files.state import state_folder
from agentv.log import warn
from agentv.processes.child import end_orphans
from agentv.protocols import BatchProvider, Check, Checked, Provider
from agentv.providers.models.batches.api import BatchModel
from agentv.providers.settings import RetrySettings, TargetSettings
from agentv.providers.workspaces.workspace import Workspaces
from agentv.records import Problem, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.run.options import RunOptions
from agentv.run.planning.plan import Plan, PlannedFile, PlannedTarget
from agentv.run.planning.run_targets import open_provider


class OpenTarget:
    """A target that can be called: its provider, and the limits on calling it."""

    def __init__(
        self,
        name: str,
        provider: Provider | BatchProvider,
        policy: CallPolicy,
        settings: TargetSettings | None = None,
        targets_file: Path | None = None,
    ):
        """`settings` are None if a stand-in answers instead of the target."""
        self.name = name
        self.policy = policy
        self.settings = settings
        self.targets_file = targets_file
        self._either: object = provider
        """The provider, whether it answers one case per call or many."""
        self.batch_provider: BatchProvider | None = None
        self.provider: Provider
        if isinstance(provider, BatchProvider):
            self.batch_provider = provider
            self.provider = _NoSingleAnswers(name)
        else:
            self.provider = provider
        self.workspaces: Workspaces | None = None
        """Makes a fresh folder for each attempt at a case, if the target works in one."""
        workspaces = getattr(provider, "workspaces", None)
        if isinstance(workspaces, Workspaces) and workspaces.are_fresh:
            self.workspaces = workspaces
        self._entering = asyncio.Lock()
        self._is_entered = False

    @property
    def is_batch(self) -> bool:
        """Whether one call answers many cases."""
        return self.batch_provider is not None

    @property
    def uses_batch_api(self) -> bool:
        """Whether its vendor's batch API is used."""
        if self.settings is None or self.settings.batch_api is not True:
            return False
        return isinstance(self.provider, BatchModel)

    @property
    def check(self) -> Check | None:
        """The check whether the target is ready, if there is one."""
        if isinstance(self._either, Checked):
            return self._either.check
        return None

    async def enter(self, stack: AsyncExitStack) -> None:
        """Get the provider ready; the stack closes it. May be called repeatedly."""
        if self._is_entered or not isinstance(self._either, AbstractAsyncContextManager):
            return
        async with self._entering:
            if not self._is_entered:
                await stack.enter_async_context(self._either)
                self._is_entered = True


class _NoSingleAnswers:
    """Placeholder for the provider of a target that only answers in batches."""

    def __init__(self, name: str):
        self._name = name

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        raise ProviderError(f"target {self._name!r} cannot be a judge: it answers in batches")


class OpenTargets:
    """All the targets of one run. Each is opened once, and shared by the cases of several files and by judges.

    The worker of a cluster gets its `share`: the limits of a target then hold for all workers together.
    """

    def __init__(self, plan: Plan, options: RunOptions, share: Share | None = None):
        self._plan = plan
        self.options = options
        self._asked = options.workers
        self.workers = plan.workers(options.workers)
        self._slots: asyncio.Semaphore | None = None
        if any(file.judges for file in plan.files):
            # Without judges, only workers make calls, each one at a time.
            self._slots = asyncio.Semaphore(self.workers)
        cache = None
        if options.cache:
            cache = Cache(state_folder("cache"), clean)
        self.caller = self.new_caller(cache)
        """Makes all calls, for answers and for judgements."""
        self._is_shared = share is not None
        self._policies = CallPolicies(share or WHOLE)
        self.rebalance = self._policies.rebalance
        self._open: dict[tuple[object, ...], OpenTarget] = {}
        self._stack = AsyncExitStack()

    def new_caller(self, cache: Cache | None) -> Caller:
        """Return a caller that keeps to the limits of the run, with another cache or without one."""
        return Caller(
            self._slots,
            seconds=self.options.timeout_seconds,
            retries=self.options.max_retries,
            cache=cache,
        )

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(end_orphans)
        for file in self._plan.files:
            for target in file.targets.values():
                self.target(file, target)
            for name in dict.fromkeys(file.judges.values()):
                self.judge_target(file, name)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def open_targets(self) -> list[OpenTarget]:
        """The targets that are open, including those that only judge."""
        return list(self._open.values())

    @property
    def batched_judges(self) -> list[OpenTarget]:
        """The targets that judge through their vendor's batch API."""
        found: dict[OpenTarget, None] = {}
        for file in self._plan.files:
            for name in file.judges.values():
                target = self.judge_target(file, name)
                if target.uses_batch_api:
                    found[target] = None
        return list(found)

    async def check(self) -> None:
        """Raise `ConfigError` for a target that is not ready."""
        checks: dict[Check, str] = {}
        for target in self._open.values():
            check = target.check
            if check is not None:
                checks.setdefault(check, target.name)
        for check, name in checks.items():
            try:
                await check.run()
            except ProviderError as error:
                raise ConfigError(
                    f"target {name!r} is not ready: {error.message}",
                    hint="the check ran before the first case; no case was run",
                ) from error

    async def start(self) -> None:
        """Get all providers ready to be called."""
        for target in self.open_targets:
            await self.enter(target)

    async def enter(self, target: OpenTarget) -> None:
        """Get the provider of a target ready, if that has not been done yet."""
        await target.enter(self._stack)

    def warn_of_limits(self) -> None:
        """Warn about targets that run fewer cases concurrently than requested."""
        if self._asked is None or self._asked <= 1:
            return
        names: dict[str, None] = {}
        for target in self._plan.targets:
            if target.is_alone:
                names[target.name] = None
        for name in names:
            message = f"target {name!r} does not support concurrent cases: using 1 worker for it"
            warn(Problem(message=message, severity="warning"))

    def target(self, file: PlannedFile, target: PlannedTarget) -> OpenTarget:
        """Return the target that answers cases of a file."""
        return self._opened(
            file,
            name=target.name,
            settings=target.settings,
            stand_in=self._plan.stand_in,
            limit=target.limit(self._asked),
        )

    def judge_target(self, file: PlannedFile, name: str) -> OpenTarget:
        """Return the target of this name, as a judge. Raise `ConfigError` if it cannot be opened."""
        settings = file.settings[name]
        limit = self.workers
        if self._asked is None and isinstance(settings.workers, int):
            limit = settings.workers
        return self._opened(
            file,
            name=name,
            settings=settings,
            stand_in=None,
            limit=limit,
        )

    def _opened(
        self,
        file: PlannedFile,
        name: str,
        settings: TargetSettings | None,
        stand_in: Provider | None,
        limit: int,
    ) -> OpenTarget:
        folder: Path | None = (self._plan.folder / file.path).parent
        if isinstance(settings, RetrySettings):
            folder = None  # a target on the network is the same from every folder
        key = file.targets_file, name, folder, stand_in is None
        if key not in self._open:
            self._open[key] = self._new_target(file, name, settings, stand_in, limit)
        return self._open[key]

    def _new_target(
        self,
        file: PlannedFile,
        name: str,
        settings: TargetSettings | None,
        stand_in: Provider | None,
        limit: int,
    ) -> OpenTarget:
        version = self._plan.stand_in_version.digest
        if settings is None:
            assert stand_in is not None
            return OpenTarget(name, stand_in, CallPolicy(make_target_key=lambda: version))
        folder = (self._plan.folder / file.path).parent
        most = None
        if self._is_shared:
            most = shared_limit(settings)
        elif limit < self.workers:
            most = limit
        key = (file.targets_file, name)
        policy = self._policies.policy(settings, folder, key, most)
        if stand_in is not None:
            policy.make_target_key = lambda: version
            policy.make_target_key_1 = lambda: None
            return OpenTarget(name, stand_in, policy)
        provider = open_provider(name, settings, folder, file.targets_file)
        return OpenTarget(name, provider, policy, settings, file.targets_file)


def shared_limit(settings: TargetSettings) -> int | None:
    """Return the limit on concurrent calls to a target by all workers of a cluster together, or None."""
    if settings.is_serial:
        return 1
    if isinstance(settings.workers, int):
        return settings.workers
    return None


def most_workers(plan: Plan) -> int | None:
    """Return how many workers of a cluster can share the targets of a plan: the lowest of their concurrency limits."""
    used: list[TargetSettings] = []
    if plan.stand_in is None:
        for target in plan.targets:
            if target.settings is not None:
                used.append(target.settings)
    for file in plan.files:
        for name in file.judges.values():
            used.append(file.settings[name])
    limits = []
    for settings in used:
        limit = shared_limit(settings)
        if limit is not None:
            limits.append(limit)
    return min(limits, default=None)
