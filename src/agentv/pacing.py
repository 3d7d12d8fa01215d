"""Requests to a target -> the moment at which each may be sent.

What slows a target slows everybody who asks it: the limits that its user has set, and a server that has had enough.
"""

import asyncio
import time

FIRST_STRAIN, MOST_STRAIN, RELIEF = 0.01, 1.0, 0.7
"""The gap between requests after a server had enough, how long it may become, and by what it shrinks with an answer."""


class Pace:
    """When a target may be asked next."""

    def __init__(self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None):
        self._gap = 60 / requests_per_minute if requests_per_minute else 0.0
        self._token = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._strain = 0.0
        self._free = self._held = 0.0

    async def turn(self, tokens: float = 0.0) -> None:
        """Wait for the moment at which a request of about so many tokens may be sent."""
        while True:
            now = time.monotonic()
            at = max(now, self._free)
            self._free = at + max(self._gap, self._strain, tokens * self._token)
            if at > now:
                await asyncio.sleep(at - now)
            if time.monotonic() >= self._held:
                return

    def answered(self, tokens: float, expected: float) -> None:
        """A request went through; it took so many tokens, not as many as expected."""
        self._free += (tokens - expected) * self._token
        self._strain = self._strain * RELIEF if self._strain > FIRST_STRAIN / 10 else 0.0

    def hold(self, seconds: float) -> None:
        """Leave the target alone for a while, and go easy on it afterwards."""
        self._held = max(self._held, time.monotonic() + seconds)
        self._free = max(self._free, self._held)
        self._strain = min(MOST_STRAIN, max(FIRST_STRAIN, 2 * self._strain))
