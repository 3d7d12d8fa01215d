"""Time limits of calls that end when what was to happen before has happened, however slow the machine is.

Python imports a module of this name on its own where the folder is on PYTHONPATH; see `tests.kits.time_limits`. A
target writes a line to the file of `REACHED` when it has come to where it is to be stopped. The limits of the calls
under way are over when there are as many lines as calls; their length in seconds is only what is told.
"""

import asyncio
import os
import sys
from typing import Any

REACHED = "TESTS_REACHED"


def count_reached() -> int:
    try:
        with open(os.environ[REACHED], "rb") as file:
            return file.read().count(b"\n")
    except FileNotFoundError:
        return 0


class Limit:
    """Stands for `asyncio.Timeout`."""

    entered = 0

    def __init__(self) -> None:
        self._timeout = asyncio.Timeout(None)
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Limit":
        Limit.entered += 1
        self._watching = asyncio.create_task(self._watch())
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        assert self._watching is not None
        self._watching.cancel()
        if not self.expired():
            Limit.entered -= 1  # it came to an end before
        await self._timeout.__aexit__(*error)

    async def _watch(self) -> None:
        while count_reached() < Limit.entered:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # what it wrote before is read first
        self._timeout.reschedule(asyncio.get_running_loop().time())

    def expired(self) -> bool:
        return self._timeout.expired()


class Asyncio:
    """The module `asyncio`, but for its timeouts."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def timeout(self, seconds: float | None) -> Any:
        return asyncio.timeout(None) if seconds is None else Limit()


if sys.orig_argv[1:3] == ["-m", "agentv"] and REACHED in os.environ:
    import agentv.calls.timeout

    vars(agentv.calls.timeout)["asyncio"] = Asyncio()
