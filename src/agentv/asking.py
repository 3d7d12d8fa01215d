"""A call of a provider -> what it gave, or why it gave nothing, however often it had to be made."""

import asyncio
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from agentv.dumps import safe_name
from agentv.errors import ProviderError
from agentv.notices import say
from agentv.outcomes import Failed

T = TypeVar("T")
BATCHES = Path(".agentv/batches")
OUTPUT = "output.jsonl"
MISSING = "missing.txt"


class Patience(NamedTuple):
    """How long a call may take, how often it is repeated, and who is told when it is."""

    seconds: float
    retries: int
    on_retry: Callable[[int, Failed], None]


async def persistently(call: Callable[[int], Awaitable[T]], patience: Patience) -> tuple[int, T | Failed]:
    """Make a call, and make it again when that may help: the number of the last attempt, and how it ended."""
    for attempt in itertools.count(1):
        got = await _once(call(attempt), patience.seconds)
        if not isinstance(got, Failed) or not got.may_pass or attempt > patience.retries:
            break
        patience.on_retry(attempt, got)
    return attempt, got


async def _once(call: Awaitable[T], seconds: float) -> T | Failed:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call
    except ProviderError as error:
        return Failed(error.message, may_pass=error.may_pass)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # this run is being stopped
        return Failed("the target cancelled itself", may_pass=True)
    except Exception as error:
        if limit.expired():
            notes = "".join(getattr(error.__cause__, "__notes__", ()))  # what a command had said by then
            return Failed(f"timed out after {seconds:g} s{notes}", "timeout", may_pass=True)
        return Failed(f"{type(error).__name__}: {error}")


class RawOutput:
    """The folders that a batch writes to, one for each attempt. What was paid for is not thrown away.

    They are removed when all went well; else what is in them stays, and we say where.
    """

    def __init__(self, name: str):
        self._name = f"{datetime.now():%Y%m%d_%H%M%S}_{safe_name(name)}_"
        self._folders: list[Path] = []
        self._made: list[Path] = []
        self._is_kept = False

    def new(self) -> Path:
        """An output file in an empty folder: in the project, or if that cannot be written to, among temporary files."""
        try:
            self._made += [folder for folder in (BATCHES, BATCHES.parent) if not folder.exists()]
            BATCHES.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=self._name, dir=BATCHES))
        except OSError:
            folder = Path(tempfile.mkdtemp(prefix=f"agentv_{self._name}"))
        self._folders.append(folder.absolute())
        return self._folders[-1] / OUTPUT

    def keep(self) -> str:
        """Keep what was written, and say where: the words that follow what went wrong, if anything was."""
        self._is_kept = True
        written = [str(folder / OUTPUT) for folder in self._folders if _is_written(folder / OUTPUT)]
        return f"; its raw output is kept: {', '.join(written)}" if written else ""

    def __enter__(self) -> "RawOutput":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None and (where := self.keep()):
            say(f"a batch was broken off{where}")
        for folder in self._folders:
            if not self._is_kept or not any(_is_written(folder / name) for name in (OUTPUT, MISSING)):
                shutil.rmtree(folder, ignore_errors=True)
        for folder in self._made:
            with contextlib.suppress(OSError):  # somebody may have something in it
                folder.rmdir()


def _is_written(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
