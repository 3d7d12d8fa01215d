"""Spans that are recorded in this process -> the collector, without a way over the network.

A function that is a target runs in agentv's own process, and so does its SDK. What the global provider records is
taken when it ends, whatever else the user has set up for it; a span finds its case by its trace.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentv.records import TraceContext
from agentv.telemetry.inbox import take_local
from agentv.telemetry.span import Span

_bridged: "weakref.WeakSet[Any]" = weakref.WeakSet()


@contextmanager
def current_span(context: TraceContext | None) -> Iterator[None]:
    """Make the case's span the current one, for code in this process; without OpenTelemetry's API, do nothing."""
    if context is None:
        yield
        return
    try:
        from opentelemetry import context as otel_context
        from opentelemetry import trace
    except ImportError:
        yield
        return
    _bridge(trace.get_tracer_provider())
    span_context = trace.SpanContext(
        int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=trace.TraceFlags(1)
    )
    token = otel_context.attach(trace.set_span_in_context(trace.NonRecordingSpan(span_context)))
    try:
        yield
    finally:
        otel_context.detach(token)


def _bridge(provider: Any) -> None:
    """Take the spans of a provider from now on, if it is one that records any."""
    if provider not in _bridged and callable(add := getattr(provider, "add_span_processor", None)):
        _bridged.add(provider)
        add(_Bridge())


class _Bridge:
    """A span processor, as the SDK has them; not a subclass, as the SDK may not be there."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Wait for its end."""

    def _on_ending(self, span: Any) -> None:
        """Wait for its end."""

    def on_end(self, span: Any) -> None:
        """Pass on a span."""
        status = span.status
        take_local(
            Span(
                trace_id=f"{span.context.trace_id:032x}",
                span_id=f"{span.context.span_id:016x}",
                parent_id=f"{span.parent.span_id:016x}" if span.parent is not None else "",
                name=span.name,
                start=span.start_time or 0,
                end=span.end_time or 0,
                attributes=_plain(span.attributes),
                events=[(event.name, _plain(event.attributes)) for event in span.events],
                is_error=status.status_code.name == "ERROR",
                error=status.description or "",
            )
        )

    def shutdown(self) -> None:
        """Hold nothing that would have to be let go."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


def _plain(attributes: Any) -> dict[str, Any]:
    """Return attributes as JSON has them."""
    found = dict(attributes or {})
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
