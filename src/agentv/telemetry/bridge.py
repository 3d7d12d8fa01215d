"""Pass spans that are recorded in this process to the collector, without going over the network.

A function target runs in agentv's own process, and so does its SDK. A span processor on the global tracer provider
receives the spans when they end, in addition to what the user has set up. A span is assigned to its case by its trace.
"""

import weakref
from typing import Any

from agentv.telemetry.inbox import take_local
from agentv.telemetry.span import Span

_bridged: "weakref.WeakSet[Any]" = weakref.WeakSet()


def bridge_local_spans() -> None:
    """Receive the spans of the global tracer provider from now on. Do nothing without OpenTelemetry's API."""
    try:
        from opentelemetry import trace
    except ImportError:
        return
    provider: Any = trace.get_tracer_provider()
    if provider in _bridged:
        return
    add_processor = getattr(provider, "add_span_processor", None)
    if callable(add_processor):
        _bridged.add(provider)
        add_processor(_Bridge())


class _Bridge:
    """A span processor. Not a subclass of the SDK's, as the SDK may not be installed."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Do nothing: a span is passed on when it ends."""

    def _on_ending(self, span: Any) -> None:
        """Do nothing: a span is passed on when it ends."""

    def on_end(self, span: Any) -> None:
        """Pass on a span."""
        parent_id = ""
        if span.parent is not None:
            parent_id = f"{span.parent.span_id:016x}"
        events = []
        for event in span.events:
            events.append((event.name, _plain(event.attributes)))
        take_local(
            Span(
                trace_id=f"{span.context.trace_id:032x}",
                span_id=f"{span.context.span_id:016x}",
                parent_id=parent_id,
                name=span.name,
                start=span.start_time or 0,
                end=span.end_time or 0,
                attributes=_plain(span.attributes),
                events=events,
                is_error=span.status.status_code.name == "ERROR",
                error=span.status.description or "",
            )
        )

    def shutdown(self) -> None:
        """Do nothing: the processor holds no resources."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


def _plain(attributes: Any) -> dict[str, Any]:
    """Return attributes with lists instead of tuples, as in JSON."""
    plain = {}
    for name, value in dict(attributes or {}).items():
        if isinstance(value, tuple):
            plain[name] = list(value)
        else:
            plain[name] = value
    return plain
