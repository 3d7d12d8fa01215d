"""Find tool calls in the messages of models that spans record: what a model requested, and what tools returned.

Spans of tools often lack arguments and results, or are missing altogether. The messages of the model contain both.
GenAI's conventions (events up to 1.36, attributes from 1.37 on) and OpenInference's are supported.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentv.files.dropped import DroppedParts
from agentv.files.plain import json_value
from agentv.files.tool_calls import is_result, looks_like_call, read_calls
from agentv.records import Json, ToolCall
from agentv.telemetry.span import Span, dicts

OPERATION_DETAILS = "gen_ai.client.inference.operation.details"
"""An event that has the messages of a model call as attributes."""
ANSWER_EVENTS = ("gen_ai.choice", "gen_ai.assistant.message")
_OPENINFERENCE = re.compile(r"llm\.(?:in|out)put_messages\.(\d+)\.message\.(?:tool_calls\.(\d+)\.tool_call\.)?(.+)")


class ToolMessages(NamedTuple):
    """The tool calls in the messages of some spans, and the results that models were given, by call id."""

    calls: Mapping[str, tuple[ToolCall, Span]]
    results: Mapping[str, Any]
    dropped: DroppedParts
    """The calls without a readable name."""


def tool_messages(spans: Sequence[Span]) -> ToolMessages:
    """Return the tool calls that models requested, and the results that they were given."""
    calls: dict[str, tuple[ToolCall, Span]] = {}
    results: dict[str, Any] = {}
    dropped = DroppedParts()
    for span in spans:
        requested = list(_calls(span))
        for call in read_calls(requested, dropped):
            id_ = call.id or f"{span.span_id}/{len(calls)}"
            calls.setdefault(id_, (call, span))
        for id_, result in _results(span):
            results.setdefault(id_, result)
    return ToolMessages(calls, results, dropped)


def _calls(span: Span) -> Iterator[Json]:
    """Yield the tool calls that a model requested in a span, unchanged."""
    for message in _messages(span, "gen_ai.output.messages"):
        for part in dicts(message.get("parts")):
            if not is_result(part) and looks_like_call(part):
                yield part
    for name, attributes in span.events:
        if name in ANSWER_EVENTS:
            yield from _calls_of_event(attributes)
    for fields in _openinference(span, "llm.output_messages."):
        if "function.name" in fields:
            yield {
                "id": fields.get("id"),
                "name": fields["function.name"],
                "arguments": fields.get("function.arguments"),
            }


def _calls_of_event(attributes: Mapping[str, Any]) -> Iterator[Json]:
    """Yield the tool calls in an event, whose message is an attribute or the attributes themselves."""
    message = json_value(attributes.get("message"))
    if not isinstance(message, dict):
        message = attributes
    calls = json_value(message.get("tool_calls"))
    yield from dicts(calls)


def _results(span: Span) -> Iterator[tuple[str, Any]]:
    """Yield the call ids and results of tools that a model was given in a span."""
    for message in _messages(span, "gen_ai.input.messages"):
        for part in dicts(message.get("parts")):
            call_id = part.get("id")
            if part.get("type") == "tool_call_response" and isinstance(call_id, str):
                result = part.get("response", part.get("result"))
                yield call_id, json_value(result)
    for name, attributes in span.events:
        call_id = attributes.get("id")
        if name == "gen_ai.tool.message" and isinstance(call_id, str):
            yield call_id, json_value(attributes.get("content"))
    for fields in _openinference(span, "llm.input_messages."):
        call_id = fields.get("tool_call_id")
        if isinstance(call_id, str):
            yield call_id, json_value(fields.get("content"))


def _messages(span: Span, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the messages in an attribute of a span, or of an event of the span."""
    messages = json_value(span.attributes.get(name))
    yield from dicts(messages)
    for event, attributes in span.events:
        if event == OPERATION_DETAILS:
            messages = json_value(attributes.get(name))
            yield from dicts(messages)


def _openinference(span: Span, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each message and of each tool call in OpenInference's flat attributes, in order."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for key, value in span.attributes.items():
        if not key.startswith(prefix):
            continue
        match = _OPENINFERENCE.fullmatch(key)
        if match is None:
            continue
        # A field of the message itself has no call number: -1 sorts it before the calls.
        message_number, call_number, field = match.groups(default="-1")
        place = (int(message_number), int(call_number))
        found.setdefault(place, {})[field] = value
    for place in sorted(found):
        yield found[place]
