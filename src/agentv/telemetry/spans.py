"""Derive an agent's answer, trace and token usage from OpenTelemetry spans.

Two conventions are supported: GenAI's (messages as events up to 1.36, as attributes from 1.37 on) and OpenInference's.
Spans come from other programs: any attribute may be missing or have an unexpected type.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agentv.files.plain import json_value
from agentv.records import Dropped, Json, ProviderResponse, TokenUsage, TraceEvent
from agentv.telemetry.messages import (
    ANSWER_EVENTS,
    OPERATION_DETAILS,
    ToolMessages,
    tool_messages,
)
from agentv.telemetry.span import Span, dicts

MODEL_OPERATIONS = ("chat", "text_completion", "generate_content")
AGENT_OPERATIONS = ("invoke_agent", "create_agent")
LATEST = 253_402_300_799.0
"""The last second that a `datetime` can represent."""
_TOKENS = {
    "input": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "output": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "cached": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "reasoning": ("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"),
}
"""The attributes for each count of tokens, in order of preference."""


def missing_parents(spans: Sequence[Span]) -> set[str]:
    """Return the ids of parents that are not among the spans."""
    parents = {span.parent_id for span in spans if span.parent_id}
    return parents - {span.span_id for span in spans}


def response_of_spans(spans: Sequence[Span]) -> ProviderResponse:
    """Return the answer of the agent that recorded the spans, with its trace, token usage and duration."""
    ordered = _ordered(spans)
    duration_ms = None
    if ordered:
        last_end = max(span.end for span in ordered)
        duration_ms = (last_end - ordered[0].start) / 1e6
    dropped = dropped_calls(ordered)
    trace_complete = None
    if missing_parents(ordered) or dropped is not None:
        trace_complete = False
    return ProviderResponse(
        text=_answer(ordered),
        trace=trace_of_spans(ordered),
        token_usage=usage_of_spans(ordered),
        duration_ms=duration_ms,
        trace_complete=trace_complete,
        dropped=dropped,
    )


def dropped_calls(spans: Sequence[Span]) -> tuple[Dropped, ...] | None:
    """Return the tool calls without a readable name, or None if there are none.

    The messages of models only count if no tool has a span.
    """
    if any(_kind(span) == "tool" for span in spans):
        return None
    return tool_messages(spans).dropped.records()


def trace_of_spans(spans: Sequence[Span]) -> tuple[TraceEvent, ...]:
    """Return the steps of an agent in the order in which they began.

    Arguments and results that the span of a tool lacks are taken from the messages of the model. If no tool has a
    span, all tool calls are taken from the messages.
    """
    ordered = _ordered(spans)
    messages = tool_messages(spans)
    agents = _Agents(ordered)
    calls_by_span: dict[str, list[str]] = {}
    if not any(_kind(span) == "tool" for span in ordered):
        for call_id, (_, span) in messages.calls.items():
            calls_by_span.setdefault(span.span_id, []).append(call_id)

    trace: list[TraceEvent] = []
    for span in ordered:
        event = _event(span, messages, agents.around(span))
        if event is not None:
            trace.append(event)
        # Remove the calls: a span id may occur twice, and each call belongs to the trace once.
        for call_id in calls_by_span.pop(span.span_id, ()):
            trace.append(_requested_call(call_id, span, messages))
    return tuple(trace)


def _ordered(spans: Sequence[Span]) -> list[Span]:
    """Return the spans by their start. Of those that start together, the longest is the outermost and comes first."""
    return sorted(spans, key=lambda span: (span.start, -span.end))


def _kind(span: Span) -> str:
    """Return the kind of a span: `tool`, `model`, `agent`, or an empty text for any other."""
    operation = span.attributes.get("gen_ai.operation.name")
    kind = str(span.attributes.get("openinference.span.kind", "")).upper()
    if operation == "execute_tool" or kind == "TOOL":
        return "tool"
    if operation in MODEL_OPERATIONS or kind == "LLM":
        return "model"
    if operation in AGENT_OPERATIONS or kind in ("AGENT", "CHAIN"):
        return "agent"
    return ""


class _Agents:
    """Finds the agent that each span belongs to, where agents call other agents."""

    def __init__(self, spans: Sequence[Span]):
        self._spans = {span.span_id: span for span in spans}
        self._known: dict[str, str | None] = {}
        """The agent that the children of a span belong to, by the id of the span."""

    def around(self, span: Span) -> str | None:
        """Return the name of the innermost agent around a span, or None if there is none."""
        name: str | None = None
        visited: list[str] = []
        at = span.parent_id
        # Parents may form a cycle: no path is longer than the number of spans.
        while len(visited) < len(self._spans):
            if at in self._known:
                name = self._known[at]
                break
            parent = self._spans.get(at)
            if parent is None:
                break
            own_name = _first(parent.attributes, "gen_ai.agent.name", "agent.name")
            if _kind(parent) == "agent" and isinstance(own_name, str):
                name = own_name
                break
            visited.append(at)
            at = parent.parent_id
        self._known |= dict.fromkeys(visited, name)
        return name


def _event(
    span: Span,
    messages: ToolMessages,
    agent: str | None,
) -> TraceEvent | None:
    """Return the trace event for a span, or None if the span is not a step of an agent."""
    match _kind(span):
        case "tool":
            return _tool_event(span, messages, agent)
        case "model":
            return TraceEvent(
                type="model_step",
                timestamp=_time(span.start),
                id=span.span_id,
                name=_model_or_agent_name(span),
                text=_text(span) or None,
                metadata=_metadata(span, agent),
            )
        case "agent":
            text = _text(span)
            if not text:
                return None
            return TraceEvent(
                type="message",
                timestamp=_time(span.start),
                id=span.span_id,
                name=_model_or_agent_name(span),
                text=text,
                metadata=_metadata(span, agent),
            )
    return None


def _tool_event(
    span: Span,
    messages: ToolMessages,
    agent: str | None,
) -> TraceEvent:
    found = span.attributes
    call_id = str(found.get("gen_ai.tool.call.id") or found.get("tool_call.id") or span.span_id)
    name = found.get("gen_ai.tool.name") or found.get("tool.name") or span.name
    arguments = _first(found, "gen_ai.tool.call.arguments", "tool.parameters", "input.value")
    input_ = json_value(arguments)
    if input_ is None and call_id in messages.calls:
        requested, _ = messages.calls[call_id]
        input_ = requested.input
    result = _first(found, "gen_ai.tool.call.result", "output.value")
    output = json_value(result)
    if output is None:
        output = messages.results.get(call_id)
    return TraceEvent(
        type="tool_call",
        timestamp=_time(span.start),
        id=call_id,
        name=str(name),
        input=input_,
        output=output,
        metadata=_metadata(span, agent),
    )


def _metadata(span: Span, agent: str | None) -> Json:
    duration = span.end - span.start
    metadata: Json = {"duration_ms": duration / 1e6}
    if span.is_error:
        metadata["is_error"] = True
        if span.error:
            metadata["error"] = span.error
    if span.parent_id:
        metadata["parent_id"] = span.parent_id
    if agent is not None:
        metadata["agent"] = agent
    return metadata


def _model_or_agent_name(span: Span) -> str:
    name = _first(
        span.attributes,
        "gen_ai.request.model",
        "llm.model_name",
        "gen_ai.agent.name",
        "agent.name",
    )
    return str(name or span.name)


def _requested_call(
    call_id: str,
    span: Span,
    messages: ToolMessages,
) -> TraceEvent:
    """Return a tool call that a model requested in a span. It began when the span ended."""
    requested, _ = messages.calls[call_id]
    metadata: Json | None = None
    if span.span_id:
        metadata = {"parent_id": span.span_id}
    return TraceEvent(
        type="tool_call",
        timestamp=_time(span.end),
        id=call_id,
        name=requested.tool,
        input=requested.input,
        output=messages.results.get(call_id),
        metadata=metadata,
    )


def _time(nanoseconds: int) -> str:
    """Return a moment as an ISO 8601 timestamp. Times that a `datetime` cannot represent are clamped."""
    seconds = min(max(nanoseconds / 1e9, 0.0), LATEST)
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _answer(spans: Sequence[Span]) -> str:
    """Return the text of the outermost agent, or else the last text of a model."""
    for span in spans:
        if _kind(span) == "agent":
            text = _text(span)
            if text:
                return text
    by_end = sorted(spans, key=lambda span: span.end)
    for span in reversed(by_end):
        if _kind(span) == "model":
            text = _text(span)
            if text:
                return text
    return ""


def _text(span: Span) -> str:
    """Return the answer that a span records, in either convention."""
    found = span.attributes
    messages = json_value(found.get("gen_ai.output.messages"))
    if messages is not None:
        return _last_text(messages)
    for name, attributes in reversed(span.events):
        if name in ANSWER_EVENTS:
            content = _event_content(attributes)
            if content:
                return content
        if name == OPERATION_DETAILS:
            messages = json_value(attributes.get("gen_ai.output.messages"))
            return _last_text(messages)
    keys = []
    for key in found:
        if key.startswith("llm.output_messages.") and key.endswith(".message.content"):
            keys.append(key)
    if keys:
        return str(found[max(keys)])
    output = found.get("output.value")
    if not isinstance(output, str):
        return ""
    return output


def _event_content(attributes: Mapping[str, Any]) -> str:
    """Return the text of an event, whose message is an attribute or the attributes themselves."""
    message = json_value(attributes.get("message"))
    if not isinstance(message, dict):
        message = attributes
    content = message.get("content")
    if not isinstance(content, str):
        return ""
    return content


def _last_text(messages: Any) -> str:
    """Return the text of the last message that has one."""
    found = list(dicts(messages))
    for message in reversed(found):
        texts = []
        for part in dicts(message.get("parts")):
            if part.get("type") == "text" and "content" in part:
                texts.append(str(part["content"]))
        if texts:
            return "\n".join(texts)
        content = message.get("content")
        if isinstance(content, str):
            return content
    return ""


def usage_of_spans(spans: Sequence[Span]) -> TokenUsage | None:
    """Return the tokens of all model calls.

    The usage of an agent is the sum over its model calls, so it only counts if no model call reports any.
    """
    models = [span for span in spans if _kind(span) == "model"]
    sums: dict[str, int] = {}
    for span in models:
        _add_tokens(sums, span)
    if not sums:
        for span in spans:
            if _kind(span) == "agent":
                _add_tokens(sums, span)
            if sums:
                break  # the usage of an outer agent includes that of the agents it calls
    if not sums:
        return None
    return TokenUsage(**sums)


def _add_tokens(sums: dict[str, int], span: Span) -> None:
    """Add the token counts that a span reports."""
    for name, keys in _TOKENS.items():
        value = _first(span.attributes, *keys)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if math.isfinite(value):
            sums[name] = sums.get(name, 0) + int(value)


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these attributes that is set, or None."""
    for name in names:
        value = attributes.get(name)
        if value is not None:
            return value
    return None
