"""Limit how fast a target is asked: by the limits that its user has set, and when its server answers 429.

What slows a target slows everybody who asks it.
"""

import asyncio
import time

FIRST_STRAIN, MOST_STRAIN, RELIEF = 0.01, 1.0, 0.85
"""The gap between requests after a server had enough, how long it may become, and by what it shrinks with an answer."""
LOOK_SECONDS = 0.05


class RateLimiter:
    """Spaces the requests to one target. Requests that have to wait are sent in the order in which they came."""

    def __init__(self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None):
        self._whole = (
            60 / requests_per_minute if requests_per_minute else 0.0,
            60 / tokens_per_minute if tokens_per_minute else 0.0,
        )
        self._gap, self._token = self._whole
        self._strain = 0.0
        self._free = self._held = 0.0
        self._usual: float | None = None
        """How many tokens a request takes, by those that were answered."""
        self._is_first_out = False
        self._queue = asyncio.Lock()

    @property
    def is_needed(self) -> bool:
        """Whether requests have to wait: there are limits, or the server has had enough lately."""
        if self._gap or self._token or self._strain:
            return True
        return bool(self._held) and time.monotonic() < self._held

    def divide(self, parts: int) -> None:
        """Keep to one of so many equal parts of the limits: others ask the same target."""
        self._gap, self._token = (seconds * parts for seconds in self._whole)

    async def wait(self, tokens: float = 0.0) -> None:
        """Wait for the moment at which a request of about so many tokens may be sent."""
        if not self.is_needed:
            return
        async with self._queue:
            while (wait := self._wait()) > 0:
                await asyncio.sleep(min(wait, LOOK_SECONDS))  # it may become less, or more
            self._is_first_out = True
            gap = max(self._gap, self._strain, max(tokens, self._usual or 0.0) * self._token)
            now = time.monotonic()
            self._free = (self._free if now - self._free < LOOK_SECONDS else now) + gap  # who woke late is not slower

    def _wait(self) -> float:
        if self._token and self._usual is None and self._is_first_out:
            return LOOK_SECONDS  # nobody knows what a request takes until the first has been answered
        return max(self._free, self._held) - time.monotonic()

    def answered(self, tokens: float, expected: float) -> None:
        """A request went through; it took so many tokens, and was expected to take others."""
        if self._token:
            before = max(expected, self._usual or 0.0)
            self._free += (tokens - before) * self._token
            self._usual = tokens if self._usual is None else 0.8 * self._usual + 0.2 * tokens
        self._strain = self._strain * RELIEF if self._strain > FIRST_STRAIN / 10 else 0.0

    def failed(self) -> None:
        """A request got no answer: if it was the first, another may go."""
        self._is_first_out = self._usual is not None

    def hold(self, seconds: float) -> None:
        """Leave the target alone for a while, and go easy on it afterwards.

        Requests that were under way together are turned down together: that happened once, not many times.
        """
        now = time.monotonic()
        if now >= self._held:
            self._strain = min(MOST_STRAIN, max(FIRST_STRAIN, 2 * self._strain))
        self._held = max(self._held, now + seconds)
