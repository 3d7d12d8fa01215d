"""A template -> the folder that one attempt at a case works in, from its making to its removal."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
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
    """The commands that are run in a workspace before the agent starts, and after its answer is scored."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Workspaces:
    """Where a target works: in one folder for all cases, or in a fresh one for each attempt at a case."""

    def __init__(  # noqa: PLR0913  # a workspace has so many settings
        self,
        eval_folder: Path,
        environment: Mapping[bytes, bytes],
        *,
        cwd: Path | None = None,
        template: Path | None = None,
        hooks: Hooks = Hooks(),  # noqa: B008  # a value
        keep: KeepRule = "never",
    ):
        self._eval_folder, self._cwd, self.template = eval_folder, cwd, template
        self.environment, self.hooks, self.keep = environment, hooks, keep

    @property
    def are_fresh(self) -> bool:
        return self._cwd is None

    @asynccontextmanager
    async def folder(self, request: ProviderRequest) -> AsyncIterator[Path]:
        """Provide the folder for a request: the one that it comes with, else one that is removed afterwards."""
        if (folder := request.workspace or self._cwd) is not None:
            yield folder
            return
        workspace = self.new(request.eval_id, HOOK_SECONDS)
        try:
            yield await workspace.make()
        finally:
            await workspace.run_after_hooks()
            await workspace.remove()

    def new(self, eval_id: str, seconds: float) -> "Workspace":
        """Return a workspace, which is yet to be made; each of its hooks may take so many seconds."""
        return Workspace(self, eval_id, seconds)

    def variables(self, eval_id: str, workspace: Path) -> dict[bytes, bytes]:
        """Return the environment of what runs in a workspace."""
        return {**self.environment, **case_variables(eval_id, self._eval_folder, workspace)}


class Workspace:
    """One fresh folder: a copy of the template, or empty."""

    def __init__(self, workspaces: Workspaces, eval_id: str, seconds: float):
        self._workspaces, self._eval_id, self._seconds = workspaces, eval_id, seconds
        self.path: Path | None = None
        self._is_copied = False
        self._before: Snapshot | None = None
        self.changes: FileChanges | None = None
        """What the agent changed, once `compare` was called."""

    async def make(self) -> Path:
        """Make the folder and run the hooks; raise `ProviderError` if that fails."""
        try:
            self.path = make_folder()
        except OSError as error:
            raise ProviderError(f"no folder to work in can be made: {error.strerror}") from error
        if (template := self._workspaces.template) is not None:
            await _copy(template, self.path)
        self._is_copied = True
        for number, command in enumerate(self._workspaces.hooks.before):
            if problem := await self._run_hook("before_each", number, command, self._seconds):
                raise ProviderError(problem)
        return self.path

    async def watch(self) -> None:
        """Remember what is in the folder, for `compare`."""
        if self.path is not None:
            try:
                before = Snapshot(os.fsencode(self.path))
                await run_in_thread(before.take)
                self._before = before
            except OSError as error:  # no room for temporary files, say
                self.changes = FileChanges("", (f"file_changes: not told: {error.strerror or error}",))

    async def compare(self) -> FileChanges | None:
        """Return what has changed since `watch`, or since the first call of this function, which counts."""
        if self.changes is None and self._before is not None:
            before, self._before = self._before, None
            try:
                self.changes = await run_in_thread(lambda: find_changes(before))
            except Exception as error:  # it must not cost the answer
                self.changes = FileChanges("", (f"file_changes: not told: {type(error).__name__}: {error}",))
            finally:
                before.close()
        return self.changes

    async def run_after_hooks(self, seconds: float | None = None) -> list[str]:
        """Run what is to be run at the end; return what went wrong. Nothing is run where nothing could have begun."""
        if self.path is None or not self._is_copied:
            return []
        limit = self._seconds if seconds is None else min(seconds, self._seconds)
        problems = []
        for number, command in enumerate(self._workspaces.hooks.after):
            if problem := await self._run_hook("after_each", number, command, limit):
                problems.append(problem)
        return problems

    async def _run_hook(self, name: str, number: int, command: str, seconds: float) -> str:
        """Run a hook; return what went wrong, if anything."""
        assert self.path is not None
        variables = self._workspaces.variables(self._eval_id, self.path)
        several = len(getattr(self._workspaces.hooks, name.partition("_")[0])) > 1
        shown = f"{name}{f'[{number}]' if several else ''} {shorten(clean(command), SHOWN_COMMAND)!r}"
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
        return f"{shown} {describe_exit(finished.code)}{output_tail(finished)}" if finished.code else ""

    async def remove(self) -> None:
        """Remove the folder."""
        if self._before is not None:
            self._before.close()
            self._before = None
        if (path := self.path) is not None:
            self.path = None
            await run_in_thread(lambda: remove_folder(path))


async def _copy(template: Path, folder: Path) -> None:
    """Copy a folder. A copy that is cancelled removes itself when it is done."""
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
        reason = f"{template}: {error.strerror}" if error.strerror else str(error)
        raise ProviderError(f"workspace_template cannot be copied: {reason}") from error
    except asyncio.CancelledError:
        is_cancelled.set()
        raise
