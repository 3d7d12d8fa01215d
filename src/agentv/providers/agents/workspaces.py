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
        """Provide the folder for one case; a fresh one is removed afterwards."""
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
    """Copy a folder, links as links. A copy that is cancelled removes itself when it is done."""
    is_cancelled = threading.Event()

    def copy() -> None:
        try:
            shutil.copytree(template, folder, symlinks=True, dirs_exist_ok=True)
        finally:
            if is_cancelled.is_set():
                remove_folder(folder)

    try:
        await run_in_thread(copy)
    except OSError as error:
        place, reason = _first_failure(error) if isinstance(error, shutil.Error) else (template, error.strerror)
        raise ProviderError(f"workspace_template cannot be copied: {place}: {reason}") from error
    except asyncio.CancelledError:
        is_cancelled.set()
        raise


def _first_failure(error: shutil.Error) -> tuple[str, str]:
    """Return the first file that could not be copied, and the reason."""
    source, _, reason = error.args[0][0]
    return source, reason
