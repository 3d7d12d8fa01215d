"""Rate limits of targets: the limits in the settings, and back-off when a server responds with 429.

All callers of a target share its limiter.
"""

import asyncio
import time

MIN_GAP = 0.01
"""Seconds between requests after the first 429."""
MAX_GAP = 1.0
"""The longest gap that repeated 429s lead to."""
GAP_DECAY = 0.85
"""The factor by which each successful answer shortens the gap."""
POLL_SECONDS = 0.05
"""The longest sleep before the time to wait is computed again."""


class RateLimiter:
    """Spaces the requests to one target. Waiting requests are sent first in, first out."""

    def __init__(self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None):
        self._undivided_request_seconds = _seconds_each(requests_per_minute)
        self._undivided_token_seconds = _seconds_each(tokens_per_minute)
        self._request_seconds = self._undivided_request_seconds
        self._token_seconds = self._undivided_token_seconds
        self._backoff_gap = 0.0
        self._next_free = 0.0
        """When the next request may be sent, by the limits."""
        self._held_until = 0.0
        """When the next request may be sent, by the server's last 429."""
        self._usual_tokens: float | None = None
        """Moving average of the tokens per answered request; None before the first answer."""
        self._is_first_out = False
        self._queue = asyncio.Lock()

    @property
    def is_needed(self) -> bool:
        """Whether requests have to wait: there are limits, or the server sent a 429 recently."""
        if self._request_seconds or self._token_seconds or self._backoff_gap:
            return True
        return bool(self._held_until) and time.monotonic() < self._held_until

    def divide(self, parts: int) -> None:
        """Use one of `parts` equal shares of the limits: other processes call the same target."""
        self._request_seconds = self._undivided_request_seconds * parts
        self._token_seconds = self._undivided_token_seconds * parts

    async def wait(self, tokens: float = 0.0) -> None:
        """Wait until a request of about `tokens` tokens may be sent."""
        if not self.is_needed:
            return
        async with self._queue:
            seconds = self._seconds_to_wait()
            while seconds > 0:
                # Sleep in short steps, since answers and 429s change the time to wait.
                await asyncio.sleep(min(seconds, POLL_SECONDS))
                seconds = self._seconds_to_wait()
            self._is_first_out = True
            expected_tokens = max(tokens, self._usual_tokens or 0.0)
            gap = max(
                self._request_seconds,
                self._backoff_gap,
                expected_tokens * self._token_seconds,
            )
            now = time.monotonic()
            # Count from the scheduled time unless it is long past, so that late wake-ups do not lower the rate.
            if now - self._next_free >= POLL_SECONDS:
                self._next_free = now
            self._next_free += gap

    def _seconds_to_wait(self) -> float:
        is_usage_unknown = self._usual_tokens is None
        if self._token_seconds and is_usage_unknown and self._is_first_out:
            # The tokens per request are unknown until the first answer arrives.
            return POLL_SECONDS
        next_request = max(self._next_free, self._held_until)
        return next_request - time.monotonic()

    def answered(self, tokens: float, expected: float) -> None:
        """Record an answer: the tokens that it used, and the tokens that were expected before the call."""
        if self._token_seconds:
            reserved = max(expected, self._usual_tokens or 0.0)
            self._next_free += (tokens - reserved) * self._token_seconds
            if self._usual_tokens is None:
                self._usual_tokens = tokens
            else:
                # An exponential moving average.
                self._usual_tokens = 0.8 * self._usual_tokens + 0.2 * tokens
        if self._backoff_gap > MIN_GAP / 10:
            self._backoff_gap *= GAP_DECAY
        else:
            self._backoff_gap = 0.0

    def failed(self) -> None:
        """Record a request without an answer. If it was the first one, let another be sent."""
        self._is_first_out = self._usual_tokens is not None

    def hold(self, seconds: float) -> None:
        """Send no requests for a while, and space them afterwards.

        Requests that were in flight together get their 429s together. These count as one, not as many.
        """
        now = time.monotonic()
        if now >= self._held_until:
            doubled = max(MIN_GAP, 2 * self._backoff_gap)
            self._backoff_gap = min(MAX_GAP, doubled)
        self._held_until = max(self._held_until, now + seconds)


def _seconds_each(per_minute: float | None) -> float:
    """Return the seconds between two units at a rate, or 0 without a limit."""
    if not per_minute:
        return 0.0
    return 60 / per_minute
