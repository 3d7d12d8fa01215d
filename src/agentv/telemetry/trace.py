"""A response -> its trace -> the summary of the trace."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from agentv.records import Json, ProviderResponse, TraceEvent, TraceSummary

SIGNATURE = "thought_signature"
"""What a vendor wants to be sent back with a call, and means nothing to anybody else."""


def build_trace(response: ProviderResponse) -> tuple[TraceEvent, ...] | None:
    """Return the trace of a response, or one built from its tool calls; None if it has neither."""
    if response.trace:
        return response.trace
    calls = [call for message in response.output_messages or () for call in message.tool_calls or ()]
    if not calls:
        return response.trace
    return tuple(
        TraceEvent(
            type="tool_call",
            id=call.id,
            name=call.tool,
            input=call.input,
            output=call.output,
            timestamp=call.timestamp,
            metadata=_shown(call.metadata),
        )
        for call in calls
    )


def _shown(metadata: Json | None) -> Json | None:
    """Return what of a call's metadata says something to a reader."""
    if metadata is None or SIGNATURE not in metadata:
        return metadata
    return {name: value for name, value in metadata.items() if name != SIGNATURE} or None


def summarize_trace(trace: Sequence[TraceEvent], response: ProviderResponse) -> TraceSummary:
    """Return counts, durations and costs of a trace."""
    calls = Counter(event.name or "unknown" for event in trace if event.type == "tool_call")
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
    """Return how many events are errors, or say so in their metadata; a call and its result are one."""
    marked = [event for event in trace if event.type != "error" and _metadata(event).get("is_error") is True]
    tools = {event.id or number for number, event in enumerate(marked)}
    return sum(event.type == "error" for event in trace) + len(tools)


def _durations(trace: Sequence[TraceEvent]) -> dict[str, list[float]]:
    """Return the milliseconds that each tool took.

    They are the `duration_ms` in a call's metadata, or lie between the timestamps of a call and a result of one id.
    """
    calls: dict[str, TraceEvent] = {}
    found: dict[str, list[float]] = {}
    for event in trace:
        if event.type == "tool_call":
            took = _metadata(event).get("duration_ms")
            if isinstance(took, int | float) and not isinstance(took, bool):
                found.setdefault(event.name or "unknown", []).append(took)
            elif event.id and event.timestamp:
                calls[event.id] = event
    for event in trace:
        call = calls.get(event.id or "") if event.type == "tool_result" else None
        if call is not None and (took := milliseconds_between(call.timestamp, event.timestamp)) is not None:
            found.setdefault(call.name or "unknown", []).append(took)
    return dict(sorted(found.items()))


def _metadata(event: TraceEvent) -> Json:
    return event.metadata or {}


def milliseconds_between(start: str | None, end: str | None) -> float | None:
    """Return the milliseconds from one timestamp to another, if both are times."""
    try:
        took = datetime.fromisoformat(end or "") - datetime.fromisoformat(start or "")
    except (ValueError, TypeError):  # no times, or only one of them says in which zone
        return None
    return round(took.total_seconds() * 1000, 3)
