"""The targets of a plan -> providers that can be called, for the time of one run.

Connections, semaphores and judges are made here, when a run starts, and closed when it ends.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from agentv.calls.cache import Cache
from agentv.calls.caller import Caller, CallPolicies, CallPolicy
from agentv.calls.retry import FailedCall
from agentv.calls.slots import WHOLE, Share
from agentv.errors import ConfigError, ProviderError
from agentv.judges.deferral import current
from agentv.judges.metering import JudgeMeter, judge_meter
from agentv.judges.target import JudgeRef, NoJudge
from agentv.notices import warn
from agentv.processes.child import end_orphans
from agentv.protocols import BatchProvider, Check, Checked, JudgeTarget, Provider
from agentv.providers.models.batches.api import BatchModel
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import RetrySettings, TargetSettings
from agentv.providers.workspaces.workspace import Workspaces
from agentv.records import EvalCase, Problem, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.run.batches.judging import JudgeRounds, judge_request_id
from agentv.run.batches.vendor import BatchTarget, max_requests
from agentv.run.plan import Plan, PlannedFile, PlannedTarget, RunOptions
from agentv.run.planner import open_provider
from agentv.run.watching.watcher import Watcher

if TYPE_CHECKING:  # a server, which few runs need
    from agentv.telemetry.collector import Collector


class OpenTarget:
    """A target that can be called: its provider, and the limits on calling it."""

    def __init__(
        self, name: str, provider: Provider | BatchProvider, policy: CallPolicy, vendor_batch: BatchTarget | None = None
    ):
        self.name, self.policy = name, policy
        self.vendor_batch = vendor_batch
        """How it is asked through its vendor's batch API, if it is."""
        self._any: object = provider
        self.batch_provider = provider if isinstance(provider, BatchProvider) else None
        self.provider: Provider = _NoSingleAnswers(name) if isinstance(provider, BatchProvider) else provider
        workspaces = getattr(provider, "workspaces", None)
        self.workspaces = workspaces if isinstance(workspaces, Workspaces) and workspaces.are_fresh else None
        """Where it works, if that is a fresh folder for each attempt at a case."""
        self._entering = asyncio.Lock()
        self._is_entered = False

    @property
    def is_batch(self) -> bool:
        """Whether one call answers many cases."""
        return self.batch_provider is not None

    @property
    def check(self) -> Check | None:
        """What finds out whether the target is ready, if anything does."""
        return self._any.check if isinstance(self._any, Checked) else None

    async def enter(self, stack: AsyncExitStack) -> None:
        """Get the provider ready; the stack closes it. It may be called again and again."""
        if self._is_entered or not isinstance(self._any, AbstractAsyncContextManager):
            return
        async with self._entering:
            if not self._is_entered:
                await stack.enter_async_context(self._any)
                self._is_entered = True


class _NoSingleAnswers:
    """Stands for the provider of a target that only answers in batches."""

    def __init__(self, name: str):
        self._name = name

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        raise ProviderError(f"target {self._name!r} answers in batches, and cannot judge")


class OpenTargets:
    """All the targets of one run. Each is opened once, whoever uses it: cases of several files, or judges.

    A worker of a cluster gets its `share`: then the limits of a target hold for all workers together.
    """

    def __init__(self, plan: Plan, options: RunOptions, share: Share | None = None):
        self._plan, self.options = plan, options
        self._asked, self.workers = options.workers, plan.workers(options.workers)
        cache = Cache(options.cache, clean) if options.cache is not None else None
        has_judges = any(file.judges for file in plan.files)  # else no call is made but by a worker, one at a time
        slots = asyncio.Semaphore(self.workers) if has_judges else None
        self._slots = slots
        self.caller = self.new_caller(cache)
        """Calls all that is outside, be it for an answer or for a judgement."""
        self._is_shared = share is not None
        self._policies = CallPolicies(share or WHOLE)
        self.rebalance = self._policies.rebalance
        self.collector: Collector | None = None
        """Takes the traces of targets, once that is asked for and the run is about to start."""
        self._open: dict[tuple[object, ...], OpenTarget] = {}
        self._stack = AsyncExitStack()

    def new_caller(self, cache: Cache | None) -> Caller:
        """Return a caller that keeps to the limits of the run, with a cache of its own, or none."""
        return Caller(self._slots, self.options.timeout_seconds, self.options.max_retries, cache)

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

    async def check(self) -> None:
        """Raise `ConfigError` for a target that is not ready, or if traces cannot be collected."""
        if self.options.collect is not None and self.collector is None:
            from agentv.telemetry.collector import Collector

            self.collector = self._stack.enter_context(Collector(self.options.collect))
        checks: dict[Check, str] = {}
        for target in self._open.values():
            if (check := target.check) is not None:
                checks.setdefault(check, target.name)
        for check, name in checks.items():
            try:
                await check.run()
            except ProviderError as error:
                hint = "this is what was found before the start; nothing was run"
                raise ConfigError(f"target {name!r} is not ready: {error.message}", hint=hint) from error

    async def start(self) -> None:
        """Get all providers ready to be called."""
        for target in list(self._open.values()):
            await self.enter(target)

    async def enter(self, target: OpenTarget) -> None:
        """Get the provider of a target ready, if that has not been done yet."""
        await target.enter(self._stack)

    @property
    def has_batch_judges(self) -> bool:
        """Whether a target that judges is asked through its vendor's batch API."""
        judges = (self.judge_target(file, name) for file in self._plan.files for name in set(file.judges.values()))
        return not self._plan.dry_run and any(target.vendor_batch is not None for target in judges)

    def warn_of_limits(self) -> None:
        """Warn of targets that do less than was asked for: fewer cases at once, or no traces."""
        for name in dict.fromkeys(target.name for target in self._plan.targets if target.is_alone):
            if (self._asked or 1) > 1:
                message = f"target {name!r} can only do one thing at a time: using 1 worker for it"
                warn(Problem(message=message, severity="warning"))
        for target in self._open.values():
            if self.collector is not None and target.is_batch:
                message = f"target {target.name!r} answers all cases at once: its traces are not collected"
                warn(Problem(message=message, severity="warning"))

    def target(self, file: PlannedFile, target: PlannedTarget) -> OpenTarget:
        """Return the target that answers cases of a file."""
        limit = target.limit(self._asked)
        return self._opened(file, target.name, target.settings, self._plan.stand_in, limit)

    def judge_target(self, file: PlannedFile, name: str) -> OpenTarget:
        """Return the target of this name, to be asked to judge; raise `ConfigError` if it cannot be."""
        settings = file.settings[name]
        own = settings.workers if self._asked is None and isinstance(settings.workers, int) else self.workers
        return self._opened(file, name, settings, None, own)

    def _opened(
        self, file: PlannedFile, name: str, settings: TargetSettings | None, stand_in: Provider | None, limit: int
    ) -> OpenTarget:
        folder = (self._plan.folder / file.path).parent
        at = None if isinstance(settings, RetrySettings) else folder  # what is on the network is in no folder
        key = file.targets_file, name, at, stand_in is None
        if key not in self._open:
            policy = CallPolicy()
            if settings is not None:
                most = limit if limit < self.workers else None
                if self._is_shared:
                    most = shared_limit(settings)
                policy = self._policies.policy(settings, folder, (file.targets_file, name), most)
                provider = stand_in or open_provider(name, settings, folder, file.targets_file)
            else:
                assert stand_in is not None
                provider = stand_in
            vendor_batch = None
            if stand_in is None and isinstance(settings, LanguageModelSettings) and isinstance(provider, BatchModel):
                vendor_batch = _vendor_batch(settings, provider, policy, file.targets_file)
            self._open[key] = OpenTarget(name, provider, policy, vendor_batch)
        return self._open[key]


def check_batches(plan: Plan, trials: int) -> None:
    """Raise `ConfigError` for a target that is to be asked more than fits into batches."""
    found: dict[tuple[Path | None, str], TargetSettings] = {}
    counts: dict[tuple[Path | None, str], int] = {}
    for file in plan.files if plan.stand_in is None else ():
        for target in file.targets.values():
            if target.settings is not None and target.settings.batch_api is True:
                key = file.targets_file, target.name
                found[key], counts[key] = target.settings, counts.get(key, 0) + file.cases * trials
    for (targets_file, name), count in counts.items():
        model = open_provider(name, found[targets_file, name], plan.folder, targets_file)
        if isinstance(model, BatchModel) and count > (most := max_requests(model.batches())):
            message = f"target {name!r} would be sent {count:,} requests, and {most:,} fit into batches"
            raise ConfigError(message, hint="use fewer --trials, or divide the run with --shard")


def _vendor_batch(
    settings: LanguageModelSettings, model: BatchModel, policy: CallPolicy, targets_file: Path | None
) -> BatchTarget | None:
    """Return how a target is asked through its vendor's batch API; None if it is not."""
    if settings.batch_api is not True:
        return None
    poll = settings.batch_poll_seconds
    return BatchTarget(settings.name, model, policy, targets_file, float(poll) if poll is not None else None)


def shared_limit(settings: TargetSettings) -> int | None:
    """Return how many calls at once a target takes from all workers of a cluster together, if that is limited."""
    if settings.is_serial:
        return 1
    return settings.workers if isinstance(settings.workers, int) else None


def most_workers(plan: Plan) -> int | None:
    """Return how many workers of a cluster can share the plan's targets: no more than the fewest calls at once."""
    used = [target.settings for target in plan.targets if target.settings is not None and plan.stand_in is None]
    used += [file.settings[name] for file in plan.files for name in file.judges.values()]
    limits = [limit for settings in used if (limit := shared_limit(settings)) is not None]
    return min(limits, default=None)


class RunJudges:
    """Gives the evaluators of a run the targets that judge; calls go through `caller`.

    They are counted by `meter`, else by that of the case.
    """

    def __init__(
        self,
        plan: Plan,
        targets: OpenTargets,
        watcher: Watcher,
        caller: Caller | None = None,
        meter: JudgeMeter | None = None,
    ):
        self._plan, self._targets, self._watcher = plan, targets, watcher
        self._caller, self._meter = caller or targets.caller, meter
        self._rounds: JudgeRounds | None = None
        """Asks judges in batches, if there are such."""
        self._files = {plan.folder / file.path: file for file in plan.files}

    def open_rounds(self) -> JudgeRounds | None:
        """Return what asks judges in batches from now on; None if no judge is asked so."""
        if self._targets.has_batch_judges:
            self._rounds = JudgeRounds(self._targets.options.batches, self._watcher.batch_changed)
        return self._rounds

    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        if self._plan.dry_run:
            return NoJudge(name or "")
        file = self._files[case.file.path]
        return _Judge(self, file, file.judges[JudgeRef(target, name)])

    async def ask(self, file: PlannedFile, name: str, request: ProviderRequest) -> ProviderResponse:
        """Return the answer of a target that is asked to judge; raise `ProviderError` if there is none."""
        try:
            target = self._targets.judge_target(file, name)
        except ConfigError as error:
            raise ProviderError(error.message) from error
        await self._targets.enter(target)
        meter = self._meter or judge_meter.get()
        judging = current.get() if self._rounds is not None else None
        id_ = judge_request_id(judging, name, target.policy, request) if judging is not None else ""
        if judging is not None and self._rounds is not None:
            if (reply := judging.replies.get(id_)) is not None:
                return reply
            if (batch := target.vendor_batch) is not None:
                asked = batch._replace(role="judge")
                if (reply := self._rounds.reply(judging, asked, id_, request, self._caller)) is not None:
                    return reply
        provider = target.provider if meter is None else meter.wrap(name, target.provider)
        _, got, _ = await self._caller.call(provider, target.policy, request, partial(self._retried, name))
        if isinstance(got, FailedCall):
            may_pass = got.may_pass and not self._caller.backoff(target.policy).retries  # else it was asked again
            raise ProviderError(f"the judge {got.error}" if got.failure == "timeout" else got.error, may_pass=may_pass)
        if judging is not None:
            judging.replies[id_] = got  # which is not to be paid for twice if the case waits for another judge
        return got

    def _retried(self, name: str, attempt: int, failed: FailedCall) -> None:
        what = f"judge {name}, a request of the target" if failed.is_inner else f"judge {name}"
        self._watcher.retried(what, attempt, failed.error)


class _Judge:
    """A target of an eval file that can be asked to judge."""

    def __init__(self, judges: RunJudges, file: PlannedFile, name: str):
        self._judges, self._file, self.name = judges, file, name
        self.settings: TargetSettings = file.settings[name]

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        return await self._judges.ask(self._file, self.name, request)

    def others(self) -> Mapping[str, Provider]:
        return {name: _Judge(self._judges, self._file, name) for name in self._file.settings}
