"""The workspaces of one case: a fresh one for each attempt. The last one exists until its answer is scored."""

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
"""How long a hook may take while the run is being stopped."""
MAX_SAME_NAMES = 10_000


class KeptPlace(NamedTuple):
    """Where the workspaces of a run are kept."""

    base: Path
    """The folder in which the run was started."""
    run_id: str

    @property
    def path(self) -> Path:
        return self.base / KEPT / self.run_id


class CaseWorkspace:
    """Prepares and disposes of the workspace of each attempt at a case, see `calls.caller.Preparation`.

    It is a context manager: a workspace that is left at the end is removed.
    """

    def __init__(
        self,
        workspaces: Workspaces,
        request: ProviderRequest,
        seconds: float,
        place: KeptPlace,
    ):
        """Limit each hook to `seconds`."""
        self._workspaces = workspaces
        self._request = request
        self._seconds = seconds
        self._place = place
        self._current: Workspace | None = None
        self._notes: list[str] = []
        self.takes_cached = True

    def takes(self, cached: ProviderResponse) -> bool:
        """Return whether a cached answer can be used, although it comes without files."""
        return self.takes_cached

    @property
    def path(self) -> Path | None:
        """The folder of the last attempt, if there was one."""
        if self._current is None:
            return None
        return self._current.path

    async def prepare(self, request: ProviderRequest) -> ProviderRequest:
        """Return the request with a fresh folder. Raise `ProviderError` if it cannot be created."""
        await self._dispose(None)
        self._current = self._workspaces.new(request.eval_id, self._seconds)
        path = await self._current.make()
        await self._current.watch()
        return msgspec.structs.replace(request, workspace=path)

    async def complete(self, response: ProviderResponse) -> ProviderResponse:
        """Return the response with the changes that the agent made."""
        if self._current is None:
            return response
        changes = await self._current.compare()
        if changes is None:
            return response
        return msgspec.structs.replace(
            response,
            file_changes=changes.diff,
            note=_join_notes(response.note, *changes.notes),
        )

    async def end(self, result: EvalResult) -> EvalResult:
        """Remove or keep the workspace, and return the result with what is known of it. Never raises."""
        current = self._current
        if current is None or current.path is None:
            return msgspec.structs.replace(result, note=_join_notes(result.note, *self._notes))
        changes = await current.compare()
        file_changes = result.file_changes
        notes: tuple[str, ...] = ()
        if file_changes is None and changes is not None:
            file_changes = changes.diff
            notes = changes.notes
        kept_path = await self._dispose(self._kept_name(result))
        return msgspec.structs.replace(
            result,
            file_changes=file_changes,
            workspace_path=kept_path,
            note=_join_notes(result.note, *notes, *self._notes),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        seconds = None
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            seconds = INTERRUPTED_SECONDS
        await self._dispose(None, seconds)

    async def _dispose(self, name: str | None, seconds: float | None = None) -> str | None:
        """Run the hooks of the last workspace, then remove it, or keep it under a name and return its path."""
        workspace = self._current
        self._current = None
        if workspace is None:
            return None
        try:
            for problem in await workspace.run_after_hooks(seconds):
                self._notes.append(problem)
                warn(Problem(message=f"case {self._request.eval_id!r}: {problem}", severity="warning"))
            if name is not None and workspace.path is not None:
                return await self._keep(workspace.path, name)
        finally:
            await workspace.remove()
        return None

    def _kept_name(self, result: EvalResult) -> str | None:
        """Return the name under which the workspace is kept, or None if it is to be removed."""
        rule = self._workspaces.keep
        is_kept = rule == "always" or (rule == "failed" and result.verdict != "pass")
        if not is_kept:
            return None
        name = clean_name(result.eval_id, clean)
        if result.trial is not None:
            return f"{name}-trial-{result.trial}"
        return name

    async def _keep(self, path: Path, name: str) -> str | None:
        """Move a workspace to where it is kept and return its path, relative to the folder of the run."""
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
    for number in range(1, MAX_SAME_NAMES):
        kept = folder / name
        if number > 1:
            kept = folder / f"{name}-{number}"
        try:
            if os.path.lexists(kept):
                continue
            os.rename(source, kept)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another case has taken the name meanwhile
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
