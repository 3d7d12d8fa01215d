"""A response -> its trace, and the trace in a few figures."""

from collections import Counter
from collections.abc import Sequence

from agentv.records import ProviderResponse, TraceEvent, TraceSummary


def trace_of(response: ProviderResponse) -> tuple[TraceEvent, ...] | None:
    """The trace that came with the response, else one made from its tool calls; None without either."""
    if response.trace is not None:
        return response.trace
    calls = [call for message in response.output_messages or () for call in message.tool_calls or ()]
    if not calls:
        return None
    return tuple(
        TraceEvent(
            type="tool_call", id=call.id, name=call.tool, input=call.input, output=call.output, timestamp=call.timestamp
        )
        for call in calls
    )


def summary_of(trace: Sequence[TraceEvent], response: ProviderResponse) -> TraceSummary:
    """What happened, in figures."""
    calls = Counter(event.name or "unknown" for event in trace if event.type == "tool_call")
    return TraceSummary(
        event_count=len(trace),
        tool_names=tuple(sorted(calls)),
        tool_calls_by_name=dict(sorted(calls.items())),
        error_count=sum(event.type == "error" for event in trace),
        token_usage=response.token_usage,
        cost_usd=response.cost_usd,
        duration_ms=response.duration_ms,
    )
