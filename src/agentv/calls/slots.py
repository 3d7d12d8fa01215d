"""How many calls at once: a limit that can change while calls are made, and a part of a limit that many share."""

import asyncio
from collections import deque
from typing import NamedTuple


class Share(NamedTuple):
    """One of several equal parts of a limit."""

    number: int = 0
    parts: int = 1

    def of(self, limit: int) -> int:
        """Return this part of a limit; all parts together are the limit, and none is less than 1."""
        return max(1, limit // self.parts + (self.number < limit % self.parts))


WHOLE = Share()


class Slots:
    """Lets so many in at once, in the order in which they came."""

    def __init__(self, limit: int):
        self._limit, self._taken = limit, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def resize(self, limit: int) -> None:
        """Let so many in at once from now on; who is in stays in."""
        self._limit = limit
        self._let_in()

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
            if turn.done() and not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back."""
        self._taken -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._taken < self._limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
