"""Run hooks around a run and around the attempts at its cases."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agentv.errors import ConfigError, ProviderError
from agentv.evaluators.score import CaseEvaluators
from agentv.hooks.attempt import HookScope
from agentv.hooks.closing import Closing
from agentv.hooks.finish import let_finish
from agentv.hooks.levels import Level, LevelSource, secrets_of
from agentv.hooks.plan_levels import PlanLevels
from agentv.hooks.steps import HookCall, Step
from agentv.log import info, warn
from agentv.placeholders import STATE
from agentv.records import Problem
from agentv.redact import HeldSecrets, clean
from agentv.run.extensions import Extension, Scope
from agentv.run.jobs import Job
from agentv.run.planning.plan import PlannedFile
from agentv.run.run import Run

if TYPE_CHECKING:  # the list of features imports this module
    from agentv.run.features import Opening

STOPPED_SECONDS = 1.0
"""How long all hooks after the run may take together when it was stopped."""
YIELD_AFTER = 100
"""The number of cases to examine before other tasks get a turn."""


class RunHooks(Extension):
    """Runs the hooks of eval files and targets.

    On a cluster, there is one on the driver, for the hooks of the run, and one on each worker, for those of attempts.
    """

    def __init__(self, opening: "Opening"):
        self._plan = opening.plan
        self._targets = opening.targets
        self._levels = PlanLevels(opening.plan, opening.targets)
        options = opening.options
        self._is_worker = options is None
        """Whether the hooks of the run are run by another process."""
        self._is_driver = options is not None and options.cluster is not None
        """Whether the cases are run by other processes."""
        self._begun: list[Level] = []
        """The levels whose `after_all` is to run, because their `before_all` has started."""
        self._states: dict[LevelSource, dict[str, Any]] = {}
        """What each `before_all` that has started returned."""
        self._is_stopped = False
        self._held: WeakKeyDictionary[asyncio.Task[Any], list[HeldSecrets]] = WeakKeyDictionary()
        """The strings that are masked for the last case of each worker."""
        self._reported: set[str] = set()
        """The targets whose calls despite the cache have been reported."""

    @classmethod
    async def join(cls, opening: "Opening") -> Extension | None:
        """Return the extension. Raise `ConfigError` if a hook cannot be used."""
        hooks = cls(opening)
        if opening.targets.options.cache:
            hooks._check_cache()
        if not hooks._is_worker:
            opening.stack.push_async_callback(hooks._run_after_all)
        return hooks

    def _check_cache(self) -> None:
        """Raise `ConfigError` if cached answers could depend on another state."""
        for file in self._plan.files:
            for planned in file.targets.values():
                if STATE not in planned.uses:
                    continue
                levels = self._levels.of_target(file, planned)
                if _return_state(levels):
                    raise ConfigError(
                        f"--cache: target {planned.name!r} uses 'state', which is not part of cache keys",
                        hint="run without --cache: the hooks may return a different state for each attempt",
                    )

    # ---- around the run ----

    async def prepare(self, run: Run) -> None:
        """Run the hooks before the run, of the files and targets that have a case to send."""
        if self._is_worker:
            return
        for file in self._plan.files:
            levels = self._levels_to_begin(file)
            if levels:
                await self._begin(levels, file, run)

    def _levels_to_begin(self, file: PlannedFile) -> set[Level]:
        """Return the levels of a file with hooks for the run that have not started."""
        found = set()
        for planned in file.targets.values():
            for level in self._levels.of_target(file, planned):
                if level.runs_once and level.source not in self._states:
                    found.add(level)
        return found

    async def _begin(self, levels: set[Level], file: PlannedFile, run: Run) -> None:
        """Run the hooks of levels of a file, each when the first case that needs it is found."""
        jobs = run.jobs.jobs(file, file.targets.values())
        for number, job in enumerate(jobs):
            if number % YIELD_AFTER == 0:
                await asyncio.sleep(0)
            if not self._is_sent(run, job):
                continue
            for level in self._levels.of_job(job):
                if level in levels:
                    levels.remove(level)
                    await self._run_before_all(level)
            if not levels:
                return

    async def _run_before_all(self, level: Level) -> None:
        if level.source in self._states:
            return
        self._begun.append(level)
        state: dict[str, Any] = {}
        self._states[level.source] = state
        try:
            # The rest of the run has not started, so a stop waits briefly for this hook.
            await let_finish(self._run_steps("before_all", level), STOPPED_SECONDS)
        except ProviderError as error:
            raise level.error("before_all", error.message, "no case was run") from error
        finally:
            secrets = secrets_of(state)
            clean.learn(secrets)
        if self._is_driver and state:
            warn(
                Problem(
                    message="cases do not get the state that before_all returned: it is not sent to a cluster",
                    severity="warning",
                    hint="return what they need from before_each, which runs on the workers",
                )
            )

    async def _run_steps(self, name: str, level: Level) -> None:
        for step in level.steps[name]:
            await self._run_step(level, step)

    async def _run_step(self, level: Level, step: Step) -> None:
        call = HookCall(
            values={},
            state=self._states[level.source],
            folder=level.folder,
            environment=level.environment,
            seconds=self._targets.caller.default_seconds,
        )
        await step.run(call)

    async def end(self, run: Run) -> None:
        await self._run_after_all()

    def interrupted(self) -> None:
        self._is_stopped = True

    async def _run_after_all(self) -> None:
        """Run the hooks after the run, if they have not run yet. Called again when the run is closed."""
        closing = Closing.of("after_all", self._begun)
        self._begun = []
        if not closing.left:
            return
        try:
            await let_finish(
                closing.run(self._run_step),
                STOPPED_SECONDS,
                is_limited=self._is_stopped,
            )
        finally:
            for problem in closing.problems():
                warn(Problem(message=problem, severity="warning"))

    # ---- around attempts ----

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope | None:
        if self._is_driver or job.request is None or job.batch is not None:
            return None
        levels = self._levels.of_job(job)
        if not levels:
            return None
        base_states = []
        for level in levels:
            state = self._states.get(level.source)
            if state:
                base_states.append(state)
        needs_state = _needs_state(levels, evaluators)
        if needs_state and self._targets.options.cache:
            self._report_calls(job.target.name, evaluators)
        held = self._new_held()
        return HookScope(
            job=job,
            levels=levels,
            seconds=self._targets.caller.seconds(job.target.policy),
            base_states=base_states,
            hide=partial(_hold, held),
            accepts_cached=not needs_state,
        )

    def _new_held(self) -> list[HeldSecrets]:
        """Return the list of masked strings for the case that the current worker starts.

        The strings of its previous case are no longer masked, because the result of that case is written.
        """
        worker = asyncio.current_task()
        assert worker is not None
        for secrets in self._held.get(worker, ()):
            clean.release(secrets)
        held: list[HeldSecrets] = []
        self._held[worker] = held
        return held

    def _report_calls(self, target: str, evaluators: CaseEvaluators) -> None:
        """Report, once per target, that it is called although its answers are in the cache."""
        if target in self._reported:
            return
        self._reported.add(target)
        names = ", ".join(map(repr, evaluators.state_users))
        info(f"target {target!r} is called despite --cache: {names} may need the state that hooks return")

    def _is_sent(self, run: Run, job: Job) -> bool:
        """Return whether the target is called for a job."""
        target = job.target
        if target.settings is not None and target.settings.answers_at_once:
            return True
        if job.request is None or run.is_known(job):
            return False
        if not run.targets.caller.is_cached(target.policy, job.request):
            return True
        evaluators = run.evaluators.build(job.case, job.planned.name)
        if target.workspaces is not None and evaluators.workspace_users:
            return True
        levels = self._levels.of_job(job)
        return _needs_state(levels, evaluators)


def _return_state(levels: Sequence[Level]) -> bool:
    """Return whether hooks before an attempt may add to its state."""
    return any(level.returns_state for level in levels)


def _needs_state(levels: Sequence[Level], evaluators: CaseEvaluators) -> bool:
    """Return whether an evaluator may need what hooks return, which is not in the cache."""
    if not evaluators.state_users:
        return False
    return _return_state(levels)


def _hold(held: list[HeldSecrets], state: Mapping[str, Any]) -> None:
    """Mask the strings of a state until `held` is released."""
    secrets = secrets_of(state)
    held.append(clean.hold(secrets))
