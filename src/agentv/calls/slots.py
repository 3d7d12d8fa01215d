"""Concurrency limits: a semaphore that can be resized, and shares of a limit that several processes divide."""

import asyncio
from collections import deque
from typing import NamedTuple


class Share(NamedTuple):
    """One of several equal parts of a limit."""

    number: int = 0
    parts: int = 1

    def of(self, limit: int) -> int:
        """Return this part of a limit, at least 1. If the limit is large enough, all parts add up to it."""
        part = limit // self.parts
        remainder = limit % self.parts
        if self.number < remainder:
            part += 1
        return max(1, part)


WHOLE = Share()


class Slots:
    """A semaphore whose limit can change. Waiters are served first in, first out."""

    def __init__(self, limit: int):
        self._limit = limit
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resize(self, limit: int) -> None:
        """Change the limit. Slots that are taken stay taken, even if they exceed it."""
        self._limit = limit
        self._wake_waiters()

    async def acquire(self) -> None:
        """Wait for a free slot, and take it."""
        if self._taken < self._limit and not self._waiting:
            self._taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # The slot may have been assigned just before the cancellation.
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Free a slot."""
        self._taken -= 1
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        while self._waiting and self._taken < self._limit:
            turn = self._waiting.popleft()
            # Skip waiters that were cancelled.
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
