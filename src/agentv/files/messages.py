"""Read messages in the shapes of OpenAI (chat completions and Responses), Anthropic and Gemini, or in agentv's own."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from agentv.files.dropped import DroppedParts
from agentv.files.encode import to_json
from agentv.files.plain import is_list, plain_mapping
from agentv.files.tool_calls import (
    Entry,
    ToolResult,
    call_with,
    is_mapping_at,
    is_result,
    looks_like_call,
    read_calls,
    read_result,
    type_of,
)
from agentv.records import FileBlock, Message, Role, TextBlock, ToolCall
from agentv.text import truncate

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""The roles of vendors and frameworks, mapped to agentv's."""
VENDOR_ROLES = ("developer", "human", "model", "ai", "function")
MESSAGE_TYPES = ("system", "human", "ai")
"""The types by which LangChain's messages name their role."""
TEXT_TYPES = ("", "text", "input_text", "output_text", "refusal", "summary_text")
THOUGHTS = ("reasoning", "reasoning_content", "thinking", "redacted_thinking")
"""Types of reasoning content, which is omitted."""
MAX_SHOWN_URL = 60
Block = TextBlock | FileBlock
Content = str | dict[str, Any] | tuple[Block, ...] | None


def read_messages(raw: Any, dropped: DroppedParts) -> tuple[Message, ...] | None:
    """Return the messages of a list, each call with its result; None if it is not a list.

    What cannot be read is counted in `dropped`.
    """
    if not is_list(raw):
        return None
    reader = _Reader(dropped)
    for entry in raw:
        reader.add(entry)
    return reader.finish()


def read_case_messages(raw: Any) -> tuple[Message, ...] | str:
    """Return the messages of a case, or a text that says why they cannot be used."""
    dropped = DroppedParts()
    if is_list(raw):
        for entry in raw:
            # A message that is neither ours nor a vendor's is probably a misspelled one of ours: report it.
            if not _is_own_message(entry) and not _has_vendor_shape(entry):
                dropped.add("messages", entry)
    messages = read_messages(raw, dropped)
    records = dropped.records()
    if records is not None:
        return f"a message has an unknown role or shape: {records[0].example}"
    if not messages:
        return "no messages"
    for message in messages:
        if message.content is None and not message.tool_calls:
            return "a message has no content"
        if not isinstance(message.content, tuple):
            continue
        for block in message.content:
            if isinstance(block, FileBlock) and block.value.startswith(("http://", "https://", "data:")):
                return f"an image is a URL or an id instead of a file: {truncate(block.value, MAX_SHOWN_URL)}"
    return messages


_CallPosition = tuple[int, int]
"""The number of a message, and the number of a tool call in it."""


class _Reader:
    """Reads messages one by one, and adds the results of tools to their calls at the end."""

    def __init__(self, dropped: DroppedParts):
        self._dropped = dropped
        self._messages: list[Message] = []
        self._last_calls: dict[str, _CallPosition] = {}
        """The last call with each id. Some servers use the same ids in each turn."""
        self._results: dict[_CallPosition, ToolResult] = {}
        self._unmatched: list[ToolResult] = []
        """The results without an id, and those that come before their calls."""

    def add(self, raw: Any) -> None:
        """Add a message, or an item of the Responses API that is a message, a tool call or the result of a tool."""
        if isinstance(raw, Message):
            self._append(raw)
            return
        entry = plain_mapping(raw)
        if entry is None:
            self._dropped.add("messages", raw)
            return
        entry = _unwrap(entry)
        if entry.get("role") is None and self._add_item(entry):
            return
        self._add_message(entry)

    def _add_item(self, entry: Entry) -> bool:
        """Add an entry that is a tool call or a result instead of a message. Return whether it is."""
        if type_of(entry) in THOUGHTS:
            return True
        if type_of(entry) in MESSAGE_TYPES:
            return False
        if is_result(entry):
            self._add_result(read_result(entry))
            return True
        if not looks_like_call(entry):
            return False
        calls = read_calls([entry], self._dropped)
        if calls:
            self._append(Message(role="assistant", tool_calls=tuple(calls)))
        return True

    def _add_message(self, entry: Entry) -> None:
        role = _role(entry)
        parts = _Parts(self, self._dropped)
        content = parts.read(_content(entry))
        calls = list(parts.calls)
        given_calls = entry.get("tool_calls", entry.get("toolCalls"))
        calls += read_calls(given_calls, self._dropped)
        if is_mapping_at(entry, "function_call"):
            calls += read_calls([entry["function_call"]], self._dropped)
        if role is None and not calls:
            self._dropped.add("messages", entry)
            return
        if role == "tool":
            self._add_tool_message(entry, content)
            if not calls:
                return
            role = "assistant"  # only an assistant calls tools
            content = None
        if content is None and not calls and parts.has_results:
            return  # a turn that only has results of tools, which have messages of their own
        name = entry.get("name")
        if not isinstance(name, str):
            name = None
        tool_calls = None
        if calls or is_list(given_calls):
            tool_calls = tuple(calls)
        message = Message(
            role=role or "assistant",
            content=content,
            name=name,
            tool_calls=tool_calls,
        )
        self._append(message)

    def _append(self, message: Message) -> None:
        for number, call in enumerate(message.tool_calls or ()):
            if call.id:
                self._last_calls[call.id] = (len(self._messages), number)
        self._messages.append(message)

    def _add_tool_message(self, entry: Entry, content: Content) -> None:
        """Add a message with the role `tool`, which has the result of a call."""
        result = read_result(entry)
        output: Any = content
        if isinstance(content, tuple):
            output = "".join(block.value for block in content)
        self._add_result(result._replace(output=output))

    def _add_result(self, result: ToolResult) -> None:
        """Add the result of a tool: as a message, and later to its call."""
        content = result.output
        if content is not None and not isinstance(content, str | dict):
            content = to_json(content).decode()
        message = Message(role="tool", content=content, name=result.name)
        self._messages.append(message)
        position = self._last_calls.get(result.id or "")
        if position is None:
            self._unmatched.append(result)
        else:
            self._results[position] = result

    def add_result(self, entry: Entry) -> None:
        """Add the result of a tool that is a part of a message."""
        self._add_result(read_result(entry))

    def finish(self) -> tuple[Message, ...]:
        """Return all messages, each call with its result."""
        if not self._results and not self._unmatched:
            return tuple(self._messages)
        by_id = {result.id: result for result in self._unmatched if result.id is not None}
        by_name: dict[str, list[ToolResult]] = {}
        for result in self._unmatched:
            if result.id is None and result.name is not None:
                by_name.setdefault(result.name, []).append(result)
        messages = []
        for message_number, message in enumerate(self._messages):
            if not message.tool_calls:
                messages.append(message)
                continue
            calls = []
            for number, call in enumerate(message.tool_calls):
                matching = self._results.get((message_number, number)) or by_id.get(call.id or "")
                if matching is None and by_name.get(call.tool):
                    matching = by_name[call.tool].pop(0)
                if matching is None or call.output is not None:
                    calls.append(call)
                else:
                    calls.append(call_with(call, matching))
            messages.append(replace(message, tool_calls=tuple(calls)))
        return tuple(messages)


class _Parts:
    """Reads the content of one message: its text and files, its tool calls, and results of tools."""

    def __init__(self, reader: _Reader, dropped: DroppedParts):
        self._reader = reader
        self._dropped = dropped
        self.calls: list[ToolCall] = []
        self.has_results = False

    def read(self, content: Any) -> Content:
        """Return the text and the files. Vendors' parts become one text if they are nothing else."""
        if content is None or isinstance(content, str):
            return content
        if not is_list(content):
            mapping = plain_mapping(content)
            if mapping is None:
                return to_json(content).decode()
            if "type" not in mapping or not looks_like_call(mapping):
                return dict(mapping)
            content = [mapping]
        blocks: list[Block] = []
        is_own = True
        for part in content:
            block = self._read_part(part)
            if block is not None:
                blocks.append(block)
            if not _is_own_block(part):
                is_own = False
        if is_own or any(isinstance(block, FileBlock) for block in blocks):
            return tuple(blocks)
        if not blocks:
            return None
        return "".join(block.value for block in blocks)

    def _read_part(self, raw: Any) -> Block | None:
        """Return the text or file in a part, or None if it is something else."""
        if isinstance(raw, str):
            return TextBlock(raw)
        if isinstance(raw, TextBlock | FileBlock):
            return raw
        part = plain_mapping(raw)
        if part is None:
            self._dropped.add("content", raw)
            return None
        is_thought = type_of(part) in THOUGHTS or part.get("thought") is True
        if is_thought:
            return None
        if is_result(part):
            self.has_results = True
            self._reader.add_result(part)
            return None
        block = _block(part)
        if block is None:
            self._read_call(part)
        return block

    def _read_call(self, part: Entry) -> None:
        """Add a part that is a tool call, or count it as dropped."""
        if looks_like_call(part):
            self.calls += read_calls([part], self._dropped)
        else:
            self._dropped.add("content", part)


def _is_own_message(entry: Any) -> bool:
    try:
        msgspec.convert(entry, Message)
    except msgspec.ValidationError:
        return False
    return True


def _has_vendor_shape(entry: Any) -> bool:
    """Return whether a message has a role, a key or a part that only messages of vendors have."""
    if not isinstance(entry, Mapping):
        return False
    role = entry.get("role")
    if role is None:
        return is_result(entry) or looks_like_call(entry) or type_of(entry) in MESSAGE_TYPES
    if role in VENDOR_ROLES or "parts" in entry or "function_call" in entry:
        return True
    parts = []
    for key in ("content", "tool_calls"):
        if is_list(entry.get(key)):
            parts += [part for part in entry[key] if isinstance(part, Mapping)]
    return any(map(_is_vendor_part, parts))


def _is_vendor_part(part: Mapping[str, Any]) -> bool:
    """Return whether this cannot be one of our parts: a tool call with `tool`, or a block with `value`."""
    if "text" in part:
        return True
    return "tool" not in part and "value" not in part


def _unwrap(entry: Entry) -> Entry:
    """Return the message inside a choice of OpenAI or a candidate of Gemini, or the entry itself."""
    if entry.get("role") is not None:
        return entry
    for key in ("message", "content"):
        inner = plain_mapping(entry.get(key))
        if inner is not None and inner.get("role") is not None:
            return inner
    return entry


def _role(entry: Entry) -> Role | None:
    role = entry.get("role")
    if role is None and type_of(entry) in MESSAGE_TYPES:
        role = type_of(entry)
    if isinstance(role, str):
        return ROLES.get(role)
    return None


def _content(entry: Entry) -> Any:
    """Return the content of a message: Gemini calls it `parts`, and OpenAI may have a refusal instead."""
    content = entry.get("content")
    if content is None and is_list(entry.get("parts")):
        return entry["parts"]
    if content is None and isinstance(entry.get("refusal"), str):
        return entry["refusal"]
    return content


def _is_own_block(part: Any) -> bool:
    if isinstance(part, TextBlock | FileBlock):
        return True
    return isinstance(part, Mapping) and part.get("type") in ("text", "file") and isinstance(part.get("value"), str)


def _block(part: Entry) -> Block | None:
    """Return a part that is a text or a file, or None if it is something else."""
    text = _text(part)
    if text is not None:
        return TextBlock(text)
    place = _file(part)
    if place is not None:
        return FileBlock(place)
    return None


def _text(part: Entry) -> str | None:
    """Return the text of a part, or None if it is not a text."""
    if type_of(part) not in TEXT_TYPES:
        return None
    for key in ("text", "value", "refusal"):
        text = part.get(key)
        if isinstance(text, str):
            return text
    return None


def _file(part: Entry) -> str | None:
    """Return the path, the URL or the id of an image or another file, or None if the part is something else."""
    if type_of(part) == "file" and isinstance(part.get("value"), str):
        return part["value"] or None
    for key in ("image_url", "source", "file", "inline_data", "inlineData", "file_data", "fileData"):
        place = _file_place(part.get(key))
        if place is not None:
            return place
    if type_of(part) in ("input_image", "input_file"):
        return _file_place(part)
    return None


def _file_place(raw: Any) -> str | None:
    if isinstance(raw, str):
        return raw or None
    source = plain_mapping(raw)
    if source is None:
        return None
    for key in ("url", "file_url", "file_uri", "fileUri", "filename", "file_id"):
        place = source.get(key)
        if isinstance(place, str) and place:
            return place
    data = source.get("data")
    if isinstance(data, str | bytes):
        kind = source.get("media_type") or source.get("mime_type") or source.get("mimeType") or ""
        return f"data:{kind};base64,{_base64(data)}"
    return None


def _base64(data: str | bytes) -> str:
    if isinstance(data, str):
        return data
    from base64 import b64encode

    return b64encode(data).decode()
