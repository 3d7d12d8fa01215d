"""The hooks around the attempts at one case."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentv.hooks.closing import Closing
from agentv.hooks.finish import let_finish
from agentv.hooks.levels import Level
from agentv.hooks.steps import FunctionStep, HookCall, Step
from agentv.log import warn
from agentv.processes.variables import case_variables
from agentv.providers.user_functions import copy_mapping, path_or_none
from agentv.providers.workspaces.case import join_notes
from agentv.records import EvalResult, Exchange, Problem, ProviderRequest, ProviderResponse
from agentv.run.extensions import Scope
from agentv.run.jobs import Job

STOPPED_BEFORE_SECONDS = 0.5
"""How much longer `before_each` may take when the run is stopped."""
STOPPED_AFTER_SECONDS = 1.5
"""How long all hooks after an attempt may take together when the run is stopped.

A stop takes at most 8 seconds: the target has 2 seconds to end, these hooks 1.5, those after the run 1, and a hook that
does not end has another second before it is killed.
"""


@dataclass(eq=False, kw_only=True)
class HookScope(Scope):
    """Runs hooks before and after each attempt. The hooks of the eval file enclose those of the target."""

    job: Job
    levels: Sequence[Level]
    seconds: float
    """The time limit of each command."""
    base_states: Sequence[Mapping[str, Any]]
    """What the hooks before the run returned."""
    hide: Callable[[Mapping[str, Any]], None]
    """Masks the strings of a state."""
    accepts_cached: bool
    _attempt: int = 0
    _begun: list[Level] = field(default_factory=list)
    """The levels whose `before_each` has started for this attempt."""
    _state: dict[str, Any] = field(default_factory=dict)
    _request: ProviderRequest | None = None
    """The request of the current attempt."""
    _notes: list[str] = field(default_factory=list)

    def accepts(self, cached: ProviderResponse) -> bool:
        return self.accepts_cached

    async def enter(self, request: ProviderRequest) -> ProviderRequest:
        self._attempt += 1
        self._begun = []
        self._request = request
        self._state = {}
        for state in self.base_states:
            self._state.update(copy_state(state))
        # A hook that is about to return its state can do so when the run is stopped: `after_each` may need it.
        await let_finish(self._run_before(), STOPPED_BEFORE_SECONDS)
        # A copy, so that additions of the target are not part of the state, which is masked.
        state_for_target = dict(self._state)
        self._request = msgspec.structs.replace(request, state=state_for_target)
        return self._request

    async def answered(self, exchange: Exchange) -> Exchange:
        if self._request is None:
            return exchange
        request = msgspec.structs.replace(exchange.request, state=self._request.state)
        return msgspec.structs.replace(exchange, request=request)

    async def leave(self, result: EvalResult | None) -> EvalResult | None:
        closing = Closing.of("after_each", self._begun)
        try:
            if closing.left:
                await let_finish(closing.run(self._run), STOPPED_AFTER_SECONDS)
        finally:
            for problem in closing.problems():
                self._notes.append(problem)
                warn(
                    Problem(
                        message=f"case {self.job.case.id!r}: {problem}",
                        severity="warning",
                    )
                )
        if result is None:
            return None
        note = join_notes(result.note, *self._notes)
        return msgspec.structs.replace(result, note=note)

    async def _run_before(self) -> None:
        for level in self.levels:
            self._begun.append(level)
            for step in level.steps["before_each"]:
                await self._run(level, step)

    async def _run(self, level: Level, step: Step) -> None:
        call = self._call(level)
        await step.run(call)
        if isinstance(step, FunctionStep):
            self.hide(self._state)

    def _call(self, level: Level) -> HookCall:
        case = self.job.case
        assert self._request is not None
        workspace = self._request.workspace
        folder = level.folder
        if level.target and workspace is not None:
            folder = workspace
        values = {
            "eval_id": case.id,
            "vars": copy_mapping(case.vars),
            "metadata": copy_mapping(case.metadata),
            "trial": self.job.trial,
            "attempt": self._attempt,
            "workspace_path": path_or_none(workspace),
            "case": case,
        }
        eval_folder = case.file.path.parent.absolute()
        variables = case_variables(case.id, eval_folder, workspace)
        return HookCall(
            values=values,
            state=self._state,
            folder=folder,
            environment={**level.environment, **variables},
            seconds=self.seconds,
        )


def copy_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of a state. A value that cannot be copied, such as a connection, is shared."""
    copied = {}
    for name, value in state.items():
        try:
            copied[name] = copy.deepcopy(value)
        except Exception:
            copied[name] = value
    return copied
