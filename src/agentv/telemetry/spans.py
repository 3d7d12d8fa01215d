"""Spans of OpenTelemetry -> what an agent answered and did.

Two conventions are understood: GenAI's (messages as events, up to 1.36, or as attributes, from 1.37 on) and
OpenInference's. Spans come from other programs: any attribute may be missing, or be something else.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from agentv.records import Json, ProviderResponse, TokenUsage, TraceEvent, TraceKind

MODEL_STEPS = ("chat", "text_completion", "generate_content")
ERROR_STATUS = 2
CASE_ID = "test.case.id"


class Span(NamedTuple):
    """One step of a program: when it began and ended, in nanoseconds, and what is known of it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    is_error: bool = False
    error: str = ""


def spans_of(document: Any) -> Iterator[Span]:
    """Yield the spans of an OTLP document that is given as JSON; what is no span is left out."""
    for resource in _dicts(document, "resourceSpans"):
        shared = _attributes(_get(resource, "resource", dict).get("attributes"))
        for scope in [*_dicts(resource, "scopeSpans"), *_dicts(resource, "instrumentationLibrarySpans")]:
            for raw in _dicts(scope, "spans"):
                if isinstance(raw.get("traceId"), str):
                    yield _span(raw, shared)


def _span(raw: Json, shared: Mapping[str, Any]) -> Span:
    status = _get(raw, "status", dict)
    events = [(str(event.get("name", "")), _attributes(event.get("attributes"))) for event in _dicts(raw, "events")]
    return Span(
        trace_id=raw["traceId"],
        span_id=str(raw.get("spanId") or ""),
        parent_id=str(raw.get("parentSpanId") or ""),
        name=str(raw.get("name") or ""),
        start=_whole(raw.get("startTimeUnixNano")),
        end=_whole(raw.get("endTimeUnixNano")),
        attributes=_attributes(raw.get("attributes")) | ({CASE_ID: shared[CASE_ID]} if CASE_ID in shared else {}),
        events=events,
        is_error=status.get("code") in (ERROR_STATUS, "STATUS_CODE_ERROR"),
        error=str(status.get("message") or ""),
    )


def is_complete(spans: Sequence[Span]) -> bool:
    """Return whether each span that has a parent has it among these, one root aside that began elsewhere."""
    known = {span.span_id for span in spans}
    return len({span.parent_id for span in spans if span.parent_id and span.parent_id not in known}) <= 1


def response_of_spans(spans: Sequence[Span]) -> ProviderResponse:
    """Return the answer of the agent whose spans these are, with its trace, its tokens and its time."""
    ordered = sorted(spans, key=lambda span: (span.start, -span.end))
    return ProviderResponse(
        text=_answer(ordered),
        trace=tuple(event for span in ordered if (event := _event(span)) is not None),
        token_usage=_usage(ordered),
        duration_ms=(max(span.end for span in ordered) - ordered[0].start) / 1e6 if ordered else None,
        trace_complete=None if is_complete(ordered) else False,
    )


def _kind(span: Span) -> str:
    """Return what a span is: `tool`, `model`, `agent`, or nothing of these."""
    operation = span.attributes.get("gen_ai.operation.name")
    kind = str(span.attributes.get("openinference.span.kind", "")).upper()
    if operation == "execute_tool" or kind == "TOOL":
        return "tool"
    if operation in MODEL_STEPS or kind == "LLM":
        return "model"
    return "agent" if operation in ("invoke_agent", "create_agent") or kind in ("AGENT", "CHAIN") else ""


def _event(span: Span) -> TraceEvent | None:
    kind, found = _kind(span), span.attributes
    metadata: Json = {"duration_ms": (span.end - span.start) / 1e6}
    if span.is_error:
        metadata |= {"is_error": True} | ({"error": span.error} if span.error else {})
    if span.parent_id:
        metadata["parent_id"] = span.parent_id
    at = datetime.fromtimestamp(span.start / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if kind == "tool":
        return TraceEvent(
            type="tool_call",
            timestamp=at,
            id=str(found.get("gen_ai.tool.call.id") or found.get("tool_call.id") or span.span_id),
            name=str(found.get("gen_ai.tool.name") or found.get("tool.name") or span.name),
            input=_value(_first(found, "gen_ai.tool.call.arguments", "tool.parameters", "input.value")),
            output=_value(_first(found, "gen_ai.tool.call.result", "output.value")),
            metadata=metadata,
        )
    if kind not in ("model", "agent"):
        return None
    name = _first(found, "gen_ai.request.model", "llm.model_name", "gen_ai.agent.name", "agent.name") or span.name
    text = _text(span)
    type_: TraceKind = "model_step" if kind == "model" else "message"
    if kind == "agent" and not text:
        return None
    return TraceEvent(type=type_, timestamp=at, id=span.span_id, name=str(name), text=text or None, metadata=metadata)


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
    if (messages := _value(found.get("gen_ai.output.messages"))) is not None:
        return _last_text(messages)
    for name, attributes in reversed(span.events):
        if name in ("gen_ai.choice", "gen_ai.assistant.message"):
            message = _value(attributes.get("message"))
            content = message.get("content") if isinstance(message, dict) else attributes.get("content")
            if isinstance(content, str) and content:
                return content
        if name == "gen_ai.client.inference.operation.details":
            return _last_text(_value(attributes.get("gen_ai.output.messages")))
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


def _usage(spans: Sequence[Span]) -> TokenUsage | None:
    """Return the tokens of all model steps; an agent's own are the sum of those, and count only if there are none."""
    for kind in ("model", "agent"):
        sums: dict[str, int] = {}
        for span in spans:
            if _kind(span) != kind:
                continue
            for name, keys in _TOKENS.items():
                value = _first(span.attributes, *keys)
                if isinstance(value, int | float) and not isinstance(value, bool):
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


def _value(text: Any) -> Any:
    """Return the value of a JSON text; any other value as it is."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text


def _attributes(raw: Any) -> dict[str, Any]:
    entries = raw if isinstance(raw, list) else ()
    return {
        entry["key"]: _any_value(entry.get("value"))
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("key"), str)
    }


def _any_value(raw: Any) -> Any:
    """Return the value of an OTLP `AnyValue`."""
    match raw:
        case {"stringValue": value} | {"boolValue": value} | {"doubleValue": value}:
            return value
        case {"intValue": value}:
            return _whole(value)
        case {"arrayValue": {"values": list(values)}}:
            return [_any_value(value) for value in values]
        case {"kvlistValue": {"values": list(values)}}:
            return _attributes(values)
    return None


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _dicts(value: Any, name: str) -> Iterator[Json]:
    found = value.get(name) if isinstance(value, dict) else None
    return (each for each in (found if isinstance(found, list) else ()) if isinstance(each, dict))


def _get(value: Json, name: str, type_: type) -> Any:
    found = value.get(name)
    return found if isinstance(found, type_) else type_()
