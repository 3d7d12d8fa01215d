"""How many cases the machine has room for: open files, processes, threads and temporary space are limited."""

import asyncio
import os
import resource

from agentv.log import warn
from agentv.records import Problem
from agentv.text import plural

DESCRIPTORS_PER_CASE = 12
"""Two pipes, a process, a prompt file, locks of temporary folders and connections, with some room to spare."""
SPARE_DESCRIPTORS = 24
"""For the results file, user code and libraries."""

PAUSE_SECONDS = 0.1
"""How long a case waits if it failed while no other case was running."""


class Room:
    """Limits how many cases run at once, if the machine does not have room for all workers.

    A case that fails for lack of room runs again when fewer others do.
    """

    def __init__(self, workers: int, open_cases: int):
        """`open_cases` is the maximum number of open cases. It exceeds the workers if cases wait for batches."""
        self._running = 0
        self._most = open_cases
        self._reported: int | None = None
        """The limit that the last warning named."""
        self._freed = asyncio.Event()
        most = max(1, _free_descriptors() // DESCRIPTORS_PER_CASE)
        if most < workers:
            self._reduce(most, "the limit of open files is low")

    @property
    def is_full(self) -> bool:
        """Whether no further case may start now."""
        return self._running >= self._most

    async def wait(self) -> None:
        """Wait until another case may start."""
        while self.is_full:
            self._freed.clear()
            await self._freed.wait()

    def enter(self) -> None:
        """Count a case that starts."""
        self._running += 1

    def leave(self) -> None:
        """Count a case that has ended."""
        self._running -= 1
        self._freed.set()

    async def make(self, reason: str, tries: int) -> bool:
        """Let a case that failed for lack of room wait until fewer others run.

        `tries` counts its failures for lack of room. Return False if it ran alone, and not for the first time.
        """
        if self._running <= 1:
            await asyncio.sleep(PAUSE_SECONDS)
            return tries == 1
        self._reduce(self._running - 1, reason)
        self.leave()
        try:
            await self.wait()
        finally:
            self.enter()
        return True

    def _reduce(self, most: int, reason: str) -> None:
        if most >= self._most:
            return
        self._most = most
        # Cases that fail at once reduce the limit one by one. A warning for each would fill the log.
        if self._reported is not None and most > max(1, self._reported // 2):
            return
        self._reported = most
        cases = plural(most, "case")
        message = f"{reason}: continuing with at most {cases} at once"
        hint = "raise the limits of this machine, or use fewer --workers"
        warn(Problem(message=message, severity="warning", hint=hint))


def _free_descriptors() -> int:
    """Return how many files this process may still open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 20
    try:
        open_files = len(os.listdir("/dev/fd"))
    except OSError:
        open_files = SPARE_DESCRIPTORS
    return limit - open_files - SPARE_DESCRIPTORS
