"""The trace of a response, and its figures."""

from agentv.records import Message, ProviderResponse, ToolCall, TraceEvent
from agentv.results.trace import build_trace, summarize_trace

START, END = "2026-11-17T05:32:48.000Z", "2026-11-17T05:32:49.500Z"
ANSWER = ProviderResponse(text="")


def test_a_trace_is_built_from_the_calls_in_messages() -> None:
    call = ToolCall(tool="Read", input={"a": 1}, id="t1", timestamp=START, metadata={"is_error": True})
    response = ProviderResponse(text="", output_messages=(Message(role="assistant", tool_calls=(call,)),))
    event = TraceEvent(
        type="tool_call", name="Read", input={"a": 1}, id="t1", timestamp=START, metadata={"is_error": True}
    )
    assert build_trace(response) == (event,)


def test_failed_calls_and_errors_are_counted_each_once() -> None:
    failed = {"is_error": True}
    trace = [
        TraceEvent(type="error", id="x"),
        TraceEvent(type="error", id="x", metadata=failed),
        TraceEvent(type="tool_call", id="t1", metadata=failed),
        TraceEvent(type="tool_result", id="t1", metadata=failed),
        TraceEvent(type="tool_call", metadata=failed),
        TraceEvent(type="tool_call", metadata=failed),
        TraceEvent(type="tool_call", id="t2", metadata={"is_error": False}),
        TraceEvent(type="tool_call", id="t3", metadata={"is_error": "no"}),
    ]
    assert summarize_trace(trace, ANSWER).error_count == 5


def test_durations_come_from_a_call_or_from_two_timestamps() -> None:
    trace = [
        TraceEvent(type="tool_call", name="Bash", id="t1", timestamp=START),
        TraceEvent(type="tool_call", name="Bash", id="t2", timestamp=START, metadata={"duration_ms": 7}),
        TraceEvent(type="tool_call", name="Read", metadata={"duration_ms": "long"}),
        TraceEvent(type="tool_result", id="t1", timestamp=END),
        TraceEvent(type="tool_result", id="t2", timestamp=END),
    ]
    assert summarize_trace(trace, ANSWER).tool_durations == {"Bash": [7, 1500.0]}


def test_calls_whose_ids_are_reused_in_each_turn_are_told_apart() -> None:
    failed = {"is_error": True}
    times = [f"2026-11-17T05:32:4{second}.000Z" for second in (0, 1, 5, 7)]
    trace = [
        TraceEvent(type="tool_call", name="a", id="call_0", timestamp=times[0]),
        TraceEvent(type="tool_result", id="call_0", timestamp=times[1], metadata=failed),
        TraceEvent(type="tool_call", name="b", id="call_0", timestamp=times[2], metadata=failed),
        TraceEvent(type="tool_result", id="call_0", timestamp=times[3], metadata=failed),
    ]
    summary = summarize_trace(trace, ANSWER)
    assert summary.tool_durations == {"a": [1000.0], "b": [2000.0]}
    assert summary.error_count == 2
