"""What a reviewer sees in addition to the text of an answer: the conversation, tool calls and file changes.

Files of other tools may contain anything: values that are neither a message nor a call are not shown. All values become
text, and secrets are masked.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from agentv.redact import clean


class ReviewToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a tool."""

    tool: str
    input: str | None
    output: str | None


class ReviewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: str
    text: str
    calls: tuple[ReviewToolCall, ...]


def shown_conversation(messages: Any, answer: str) -> tuple[ReviewMessage, ...]:
    """Return the messages of an answer; none if they contain nothing but its text."""
    shown = tuple(_messages(messages))
    if len(shown) == 1 and not shown[0].calls and shown[0].text.strip() == answer.strip():
        return ()
    return shown


def _messages(messages: Any) -> Iterator[ReviewMessage]:
    for message in _objects(messages):
        calls = []
        for call in _objects(message.get("tool_calls")):
            calls.append(_call(call.get("tool"), call.get("input"), call.get("output")))
        yield ReviewMessage(
            role=_text(message.get("role")) or "unknown",
            text=_content(message.get("content")),
            calls=tuple(calls),
        )


def shown_calls(trace: Any) -> tuple[ReviewToolCall, ...]:
    """Return the tool calls of a trace. The result of a call, which has the same id, becomes its output."""
    calls: list[ReviewToolCall] = []
    places: dict[str, int] = {}
    for event in _objects(trace):
        id_ = _text(event.get("id")) or ""
        output = event.get("output")
        if event.get("type") == "tool_result" and id_ in places:
            place = places[id_]
            calls[place] = msgspec.structs.replace(calls[place], output=_text(output))
        elif event.get("type") in ("tool_call", "tool_result"):
            if id_:
                places[id_] = len(calls)
            calls.append(_call(event.get("name"), event.get("input"), output))
    return tuple(calls)


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list; nothing if the value is not a list."""
    if isinstance(values, list):
        for value in values:
            if isinstance(value, dict):
                yield value


def _call(tool: Any, given: Any, output: Any) -> ReviewToolCall:
    return ReviewToolCall(
        tool=_text(tool) or "unknown",
        input=_text(given),
        output=_text(output),
    )


def _content(content: Any) -> str:
    """Return the content of a message: its text, or the text of its blocks and the names of its files."""
    if not isinstance(content, list):
        return _text(content) or ""
    lines = []
    for block in content:
        value = block
        if isinstance(block, dict):
            value = block.get("value", block)
        lines.append(_text(value) or "")
    return "\n".join(lines)


def _text(value: Any) -> str | None:
    """Return a value as masked text: a text unchanged, other values as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return clean(value)
    return json.dumps(clean.values(value), indent=2, ensure_ascii=False, default=str)
