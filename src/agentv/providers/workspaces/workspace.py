"""The folder in which one attempt at a case works, from its creation to its removal."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from agentv.errors import ProviderError
from agentv.processes.command import describe_exit, output_tail, run_program, shell_in, shorten
from agentv.processes.variables import case_variables
from agentv.providers.workspaces.file_changes import FileChanges, find_changes
from agentv.providers.workspaces.snapshot import Snapshot
from agentv.records import ProviderRequest
from agentv.redact import clean
from agentv.system.temporary import make_folder, remove_folder
from agentv.system.threads import run_in_thread
from agentv.system.trees import copy_tree

HOOK_SECONDS = 600.0
SHOWN_COMMAND = 100
KeepRule = Literal["always", "failed", "never"]


class Hooks(NamedTuple):
    """The commands that are run in a workspace before the agent starts and after its answer is scored."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Workspaces:
    """Where a target works: in one folder for all cases, or in a fresh one for each attempt at a case."""

    eval_folder: Path
    environment: Mapping[bytes, bytes]
    cwd: Path | None
    """The folder for all cases. None if each attempt has a fresh one."""
    template: Path | None
    hooks: Hooks
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
        workspace = self.new(request.eval_id, HOOK_SECONDS)
        try:
            yield await workspace.make()
        finally:
            await workspace.run_after_hooks()
            await workspace.remove()

    def new(self, eval_id: str, seconds: float) -> "Workspace":
        """Return a workspace that has no folder yet. Each of its hooks may take `seconds`."""
        return Workspace(self, eval_id, seconds)

    def variables(self, eval_id: str, workspace: Path) -> dict[bytes, bytes]:
        """Return the environment of the programs that run in a workspace."""
        return {**self.environment, **case_variables(eval_id, self.eval_folder, workspace)}


class Workspace:
    """A fresh folder: a copy of the template, or an empty folder."""

    def __init__(self, workspaces: Workspaces, eval_id: str, seconds: float):
        self._workspaces = workspaces
        self._eval_id = eval_id
        self._seconds = seconds
        self.path: Path | None = None
        self._is_copied = False
        self._before: Snapshot | None = None
        self.changes: FileChanges | None = None
        """What the agent changed, once `compare` was called."""

    async def make(self) -> Path:
        """Create the folder and run the hooks. Raise `ProviderError` if that fails."""
        try:
            self.path = make_folder()
        except OSError as error:
            raise ProviderError(f"no folder to work in can be made: {error.strerror}") from error
        template = self._workspaces.template
        if template is not None:
            await _copy(template, self.path)
        self._is_copied = True
        for number, command in enumerate(self._workspaces.hooks.before):
            problem = await self._run_hook("before_each", number, command, self._seconds)
            if problem:
                raise ProviderError(problem)
        return self.path

    async def watch(self) -> None:
        """Take a snapshot of the folder for `compare`."""
        if self.path is None:
            return
        try:
            before = Snapshot(os.fsencode(self.path))
            await run_in_thread(before.take)
            self._before = before
        except OSError as error:  # for example, no space for temporary files
            self.changes = _unknown_changes(error.strerror or str(error))

    async def compare(self) -> FileChanges | None:
        """Return what has changed between `watch` and the first call of this method."""
        if self.changes is not None or self._before is None:
            return self.changes
        before = self._before
        self._before = None
        try:
            self.changes = await run_in_thread(lambda: find_changes(before))
        except Exception as error:  # a failure here must not lose the answer
            self.changes = _unknown_changes(f"{type(error).__name__}: {error}")
        finally:
            before.close()
        return self.changes

    async def run_after_hooks(self, seconds: float | None = None) -> list[str]:
        """Run the hooks after a case and return what went wrong. Do nothing if the hooks before it never ran."""
        if self.path is None or not self._is_copied:
            return []
        limit = self._seconds
        if seconds is not None:
            limit = min(seconds, limit)
        problems = []
        for number, command in enumerate(self._workspaces.hooks.after):
            problem = await self._run_hook("after_each", number, command, limit)
            if problem:
                problems.append(problem)
        return problems

    async def _run_hook(self, name: str, number: int, command: str, seconds: float) -> str:
        """Run a hook and return what went wrong, or ""."""
        assert self.path is not None
        variables = self._workspaces.variables(self._eval_id, self.path)
        shown = self._describe_hook(name, number, command)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                finished = await run_program(shell_in(self.path, command), variables)
        except TimeoutError:
            if not limit.expired():
                raise
            return f"{shown} did not end within {seconds:g} s"
        except ProviderError as error:
            return f"{shown}: {error.message}"
        if finished.code:
            return f"{shown} {describe_exit(finished.code)}{output_tail(finished)}"
        return ""

    def _describe_hook(self, name: str, number: int, command: str) -> str:
        """Return the name of a hook, with its number if there are several, and its command."""
        hooks = self._workspaces.hooks
        commands = hooks.before if name == "before_each" else hooks.after
        shown_command = shorten(clean(command), SHOWN_COMMAND)
        if len(commands) > 1:
            return f"{name}[{number}] {shown_command!r}"
        return f"{name} {shown_command!r}"

    async def remove(self) -> None:
        """Remove the folder."""
        if self._before is not None:
            self._before.close()
            self._before = None
        path = self.path
        if path is not None:
            self.path = None
            await run_in_thread(lambda: remove_folder(path))


def _unknown_changes(reason: str) -> FileChanges:
    return FileChanges("", (f"file_changes: not told: {reason}",))


async def _copy(template: Path, folder: Path) -> None:
    """Copy the template into a folder. Raise `ProviderError` if that fails.

    A thread cannot be cancelled: if the call is, the copy continues, and removes itself when it is done.
    """
    if folder.resolve().is_relative_to(template.resolve()):
        raise ProviderError(
            f"workspace_template cannot be copied: {template} holds the folder for temporary files, {folder.parent}"
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
