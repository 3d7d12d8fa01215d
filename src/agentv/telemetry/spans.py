"""Spans of OpenTelemetry -> what an agent answered and did.

Two conventions are understood: GenAI's (messages as events, up to 1.36, or as attributes, from 1.37 on) and
OpenInference's. Spans come from other programs: any attribute may be missing, or be something else.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agentv.records import Json, ProviderResponse, TokenUsage, TraceEvent, TraceKind
from agentv.telemetry.messages import ToolMessages, json_value, tool_messages
from agentv.telemetry.span import Span

MODEL_STEPS = ("chat", "text_completion", "generate_content")
LATEST = 253_402_300_799.0
"""The last second that a date can name."""


def is_complete(spans: Sequence[Span]) -> bool:
    """Return whether each span that has a parent has it among these, one root aside that began elsewhere."""
    return len(missing_parents(spans)) <= 1


def missing_parents(spans: Sequence[Span]) -> set[str]:
    """Return the ids of the parents that are not among the spans."""
    return {span.parent_id for span in spans if span.parent_id} - {span.span_id for span in spans}


def response_of_spans(spans: Sequence[Span]) -> ProviderResponse:
    """Return the answer of the agent whose spans these are, with its trace, its tokens and its time."""
    ordered = _ordered(spans)
    return ProviderResponse(
        text=_answer(ordered),
        trace=trace_of_spans(ordered),
        token_usage=usage_of_spans(ordered),
        duration_ms=(max(span.end for span in ordered) - ordered[0].start) / 1e6 if ordered else None,
        trace_complete=None if is_complete(ordered) else False,
    )


def trace_of_spans(spans: Sequence[Span]) -> tuple[TraceEvent, ...]:
    """Return what an agent did, in the order in which it began each step.

    What a span of a tool does not tell is taken from what the model said; where no tool has a span, all of it is.
    """
    ordered, said = _ordered(spans), tool_messages(spans)
    agents = _Agents(ordered)
    asked: dict[str, list[str]] = {}
    if not any(_kind(span) == "tool" for span in ordered):
        for id_, (_, span) in said.calls.items():
            asked.setdefault(span.span_id, []).append(id_)
    trace: list[TraceEvent] = []
    for span in ordered:
        if (event := _event(span, said, agents.around(span))) is not None:
            trace.append(event)
        trace.extend(_said_call(id_, span, said) for id_ in asked.pop(span.span_id, ()))
    return tuple(trace)


def _ordered(spans: Sequence[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.start, -span.end))


def _kind(span: Span) -> str:
    """Return what a span is: `tool`, `model`, `agent`, or nothing of these."""
    operation = span.attributes.get("gen_ai.operation.name")
    kind = str(span.attributes.get("openinference.span.kind", "")).upper()
    if operation == "execute_tool" or kind == "TOOL":
        return "tool"
    if operation in MODEL_STEPS or kind == "LLM":
        return "model"
    return "agent" if operation in ("invoke_agent", "create_agent") or kind in ("AGENT", "CHAIN") else ""


class _Agents:
    """Tells which agent each span is a step of, where agents call others."""

    def __init__(self, spans: Sequence[Span]):
        self._spans = {span.span_id: span for span in spans}
        self._known: dict[str, str | None] = {}

    def around(self, span: Span) -> str | None:
        """Return the name of the innermost agent around a span, if it has one."""
        way: list[str] = []
        name: str | None = None
        at = span.parent_id
        while at not in self._known and (parent := self._spans.get(at)) is not None and len(way) < len(self._spans):
            own = _first(parent.attributes, "gen_ai.agent.name", "agent.name")
            if _kind(parent) == "agent" and isinstance(own, str):
                name = own
                break
            way.append(at)
            at = parent.parent_id
        else:
            name = self._known.get(at)
        self._known |= dict.fromkeys(way, name)
        return name


def _event(span: Span, said: ToolMessages, agent: str | None) -> TraceEvent | None:
    kind, found = _kind(span), span.attributes
    metadata: Json = {"duration_ms": (span.end - span.start) / 1e6}
    if span.is_error:
        metadata |= {"is_error": True} | ({"error": span.error} if span.error else {})
    if span.parent_id:
        metadata["parent_id"] = span.parent_id
    if agent is not None:
        metadata["agent"] = agent
    if kind == "tool":
        id_ = str(found.get("gen_ai.tool.call.id") or found.get("tool_call.id") or span.span_id)
        input_ = json_value(_first(found, "gen_ai.tool.call.arguments", "tool.parameters", "input.value"))
        output = json_value(_first(found, "gen_ai.tool.call.result", "output.value"))
        return TraceEvent(
            type="tool_call",
            timestamp=_time(span.start),
            id=id_,
            name=str(found.get("gen_ai.tool.name") or found.get("tool.name") or span.name),
            input=said.calls[id_][0].input if input_ is None and id_ in said.calls else input_,
            output=said.results.get(id_) if output is None else output,
            metadata=metadata,
        )
    if kind not in ("model", "agent"):
        return None
    name = _first(found, "gen_ai.request.model", "llm.model_name", "gen_ai.agent.name", "agent.name") or span.name
    text = _text(span)
    type_: TraceKind = "model_step" if kind == "model" else "message"
    if kind == "agent" and not text:
        return None
    return TraceEvent(
        type=type_,
        timestamp=_time(span.start),
        id=span.span_id,
        name=str(name),
        text=text or None,
        metadata=metadata,
    )


def _said_call(id_: str, span: Span, said: ToolMessages) -> TraceEvent:
    """Return a tool call that a model asked for in a span: it began when that ended."""
    call, _ = said.calls[id_]
    return TraceEvent(
        type="tool_call",
        timestamp=_time(span.end),
        id=id_,
        name=call.name,
        input=call.input,
        output=said.results.get(id_),
        metadata={"parent_id": span.span_id} if span.span_id else None,
    )


def _time(nanoseconds: int) -> str:
    seconds = min(max(nanoseconds / 1e9, 0.0), LATEST)
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _answer(spans: Sequence[Span]) -> str:
    """Return what the outermost agent said, else what a model said last."""
    for span in spans:
        if _kind(span) == "agent" and (text := _text(span)):
            return text
    said = [
        text for span in sorted(spans, key=lambda span: span.end) if _kind(span) == "model" and (text := _text(span))
    ]
    return said[-1] if said else ""


def _text(span: Span) -> str:
    """Return what was said at the end of a span, in either convention."""
    found = span.attributes
    if (messages := json_value(found.get("gen_ai.output.messages"))) is not None:
        return _last_text(messages)
    for name, attributes in reversed(span.events):
        if name in ("gen_ai.choice", "gen_ai.assistant.message"):
            message = json_value(attributes.get("message"))
            content = message.get("content") if isinstance(message, dict) else attributes.get("content")
            if isinstance(content, str) and content:
                return content
        if name == "gen_ai.client.inference.operation.details":
            return _last_text(json_value(attributes.get("gen_ai.output.messages")))
    numbers = [key for key in found if key.startswith("llm.output_messages.") and key.endswith(".message.content")]
    if numbers:
        return str(found[max(numbers)])
    output = found.get("output.value")
    return output if isinstance(output, str) else ""


def _last_text(messages: Any) -> str:
    """Return the text of the last message of a model, by the parts that it consists of."""
    for message in reversed(messages if isinstance(messages, list) else []):
        parts = message.get("parts") if isinstance(message, dict) else None
        texts = [
            str(part["content"])
            for part in parts or ()
            if isinstance(part, dict) and part.get("type") == "text" and "content" in part
        ]
        if texts:
            return "\n".join(texts)
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            return str(message["content"])
    return ""


def usage_of_spans(spans: Sequence[Span]) -> TokenUsage | None:
    """Return the tokens of all model steps; an agent's own are the sum of those, and count only if there are none."""
    for kind in ("model", "agent"):
        sums: dict[str, int] = {}
        for span in spans:
            if _kind(span) != kind:
                continue
            for name, keys in _TOKENS.items():
                value = _first(span.attributes, *keys)
                if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                    sums[name] = sums.get(name, 0) + int(value)
            if kind == "agent" and sums:
                break
        if sums:
            return TokenUsage(**sums)
    return None


_TOKENS = {
    "input": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "output": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "cached": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "reasoning": ("gen_ai.usage.reasoning.output_tokens", "llm.token_count.completion_details.reasoning"),
}


def _first(attributes: Mapping[str, Any], *names: str) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)
