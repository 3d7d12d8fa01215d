"""The spans of each attempt at a case, as they arrive: told apart by the endpoint or the trace that they name."""

import asyncio
import secrets
import threading
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from agentv.records import ProviderRequest, TraceContext
from agentv.telemetry.context import new_context
from agentv.telemetry.protobuf import ProtobufError, decode_logs, decode_traces
from agentv.telemetry.span import LogEvent, Span, add_log_events, log_events_of, spans_of
from agentv.telemetry.spans import missing_parents

MOST_SPANS = 200_000
"""How many spans, and how many events, are kept of one attempt."""
MOST_BYTES = 128 << 20
"""How many bytes of requests are taken for one attempt."""


class BadTelemetry(ValueError):
    """What was sent is no OTLP."""


class Attempt:
    """The spans of one attempt. They arrive in threads of the server, and are waited for in the run's loop."""

    def __init__(self, context: TraceContext):
        self.context = context
        self._spans: dict[tuple[str, str], Span] = {}
        self._events: list[LogEvent] = []
        self._bytes = 0
        self.was_full = False
        """Whether something was not kept, for want of room."""
        self._lock = threading.Lock()
        self._loop, self._arrived = asyncio.get_running_loop(), asyncio.Event()

    def add(self, spans: Iterable[Span], events: Iterable[LogEvent], size: int) -> int:
        """Keep these; return how many were not kept. A span that is sent twice counts once."""
        refused = 0
        with self._lock:
            self._bytes += size
            for span in spans:
                if self._has_room(len(self._spans)):
                    self._spans[span.trace_id, span.span_id] = span
                else:
                    refused += 1
            for event in events:
                if self._has_room(len(self._events)):
                    self._events.append(event)
                else:
                    refused += 1
            self.was_full = self.was_full or refused > 0
        with suppress(RuntimeError):  # the run is over
            self._loop.call_soon_threadsafe(self._arrived.set)
        return refused

    def _has_room(self, count: int) -> bool:
        return count < MOST_SPANS and self._bytes <= MOST_BYTES

    def spans(self) -> list[Span]:
        """Return the spans that have arrived, with the events that were sent apart from them."""
        with self._lock:
            return add_log_events(self._spans.values(), self._events)

    @property
    def is_complete(self) -> bool:
        """Whether something has arrived, and nothing that is missing is known of.

        A span is sent when it ends, hence after all inside of it: with the parents, everything is here.
        """
        with self._lock:
            spans = list(self._spans.values())
        return bool(spans) and not self.was_full and missing_parents(spans) <= {self.context.span_id}

    async def wait(self, grace: float) -> None:
        """Wait until all is complete, or nothing has arrived for `grace` seconds; ten times that is the most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace * 10):
                while not self.is_complete:
                    self._arrived.clear()
                    async with asyncio.timeout(grace):
                        await self._arrived.wait()


_open: "weakref.WeakSet[Inbox]" = weakref.WeakSet()


def take_local(span: Span) -> None:
    """Keep a span that was recorded in this process, if its trace is that of an attempt of any run."""
    for inbox in list(_open):
        inbox.take_span(span)


class Inbox:
    """All attempts that are under way, each with its own endpoint and its own trace."""

    def __init__(self) -> None:
        self._by_token: dict[str, Attempt] = {}
        self._by_trace: dict[str, Attempt] = {}
        self.strays = 0
        """How many spans and events have arrived that are no attempt's: they were late, or somebody else's."""
        self._lock = threading.Lock()
        _open.add(self)

    def add_strays(self, count: int) -> None:
        """Count spans and events that are no attempt's; they arrive in several threads."""
        with self._lock:
            self.strays += count

    def take_span(self, span: Span) -> None:
        """Keep a span if its trace is that of an attempt."""
        if (attempt := self._by_trace.get(span.trace_id)) is not None:
            attempt.add((span,), (), 0)

    def open(self, request: ProviderRequest, base: str) -> Attempt:
        """Return a new attempt; `base` is the address of the collector."""
        token = secrets.token_urlsafe(16)
        attempt = Attempt(new_context(request, base, token))
        self._by_token[token] = self._by_trace[attempt.context.trace_id] = attempt
        return attempt

    def close(self, attempt: Attempt) -> None:
        """Take nothing more for an attempt."""
        context = attempt.context
        self._by_trace.pop(context.trace_id, None)
        self._by_token.pop(context.endpoint.rpartition("/")[2], None)

    def knows(self, token: str) -> bool:
        """Return whether an attempt has this endpoint."""
        return token in self._by_token

    def take(self, token: str, signal: str, data: bytes, *, is_json: bool) -> int:
        """Keep the spans, or the events, of a request; return how many were not kept.

        A trace that is an attempt's tells whose they are, else the endpoint does. Raise `BadTelemetry` for no OTLP.
        """
        spans, events = read_telemetry(signal, data, is_json=is_json)
        own = self._by_token.get(token)
        whose: dict[Attempt | None, tuple[list[Span], list[LogEvent]]] = {}
        for span in spans:
            whose.setdefault(self._by_trace.get(span.trace_id, own), ([], []))[0].append(span)
        for event in events:
            whose.setdefault(self._by_trace.get(event.trace_id, own), ([], []))[1].append(event)
        refused = 0
        for attempt, (own_spans, own_events) in whose.items():
            if attempt is not None:
                refused += attempt.add(own_spans, own_events, len(data))
            else:
                self.add_strays(len(own_spans) + len(own_events))
                refused += len(own_spans) + len(own_events)
        return refused


def read_telemetry(signal: str, data: bytes, *, is_json: bool) -> tuple[list[Span], list[LogEvent]]:
    """Return the spans and the events of a request of OTLP; raise `BadTelemetry` if it is none."""
    try:
        document: Any
        if is_json:
            document = msgspec.json.decode(data)
            if not isinstance(document, dict):
                raise BadTelemetry("it is no JSON object")
        else:
            document = decode_traces(data) if signal == "traces" else decode_logs(data)
        if signal == "traces":
            return list(spans_of(document)), []
        return [], list(log_events_of(document))
    except (msgspec.DecodeError, ProtobufError, UnicodeError, RecursionError) as error:
        raise BadTelemetry(str(error)) from error
