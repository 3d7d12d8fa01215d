"""The settings of a coding agent -> the folder that it works in for one case."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agentv.errors import ProviderError
from agentv.system.temporary import make_folder, remove_folder
from agentv.system.threads import run_in_thread


class Workspaces:
    """One folder for all cases, or a fresh one for each: a copy of a template, or empty."""

    def __init__(self, cwd: Path | None, template: Path | None):
        self._cwd, self._template = cwd, template

    @property
    def are_fresh(self) -> bool:
        return self._cwd is None

    @asynccontextmanager
    async def new(self) -> AsyncIterator[Path]:
        """The folder for one case. A fresh one is removed afterwards."""
        if self._cwd is not None:
            yield self._cwd
            return
        try:
            folder = make_folder()
        except OSError as error:
            raise ProviderError(f"no folder to work in can be made: {error.strerror}") from error
        try:
            if self._template is not None:
                await _copy(self._template, folder)
            yield folder
        finally:
            await run_in_thread(lambda: remove_folder(folder))


async def _copy(template: Path, folder: Path) -> None:
    """Copy a folder, links as links. A copy that nobody waits for any more removes itself."""
    is_given_up = threading.Event()

    def copy() -> None:
        try:
            shutil.copytree(template, folder, symlinks=True, dirs_exist_ok=True)
        finally:
            if is_given_up.is_set():
                remove_folder(folder)

    try:
        await run_in_thread(copy)
    except OSError as error:
        place, reason = _first(error) if isinstance(error, shutil.Error) else (template, error.strerror)
        raise ProviderError(f"workspace_template cannot be copied: {place}: {reason}") from error
    except asyncio.CancelledError:
        is_given_up.set()
        raise


def _first(error: shutil.Error) -> tuple[str, str]:
    """The first file that could not be copied, and why."""
    source, _, reason = error.args[0][0]
    return source, reason
