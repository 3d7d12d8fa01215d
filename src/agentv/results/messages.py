"""Truncate long messages for results files, and recognize truncated ones."""

import re
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from agentv.files.encode import to_json
from agentv.records import FileBlock, Message, TextBlock, ToolCall

MAX_CHARACTERS = 4000
"""The most characters of a text, a tool input or a tool output in a results file without traces."""
SHORTENED = "the stored messages are truncated; run with --include-trace to keep them complete"
_MARKER = re.compile(r"… \[agentv: [\d,]+ characters omitted\]\Z")


def shorten_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with each long text, tool input and tool output shortened."""
    return tuple(_shorten_message(message) for message in messages)


def are_shortened(messages: Iterable[Message]) -> bool:
    """Return whether a part of the messages was shortened when they were stored."""
    for message in messages:
        if any(is_shortened(text) for text in _texts(message)):
            return True
        for call in message.tool_calls or ():
            if is_shortened(call.input) or is_shortened(call.output):
                return True
    return False


def is_shortened(value: Any) -> bool:
    """Return whether a text, a tool input or a tool output was shortened when it was stored."""
    return isinstance(value, str) and len(value) > MAX_CHARACTERS and _MARKER.search(value) is not None


def _texts(message: Message) -> list[Any]:
    content = message.content
    if isinstance(content, tuple):
        return [block.value for block in content]
    return [content]


def _shorten_message(message: Message) -> Message:
    calls = message.tool_calls
    if calls is not None:
        calls = tuple(_shorten_call(call) for call in calls)
    content = message.content
    if isinstance(content, tuple):
        content = tuple(_shorten_block(block) for block in content)
    else:
        content = _shorten(content)
    return replace(message, content=content, tool_calls=calls)


def _shorten_block(block: TextBlock | FileBlock) -> TextBlock | FileBlock:
    return replace(block, value=_shorten(block.value))


def _shorten_call(call: ToolCall) -> ToolCall:
    return replace(call, input=_shorten(call.input), output=_shorten(call.output))


def _shorten(value: Any) -> Any:
    """Return a value; if it is longer than the limit as text, return the start of that text and a marker."""
    if value is None or isinstance(value, bool | int | float):
        return value
    try:
        encoded = to_json(value)
    except (TypeError, ValueError, RecursionError):  # such as half a surrogate pair
        value = str(value).encode("utf-8", "replace").decode()
    text = value
    if not isinstance(value, str):
        text = encoded.decode()
    omitted = len(text) - MAX_CHARACTERS
    if omitted <= 0 or is_shortened(text):
        return value
    return f"{text[:MAX_CHARACTERS]}… [agentv: {omitted:,} characters omitted]"
