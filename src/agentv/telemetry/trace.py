"""A response -> its trace -> the summary of the trace."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from agentv.records import ProviderResponse, TraceEvent, TraceSummary


def build_trace(response: ProviderResponse) -> tuple[TraceEvent, ...] | None:
    """Return the trace of a response, or one built from its tool calls; None if it has neither."""
    if response.trace:
        return response.trace
    calls = [call for message in response.output_messages or () for call in message.tool_calls or ()]
    if not calls:
        return response.trace
    return tuple(
        TraceEvent(
            type="tool_call", id=call.id, name=call.tool, input=call.input, output=call.output, timestamp=call.timestamp
        )
        for call in calls
    )


def summarize_trace(trace: Sequence[TraceEvent], response: ProviderResponse) -> TraceSummary:
    """Return counts, durations and costs of a trace."""
    calls = Counter(event.name or "unknown" for event in trace if event.type == "tool_call")
    return TraceSummary(
        event_count=len(trace),
        tool_names=tuple(sorted(calls)),
        tool_calls_by_name=dict(sorted(calls.items())),
        error_count=sum(event.type == "error" for event in trace),
        token_usage=response.token_usage,
        cost_usd=response.cost_usd,
        duration_ms=response.duration_ms,
        tool_durations=_durations(trace) or None,
    )


def _durations(trace: Sequence[TraceEvent]) -> dict[str, list[float]]:
    """Return the milliseconds that each tool took, where a call and its result have the same id and a timestamp."""
    calls = {event.id: event for event in trace if event.type == "tool_call" and event.id and event.timestamp}
    found: dict[str, list[float]] = {}
    for event in trace:
        call = calls.get(event.id or "") if event.type == "tool_result" else None
        if call is not None and (took := _between(call.timestamp, event.timestamp)) is not None:
            found.setdefault(call.name or "unknown", []).append(took)
    return dict(sorted(found.items()))


def _between(start: str | None, end: str | None) -> float | None:
    try:
        took = datetime.fromisoformat(end or "") - datetime.fromisoformat(start or "")
    except (ValueError, TypeError):  # no times, or only one of them says in which zone
        return None
    return round(took.total_seconds() * 1000, 3)
