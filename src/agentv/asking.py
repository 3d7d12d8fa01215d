"""A call of a provider -> what it gave, or why it gave nothing, however often it had to be made."""

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from agentv.dumps import safe_name
from agentv.errors import ProviderError
from agentv.notices import say
from agentv.records import Failure

T = TypeVar("T")
BATCHES = Path(".agentv/batches")


class Failed(NamedTuple):
    """Why there is no answer, and whether there may be one next time."""

    error: str
    failure: Failure = "target"
    may_pass: bool = False


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
            return Failed(f"timed out after {seconds:g} s", "timeout", may_pass=True)
        return Failed(f"{type(error).__name__}: {error}")


class RawOutput:
    """The folders that a batch writes to, one for each attempt. What was paid for is not thrown away.

    They are removed when all went well; else what is in them stays, and we say where.
    """

    def __init__(self, name: str, *, keep: bool):
        self._name = f"{datetime.now():%Y%m%d_%H%M%S}_{safe_name(name)}_"
        self._keep = keep
        self._folders: list[Path] = []

    def new(self) -> Path:
        """An empty folder; in the project, or where that cannot be written to, among the temporary files."""
        try:
            BATCHES.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=self._name, dir=BATCHES))
        except OSError:
            folder = Path(tempfile.mkdtemp(prefix=f"agentv_{self._name}"))
        self._folders.append(folder.absolute())
        return self._folders[-1]

    def keep(self) -> str:
        """Keep what there is, and say so: the words that follow an error."""
        self._keep = True
        written = [str(path) for folder in self._folders for path in folder.glob("*.jsonl") if path.stat().st_size]
        return f"; its raw output is kept: {', '.join(written)}" if written else ""

    def __enter__(self) -> "RawOutput":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            say(f"a batch was broken off{self.keep()}")
        for folder in self._folders:
            if not self._keep or not any(path.stat().st_size for path in folder.iterdir()):
                shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # others may have something in it
            os.removedirs(BATCHES)
