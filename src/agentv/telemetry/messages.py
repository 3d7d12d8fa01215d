"""What models said, as spans tell it -> the tool calls in it: what a model asked for, and what tools returned.

Spans of tools often lack arguments and results, or are not there at all, where only the calls of the model are
recorded. Both are in the messages: in those of GenAI (events up to 1.36, attributes from 1.37 on) and OpenInference.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from agentv.telemetry.span import Span

_OPENINFERENCE = re.compile(r"llm\.(?:in|out)put_messages\.(\d+)\.message\.(?:tool_calls\.(\d+)\.tool_call\.)?(.+)")


class SaidCall(NamedTuple):
    """A tool call in a message of a model."""

    id: str
    name: str
    input: Any


class ToolMessages(NamedTuple):
    """The tool calls in the messages of some spans, each by its id."""

    calls: Mapping[str, tuple[SaidCall, Span]]
    results: Mapping[str, Any]


def tool_messages(spans: Sequence[Span]) -> ToolMessages:
    """Return the tool calls that models asked for, and what they were told of their results."""
    calls: dict[str, tuple[SaidCall, Span]] = {}
    results: dict[str, Any] = {}
    for span in spans:
        for call in _calls(span):
            calls.setdefault(call.id or f"{span.span_id}/{len(calls)}", (call, span))
        for id_, result in _results(span):
            results.setdefault(id_, result)
    return ToolMessages(calls, results)


def _calls(span: Span) -> Iterator[SaidCall]:
    for message in _messages(span, "gen_ai.output.messages"):
        for part in dicts(message.get("parts")):
            if part.get("type") == "tool_call":
                yield _call(part.get("id"), part.get("name"), part.get("arguments"))
    for name, attributes in span.events:
        if name in ("gen_ai.choice", "gen_ai.assistant.message"):
            inner = json_value(attributes.get("message"))
            said = inner if isinstance(inner, dict) else attributes
            for call in dicts(json_value(said.get("tool_calls"))):
                function = call.get("function")
                if isinstance(function, dict):
                    yield _call(call.get("id"), function.get("name"), function.get("arguments"))
    for fields in _openinference(span, "llm.output_messages."):
        if "function.name" in fields:
            yield _call(fields.get("id"), fields["function.name"], fields.get("function.arguments"))


def _results(span: Span) -> Iterator[tuple[str, Any]]:
    for message in _messages(span, "gen_ai.input.messages"):
        for part in dicts(message.get("parts")):
            if part.get("type") == "tool_call_response" and isinstance(part.get("id"), str):
                yield part["id"], json_value(part.get("response", part.get("result")))
    for name, attributes in span.events:
        if name == "gen_ai.tool.message" and isinstance(attributes.get("id"), str):
            yield attributes["id"], json_value(attributes.get("content"))
    for fields in _openinference(span, "llm.input_messages."):
        if isinstance(fields.get("tool_call_id"), str):
            yield fields["tool_call_id"], json_value(fields.get("content"))


def _call(id_: Any, name: Any, input_: Any) -> SaidCall:
    return SaidCall(str(id_ or ""), str(name or "unknown"), json_value(input_))


def _messages(span: Span, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of an attribute, which may be the span's or that of its event."""
    yield from dicts(json_value(span.attributes.get(name)))
    for event, attributes in span.events:
        if event == "gen_ai.client.inference.operation.details":
            yield from dicts(json_value(attributes.get(name)))


def _openinference(span: Span, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each tool call, or message, of OpenInference's flat attributes."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for key, value in span.attributes.items():
        if key.startswith(prefix) and (match := _OPENINFERENCE.fullmatch(key)):
            place = int(match[1]), int(match[2] if match[2] is not None else -1)
            found.setdefault(place, {})[match[3]] = value
    yield from (found[place] for place in sorted(found))


def dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list, if it is one."""
    return (each for each in (value if isinstance(value, list) else ()) if isinstance(each, dict))


def json_value(text: Any) -> Any:
    """Return the value of a JSON text; any other value as it is."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
