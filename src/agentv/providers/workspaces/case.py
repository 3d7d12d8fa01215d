"""The workspaces of one case: a fresh one for each attempt; the last lives until its answer is scored."""

import asyncio
import errno
import os
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from agentv.notices import warn
from agentv.providers.workspaces.workspace import Workspace, Workspaces
from agentv.records import EvalResult, Problem, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.system.dumps import clean_name
from agentv.system.temporary import keep_folder, make_folder
from agentv.system.threads import run_in_thread
from agentv.system.trees import copy_if_plain, copy_tree

KEPT = Path(".agentv/workspaces")
INTERRUPTED_SECONDS = 10.0
"""How long a hook may take when the run is being stopped."""


class KeptPlace(NamedTuple):
    """Where the workspaces of a run go that are kept."""

    base: Path
    """The folder that the run was started in."""
    run_id: str

    @property
    def path(self) -> Path:
        return self.base / KEPT / self.run_id


class CaseWorkspace:
    """What is done around each attempt at a case: see `calls.caller.Preparation`.

    It is a context manager; what is left at its end is removed.
    """

    def __init__(self, workspaces: Workspaces, request: ProviderRequest, seconds: float, place: "KeptPlace"):
        """`seconds` limits each hook."""
        self._workspaces, self._request, self._seconds, self._place = workspaces, request, seconds, place
        self._current: Workspace | None = None
        self._notes: list[str] = []
        self.takes_cached = True

    def takes(self, cached: ProviderResponse) -> bool:
        """Return whether an answer of the cache will do, though there are no files with it."""
        return self.takes_cached

    @property
    def path(self) -> Path | None:
        """The folder of the last attempt, if there was one."""
        return self._current.path if self._current is not None else None

    async def prepare(self, request: ProviderRequest) -> ProviderRequest:
        """Return the request with a fresh folder; raise `ProviderError` if there can be none."""
        await self._dispose(None)
        self._current = self._workspaces.new(request.eval_id, self._seconds)
        path = await self._current.make()
        await self._current.watch()
        return msgspec.structs.replace(request, workspace=path)

    async def complete(self, response: ProviderResponse) -> ProviderResponse:
        """Return the response with what the agent changed."""
        changes = await self._current.compare() if self._current is not None else None
        if changes is None:
            return response
        return msgspec.structs.replace(
            response, file_changes=changes.diff, note=_join_notes(response.note, *changes.notes)
        )

    async def end(self, result: EvalResult) -> EvalResult:
        """Return the result with what is known of its workspace, once that is removed or kept. It raises nothing."""
        current = self._current
        if current is None or current.path is None:
            return msgspec.structs.replace(result, note=_join_notes(result.note, *self._notes))
        changes, is_told = await current.compare(), result.file_changes is not None
        notes = [] if is_told or changes is None else list(changes.notes)
        file_changes = result.file_changes if is_told or changes is None else changes.diff
        is_kept = self._workspaces.keep == "always" or (self._workspaces.keep == "failed" and result.verdict != "pass")
        kept = await self._dispose(self._name(result) if is_kept else None)
        return msgspec.structs.replace(
            result,
            file_changes=file_changes,
            workspace_path=kept,
            note=_join_notes(result.note, *notes, *self._notes),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_stopped = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._dispose(None, INTERRUPTED_SECONDS if is_stopped else None)

    async def _dispose(self, name: str | None, seconds: float | None = None) -> str | None:
        """Run the hooks of the last workspace, and remove it, or keep it under a name and return its path."""
        workspace, self._current = self._current, None
        if workspace is None:
            return None
        try:
            for problem in await workspace.run_after_hooks(seconds):
                self._notes.append(problem)
                warn(Problem(message=f"case {self._request.eval_id!r}: {problem}", severity="warning"))
            if name is not None and (path := workspace.path) is not None:
                return await self._keep(path, name)
        finally:
            await workspace.remove()
        return None

    def _name(self, result: EvalResult) -> str:
        trial = f"-trial-{result.trial}" if result.trial is not None else ""
        return f"{clean_name(result.eval_id, clean)}{trial}"

    async def _keep(self, path: Path, name: str) -> str | None:
        """Move a workspace to where it is kept, and return its path there, from the folder of the run."""
        try:
            kept: Path = await run_in_thread(lambda: _move(path, self._place.path, name))
        except OSError as error:
            reason = error.strerror or error
            self._notes.append(f"the workspace could not be kept in {self._place.path}: {reason}")
            return None
        return kept.relative_to(self._place.base).as_posix()


def _move(path: Path, folder: Path, name: str) -> Path:
    """Move a temporary folder into another, under a name that is free there, and return its new path."""
    folder.mkdir(parents=True, exist_ok=True)
    source = path
    for number in range(1, 10_000):
        kept = folder / (name if number == 1 else f"{name}-{number}")
        try:
            if os.path.lexists(kept):
                continue
            os.rename(source, kept)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                continue
            if error.errno != errno.EXDEV or source is not path:
                raise
            source = _copy_beside(path, folder)
            os.rename(source, kept)
        keep_folder(source)
        return kept
    raise OSError(errno.EEXIST, "all names are taken")


def _copy_beside(path: Path, folder: Path) -> Path:
    """Copy a folder to a temporary one in `folder`, which is on another file system."""
    copy = make_folder(folder)
    copy_tree(path, copy, copy_if_plain)
    return copy


def _join_notes(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None
