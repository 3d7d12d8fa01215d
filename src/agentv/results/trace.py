"""Build the trace of a response, and the summary of a trace."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from agentv.files.trace_events import events_of_calls
from agentv.records import Json, ProviderResponse, TraceEvent, TraceSummary

SIGNATURE = "thought_signature"
"""An opaque value that Gemini expects back with a tool call. It is omitted from traces."""


def build_trace(response: ProviderResponse) -> tuple[TraceEvent, ...] | None:
    """Return the trace of a response, or one built from its tool calls. Return None if it has neither."""
    if response.trace or not response.output_messages:
        return response.trace
    events = []
    for event in events_of_calls(response.output_messages):
        events.append(msgspec.structs.replace(event, metadata=_without_signature(event.metadata)))
    if not events:
        return response.trace  # an empty trace means that nothing was done, None that nothing is known
    return tuple(events)


def _without_signature(metadata: Json | None) -> Json | None:
    if metadata is None or SIGNATURE not in metadata:
        return metadata
    rest = dict(metadata)
    del rest[SIGNATURE]
    return rest or None


def summarize_trace(
    trace: Sequence[TraceEvent],
    response: ProviderResponse,
) -> TraceSummary:
    """Return the counts, durations and costs of a trace."""
    calls: Counter[str] = Counter()
    for event in trace:
        if event.type == "tool_call":
            name = event.name or "unknown"
            calls[name] += 1
    return TraceSummary(
        event_count=len(trace),
        tool_names=tuple(sorted(calls)),
        tool_calls_by_name=dict(sorted(calls.items())),
        error_count=_count_errors(trace),
        token_usage=response.token_usage,
        cost_usd=response.cost_usd,
        duration_ms=response.duration_ms,
        tool_durations=_durations(trace) or None,
    )


def _count_errors(trace: Sequence[TraceEvent]) -> int:
    """Return the number of error events and failed tools. A call and its result, with the same id, count once."""
    errors = 0
    last_calls: dict[str, int] = {}
    """The number of the last call with each id. Some servers use the same ids in each turn."""
    failed_tools: set[int] = set()
    for number, event in enumerate(trace):
        if event.type == "tool_call" and event.id:
            last_calls[event.id] = number
        if event.type == "error":
            errors += 1
        elif _metadata(event).get("is_error") is True:
            failed_tools.add(last_calls.get(event.id or "", number))
    return errors + len(failed_tools)


def _durations(trace: Sequence[TraceEvent]) -> dict[str, list[float]]:
    """Return the durations of each tool in milliseconds.

    A duration is the `duration_ms` in the metadata of a call, or the time between a call and the result with its id.
    """
    found: dict[str, list[float]] = {}
    open_calls: dict[str, TraceEvent] = {}
    for event in trace:
        name = event.name or "unknown"
        took = None
        if event.type == "tool_call":
            took = _metadata(event).get("duration_ms")
            if isinstance(took, bool) or not isinstance(took, int | float):
                took = None
                open_calls[event.id or ""] = event
        elif event.type == "tool_result" and event.id:
            call = open_calls.pop(event.id, None)
            if call is not None:
                name = call.name or "unknown"
                took = milliseconds_between(call.timestamp, event.timestamp)
        if took is not None:
            found.setdefault(name, []).append(took)
    ordered = sorted(found.items())
    return dict(ordered)


def _metadata(event: TraceEvent) -> Json:
    return event.metadata or {}


def milliseconds_between(start: str | None, end: str | None) -> float | None:
    """Return the milliseconds from one timestamp to another, or None if one of them is invalid."""
    try:
        started = datetime.fromisoformat(start or "")
        ended = datetime.fromisoformat(end or "")
        took = ended - started
    except (ValueError, TypeError):  # TypeError: only one of them has a time zone
        return None
    milliseconds = took.total_seconds() * 1000
    return round(milliseconds, 3)
