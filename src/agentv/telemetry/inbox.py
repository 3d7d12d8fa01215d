"""Collect the spans of each attempt at a case. Spans are assigned by the endpoint or the trace that they name."""

import asyncio
import secrets
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentv.providers.trace_context import new_context
from agentv.records import ProviderRequest, TraceContext
from agentv.telemetry.protobuf import ProtobufError, decode_logs, decode_traces
from agentv.telemetry.span import LogEvent, Span, add_log_events, log_events_of, spans_of
from agentv.telemetry.spans import missing_parents

MAX_SPANS = 200_000
"""The maximum number of spans, and of events, that are kept per attempt."""
MAX_TOTAL_BYTES = 128 << 20
"""The maximum size of all requests that are accepted per attempt."""


class BadTelemetry(ValueError):
    """The data is not valid OTLP."""


class Attempt:
    """The spans of one attempt. They arrive in threads of the server, and are awaited in the run's event loop."""

    def __init__(self, context: TraceContext):
        self.context = context
        self._spans: dict[tuple[str, str], Span] = {}
        self._events: list[LogEvent] = []
        self._bytes = 0
        self.was_full = False
        """Whether spans or events were rejected because of a limit."""
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()

    def add(
        self,
        spans: Iterable[Span],
        events: Iterable[LogEvent],
        size: int,
    ) -> int:
        """Store spans and events from a request of `size` bytes. Return how many were rejected.

        A span that is sent twice is stored once.
        """
        rejected = 0
        with self._lock:
            self._bytes += size
            for span in spans:
                if self._has_room(len(self._spans)):
                    self._spans[span.trace_id, span.span_id] = span
                else:
                    rejected += 1
            for event in events:
                if self._has_room(len(self._events)):
                    self._events.append(event)
                else:
                    rejected += 1
            if rejected:
                self.was_full = True
        with suppress(RuntimeError):  # the event loop is closed: the run is over
            self._loop.call_soon_threadsafe(self._arrived.set)
        return rejected

    def _has_room(self, count: int) -> bool:
        return count < MAX_SPANS and self._bytes <= MAX_TOTAL_BYTES

    def spans(self) -> list[Span]:
        """Return the spans that have arrived, including the events that were sent as log records."""
        with self._lock:
            spans = self._spans.values()
            return add_log_events(spans, self._events)

    @property
    def is_complete(self) -> bool:
        """Whether spans have arrived, none were rejected, and no parent is missing except the case's own span.

        A span is sent when it ends, hence after all of its children: once all parents are here, everything is.
        """
        with self._lock:
            spans = list(self._spans.values())
        if not spans or self.was_full:
            return False
        return missing_parents(spans) <= {self.context.span_id}

    async def wait(self, grace: float) -> None:
        """Wait until the trace is complete, or nothing has arrived for `grace` seconds.

        Wait at most ten times as long in total.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(grace * 10):
                while not self.is_complete:
                    self._arrived.clear()
                    async with asyncio.timeout(grace):
                        await self._arrived.wait()


_open: "weakref.WeakSet[Inbox]" = weakref.WeakSet()


def take_local(span: Span) -> None:
    """Store a span that was recorded in this process, if its trace belongs to an attempt of any run."""
    for inbox in list(_open):
        inbox.take_span(span)


@dataclass(slots=True)
class _Share:
    """The part of a request that belongs to one attempt."""

    spans: list[Span] = field(default_factory=list)
    events: list[LogEvent] = field(default_factory=list)


class Inbox:
    """All attempts in progress, each with an endpoint and a trace of its own."""

    def __init__(self) -> None:
        self._by_token: dict[str, Attempt] = {}
        self._by_trace: dict[str, Attempt] = {}
        self.strays = 0
        """The number of spans and events that belong to no attempt: late ones, or those of another program."""
        self._lock = threading.Lock()
        _open.add(self)

    def add_strays(self, count: int) -> None:
        """Count spans and events that belong to no attempt. Thread-safe."""
        with self._lock:
            self.strays += count

    def take_span(self, span: Span) -> None:
        """Store a span if its trace belongs to an attempt."""
        attempt = self._by_trace.get(span.trace_id)
        if attempt is not None:
            attempt.add((span,), (), 0)

    def open(self, request: ProviderRequest, base: str) -> Attempt:
        """Return a new attempt. `base` is the address of the collector."""
        token = secrets.token_urlsafe(16)
        context = new_context(request, base, token)
        attempt = Attempt(context)
        self._by_token[token] = attempt
        self._by_trace[context.trace_id] = attempt
        return attempt

    def close(self, attempt: Attempt) -> None:
        """Accept nothing more for an attempt."""
        context = attempt.context
        token = context.endpoint.rpartition("/")[2]
        self._by_trace.pop(context.trace_id, None)
        self._by_token.pop(token, None)

    def knows(self, token: str) -> bool:
        """Return whether an attempt has this endpoint."""
        return token in self._by_token

    def take(
        self,
        token: str,
        signal: str,
        data: bytes,
        *,
        is_json: bool,
    ) -> int:
        """Store the spans or events of a request. Return how many were rejected.

        Spans are assigned to the attempt that has their trace, otherwise to the attempt that has the endpoint.
        Raise `BadTelemetry` if the request is not valid OTLP.
        """
        spans, events = read_telemetry(signal, data, is_json=is_json)
        of_endpoint = self._by_token.get(token)
        shares: defaultdict[Attempt | None, _Share] = defaultdict(_Share)
        for span in spans:
            attempt = self._by_trace.get(span.trace_id, of_endpoint)
            shares[attempt].spans.append(span)
        for event in events:
            attempt = self._by_trace.get(event.trace_id, of_endpoint)
            shares[attempt].events.append(event)

        rejected = 0
        for attempt, share in shares.items():
            if attempt is not None:
                rejected += attempt.add(share.spans, share.events, len(data))
            else:
                count = len(share.spans) + len(share.events)
                self.add_strays(count)
                rejected += count
        return rejected


def read_telemetry(
    signal: str,
    data: bytes,
    *,
    is_json: bool,
) -> tuple[list[Span], list[LogEvent]]:
    """Return the spans and events of an OTLP request. Raise `BadTelemetry` if it is not valid."""
    try:
        document = _decode(signal, data, is_json=is_json)
        if signal == "traces":
            spans = list(spans_of(document))
            return spans, []
        events = list(log_events_of(document))
        return [], events
    except (msgspec.DecodeError, ProtobufError, UnicodeError, RecursionError) as error:
        raise BadTelemetry(str(error)) from error


def _decode(
    signal: str,
    data: bytes,
    *,
    is_json: bool,
) -> dict[str, Any]:
    """Return an OTLP request in its JSON form."""
    if is_json:
        document = msgspec.json.decode(data)
        if not isinstance(document, dict):
            raise BadTelemetry("not a JSON object")
        return document
    if signal == "traces":
        return decode_traces(data)
    return decode_logs(data)
