"""Give each attempt at a case a fresh folder, for targets that work on files, and record their changes."""

from typing import TYPE_CHECKING

import msgspec

from agentv.evaluators.score import CaseEvaluators
from agentv.log import info
from agentv.providers.workspaces.case import CaseWorkspace, KeptWorkspaces, join_notes
from agentv.providers.workspaces.workspace import WatchedFolder
from agentv.records import EvalResult, Exchange, ProviderRequest, ProviderResponse
from agentv.run.extensions import Extension, Scope
from agentv.run.jobs import Job
from agentv.run.planning.plan import Plan
from agentv.run.targets import OpenTargets

if TYPE_CHECKING:  # the list of features imports this module
    from agentv.run.features import Opening


class CaseWorkspaces(Extension):
    """Creates the workspaces of cases."""

    runs_on = "worker"

    def __init__(self, plan: Plan, targets: OpenTargets):
        self._has_cache = targets.options.cache
        self._kept = KeptWorkspaces(plan.folder, targets.options.run_id or "run")
        self._reported: set[str] = set()
        """The targets whose calls despite the cache have been reported."""

    @classmethod
    async def join(cls, opening: "Opening") -> Extension | None:
        """Return the extension if a target of the run works in workspaces."""
        if not _has_workspaces(opening.targets):
            return None
        return cls(opening.plan, opening.targets)

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope | None:
        workspaces = job.target.workspaces
        if workspaces is None or job.request is None:
            return None
        workspace = CaseWorkspace(workspaces, self._kept)
        needs_files = bool(evaluators.workspace_users)
        if needs_files and self._has_cache:
            self._report_calls(job.target.name, evaluators)
        return _WorkspaceScope(workspace, accepts_cached=not needs_files)

    def _report_calls(self, target: str, evaluators: CaseEvaluators) -> None:
        """Report, once per target, that it is called although its answers are in the cache."""
        if target in self._reported:
            return
        self._reported.add(target)
        names = ", ".join(map(repr, evaluators.workspace_users))
        info(f"target {target!r} is called despite --cache: {names} may need the workspace files")


class _WorkspaceScope(Scope):
    """The workspace of a case. A cached answer comes without files, which some evaluators need."""

    def __init__(self, workspace: CaseWorkspace, *, accepts_cached: bool):
        self._workspace = workspace
        self._accepts_cached = accepts_cached

    def accepts(self, cached: ProviderResponse) -> bool:
        return self._accepts_cached

    async def enter(self, request: ProviderRequest) -> ProviderRequest:
        return await self._workspace.prepare(request)

    async def leave(self, result: EvalResult | None) -> EvalResult | None:
        if result is None:
            await self._workspace.discard()
            return None
        return await self._workspace.end(result)


class WorkspaceChanges(Extension):
    """Finds what targets change in their workspaces. Hooks run before it starts to watch, and after it has compared."""

    runs_on = "worker"

    @classmethod
    async def join(cls, opening: "Opening") -> Extension | None:
        """Return the extension if a target of the run works in workspaces."""
        if not _has_workspaces(opening.targets):
            return None
        return cls()

    def scope(self, job: Job, evaluators: CaseEvaluators) -> Scope | None:
        if job.target.workspaces is None or job.request is None:
            return None
        return _ChangesScope()


class _ChangesScope(Scope):
    """The changes of each attempt at a case."""

    def __init__(self) -> None:
        self._watched = WatchedFolder()

    async def enter(self, request: ProviderRequest) -> ProviderRequest:
        self._watched = WatchedFolder()
        if request.workspace is not None:
            await self._watched.watch(request.workspace)
        return request

    async def answered(self, exchange: Exchange) -> Exchange:
        response = await self._complete(exchange.response)
        return msgspec.structs.replace(exchange, response=response)

    async def failed(self, partial: ProviderResponse | None) -> ProviderResponse | None:
        if partial is None:
            return None
        return await self._complete(partial)

    async def _complete(self, response: ProviderResponse) -> ProviderResponse:
        changes = await self._watched.compare()
        if changes is None:
            return response
        return msgspec.structs.replace(
            response,
            file_changes=changes.diff,
            note=join_notes(response.note, *changes.notes),
        )

    async def leave(self, result: EvalResult | None) -> EvalResult | None:
        if result is None:
            self._watched.close()
            return None
        changes = await self._watched.compare()
        if changes is None or result.file_changes is not None:
            return result
        return msgspec.structs.replace(
            result,
            file_changes=changes.diff,
            note=join_notes(result.note, *changes.notes),
        )


def _has_workspaces(targets: OpenTargets) -> bool:
    return any(target.workspaces is not None for target in targets.open_targets)
