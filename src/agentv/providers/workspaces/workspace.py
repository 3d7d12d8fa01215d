"""The folder in which one attempt at a case works, from its creation to its removal."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentv.errors import MachineError, ProviderError
from agentv.files.temporary import make_folder, remove_folder
from agentv.files.trees import copy_tree
from agentv.processes.threads import run_in_thread
from agentv.processes.variables import case_variables
from agentv.providers.hook_commands import HookCommand
from agentv.providers.workspaces.file_changes import FileChanges, find_changes
from agentv.providers.workspaces.snapshot import Snapshot
from agentv.records import ProviderRequest

HOOK_SECONDS = 600.0
KeepRule = Literal["always", "failed", "never"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Workspaces:
    """Where a target works: in one folder for all cases, or in a fresh one for each attempt at a case."""

    eval_folder: Path
    environment: Mapping[bytes, bytes]
    cwd: Path | None
    """The folder for all cases. None if each attempt has a fresh one."""
    template: Path | None
    before_each: tuple[HookCommand, ...]
    """The commands that prepare the workspace of a call as a judge. Those of cases are run by the run itself."""
    after_each: tuple[HookCommand, ...]
    keep: KeepRule

    @property
    def are_fresh(self) -> bool:
        return self.cwd is None

    @asynccontextmanager
    async def folder(self, request: ProviderRequest) -> AsyncIterator[Path]:
        """Provide the folder for a request: the one that it names, `cwd`, or one that is removed afterwards."""
        folder = request.workspace or self.cwd
        if folder is not None:
            yield folder
            return
        workspace = Workspace(self.template)
        try:
            path = await workspace.make()
            async with self._hooks(request.eval_id, path):
                yield path
        finally:
            await workspace.remove()

    @asynccontextmanager
    async def _hooks(self, eval_id: str, workspace: Path) -> AsyncIterator[None]:
        """Run the `before_each` and `after_each` commands around a call. Failures after it are ignored."""
        variables = self.variables(eval_id, workspace)
        try:
            for command in self.before_each:
                await command.run(workspace, variables, HOOK_SECONDS)
            yield
        finally:
            for command in self.after_each:
                with suppress(ProviderError):
                    await command.run(workspace, variables, HOOK_SECONDS)

    def variables(self, eval_id: str, workspace: Path) -> dict[bytes, bytes]:
        """Return the environment of the programs that run in a workspace."""
        return {**self.environment, **case_variables(eval_id, self.eval_folder, workspace)}


class Workspace:
    """A fresh folder: a copy of the template, or an empty folder."""

    def __init__(self, template: Path | None):
        self._template = template
        self.path: Path | None = None

    async def make(self) -> Path:
        """Create the folder. Raise `ProviderError` if that fails."""
        try:
            self.path = make_folder()
        except OSError as error:
            raise ProviderError(f"the workspace folder cannot be created: {error.strerror}") from error
        if self._template is not None:
            await _copy(self._template, self.path)
        return self.path

    async def remove(self) -> None:
        """Remove the folder."""
        path = self.path
        if path is not None:
            self.path = None
            try:
                await run_in_thread(lambda: remove_folder(path))
            except MachineError:
                remove_folder(path)  # no thread can be started


class WatchedFolder:
    """What changes in a folder from now on."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._changes: FileChanges | None = None

    async def watch(self, folder: Path) -> None:
        """Take a snapshot of the folder for `compare`."""
        try:
            before = Snapshot(os.fsencode(folder))
            await run_in_thread(before.take)
            self._before = before
        except OSError as error:  # for example, no space for temporary files
            self._changes = _unknown_changes(error.strerror or str(error))

    async def compare(self) -> FileChanges | None:
        """Return the changes between `watch` and the first call of this method, or None if nothing was watched."""
        if self._changes is not None or self._before is None:
            return self._changes
        before = self._before
        self._before = None
        try:
            self._changes = await run_in_thread(lambda: find_changes(before))
        except Exception as error:  # a failure here must not lose the answer
            self._changes = _unknown_changes(f"{type(error).__name__}: {error}")
        finally:
            before.close()
        return self._changes

    def close(self) -> None:
        """Forget the snapshot."""
        if self._before is not None:
            self._before.close()
            self._before = None


def _unknown_changes(reason: str) -> FileChanges:
    return FileChanges("", (f"file_changes: unknown: {reason}",))


async def _copy(template: Path, folder: Path) -> None:
    """Copy the template into a folder. Raise `ProviderError` if that fails.

    A thread cannot be cancelled: if the call is, the copy continues, and removes itself when it is done.
    """
    if folder.resolve().is_relative_to(template.resolve()):
        raise ProviderError(
            f"workspace_template cannot be copied: {template} contains the folder for temporary files, {folder.parent}"
        )
    is_cancelled = threading.Event()

    def copy() -> None:
        try:
            copy_tree(template, folder)
        finally:
            if is_cancelled.is_set():
                remove_folder(folder)

    try:
        await run_in_thread(copy)
    except OSError as error:
        reason = str(error)
        if error.strerror:
            reason = f"{template}: {error.strerror}"
        raise ProviderError(f"workspace_template cannot be copied: {reason}") from error
    except asyncio.CancelledError:
        is_cancelled.set()
        raise
