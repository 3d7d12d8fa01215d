"""The workspaces of one case: a fresh one for each attempt. The last one exists until its answer is scored."""

import errno
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.files.dumps import clean_name
from agentv.files.state import state_folder
from agentv.files.temporary import keep_folder, make_folder
from agentv.files.trees import copy_if_plain, copy_tree
from agentv.processes.threads import run_in_thread
from agentv.providers.workspaces.workspace import Workspace, Workspaces
from agentv.records import EvalResult, ProviderRequest
from agentv.redact import clean

MAX_SAME_NAMES = 10_000


class KeptWorkspaces(NamedTuple):
    """The folder for the workspaces that a run keeps."""

    base: Path
    """The folder in which the run was started."""
    run_id: str

    @property
    def path(self) -> Path:
        return self.base / state_folder("workspaces") / self.run_id


class CaseWorkspace:
    """Prepares and disposes of the workspace of each attempt at a case."""

    def __init__(self, workspaces: Workspaces, place: KeptWorkspaces):
        self._workspaces = workspaces
        self._place = place
        self._current: Workspace | None = None
        self._notes: list[str] = []

    async def prepare(self, request: ProviderRequest) -> ProviderRequest:
        """Return the request with a fresh folder. Raise `ProviderError` if it cannot be created."""
        self._current = Workspace(self._workspaces.template)
        path = await self._current.make()
        return msgspec.structs.replace(request, workspace=path)

    async def end(self, result: EvalResult) -> EvalResult:
        """Remove or keep the workspace, and return the result with the kept path and notes. Never raises."""
        kept_path = await self._dispose(self._kept_name(result))
        return msgspec.structs.replace(
            result,
            workspace_path=kept_path or result.workspace_path,
            note=join_notes(result.note, *self._notes),
        )

    async def discard(self) -> None:
        """Remove the workspace of an attempt that is repeated or cancelled."""
        await self._dispose(None)

    async def _dispose(self, name: str | None) -> str | None:
        """Remove the last workspace, or keep it under a name and return its path."""
        workspace = self._current
        self._current = None
        if workspace is None:
            return None
        try:
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
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another case has taken the name in the meantime
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


def join_notes(*notes: str | None) -> str | None:
    """Return notes for the reader of a result as one; None if there are none."""
    return "; ".join(note for note in notes if note) or None
