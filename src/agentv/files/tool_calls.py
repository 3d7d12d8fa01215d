"""Read tool calls and their results in the shapes of OpenAI, Anthropic and Gemini, or in agentv's own.

- agentv: `{"tool": "search", "input": {...}, "output": ..., "id": ...}`
- OpenAI, chat completions: `{"id": ..., "type": "function", "function": {"name": "search", "arguments": "{...}"}}`
- OpenAI, Responses: `{"type": "function_call", "call_id": ..., "name": "search", "arguments": "{...}"}`
- Anthropic: `{"type": "tool_use", "id": ..., "name": "search", "input": {...}}`
- Gemini: `{"functionCall": {"name": "search", "args": {...}}}`
- Bedrock: `{"toolUse": {"toolUseId": ..., "name": "search", "input": {...}}}`
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from agentv.files.dropped import DroppedParts
from agentv.files.encode import to_json
from agentv.files.plain import is_list, json_value, plain_mapping
from agentv.records import Json, ToolCall

Entry = Mapping[str, Any]
NAMES = ("tool", "name", "tool_name", "toolName")
"""The keys that may contain the name of the tool of a call."""
NESTED = ("function", "function_call", "functionCall", "toolUse", "custom")
"""The keys of a call that may contain an object with the name and the input."""
INPUTS = ("input", "args", "arguments", "parameters")
BUILT_IN_INPUTS = ("action", "queries", "query", "code")
"""The keys of the input of a vendor's own tool, such as `web_search_call`."""
IDS = ("call_id", "id", "tool_use_id", "tool_call_id", "toolCallId", "toolUseId")
RESULT_IDS = ("call_id", "tool_use_id", "tool_call_id", "toolCallId", "toolUseId", "id")
NESTED_RESULTS = ("functionResponse", "function_response", "toolResult")
"""The keys of a tool result that may contain an object with the id and the output."""
OUTPUTS = ("output", "content", "result", "response")
RESULT_ENDINGS = ("result", "output", "response")
NAMED_CALLS = ("function_call", "tool_call", "custom_tool_call", "mcp_call")
"""Types that end in `_call` and do not name the tool themselves, unlike `web_search_call`."""
NOT_CALLS = ("mcp_list_tools",)
"""Types that contain `tool` and are neither calls nor results."""


class ToolResult(NamedTuple):
    """What a tool returned."""

    id: str | None
    name: str | None
    output: Any
    is_error: bool


def looks_like_call(entry: Entry) -> bool:
    """Return whether an entry of a message or trace looks like a tool call, whether or not its name is readable."""
    if any(key in entry for key in ("tool", "function", "functionCall", "toolUse")):
        return True
    if "name" in entry and any(key in entry for key in ("input", "args", "arguments")):
        return True
    type_ = type_of(entry)
    if type_ in NOT_CALLS:
        return False
    if "tool" in type_ or "function" in type_:
        return True
    return _built_in_tool(type_) is not None or is_mapping_at(entry, "function_call")


def type_of(entry: Entry) -> str:
    """Return the type of an entry in lower case, or an empty text."""
    type_ = entry.get("type")
    if isinstance(type_, str):
        return type_.lower()
    return ""


def is_mapping_at(entry: Entry, key: str) -> bool:
    """Return whether an entry has an object under this key."""
    return plain_mapping(entry.get(key)) is not None


def read_calls(raw: Any, dropped: DroppedParts) -> list[ToolCall]:
    """Return the calls of a list whose entries are all tool calls. Count those without a readable name."""
    if not raw:
        return []
    if not is_list(raw):
        raw = [raw]
    calls = []
    for entry in raw:
        call = read_call(entry)
        if call is None:
            dropped.add("tool_calls", entry)
        else:
            calls.append(call)
    return calls


def read_call(raw: Any) -> ToolCall | None:
    """Return a tool call, or None if the name of its tool is not readable."""
    if isinstance(raw, ToolCall) and raw.tool:
        return raw
    entry = plain_mapping(raw)
    if entry is None:
        return None
    nested: Entry = {}
    for key in NESTED:
        found = plain_mapping(entry.get(key))
        if found is not None:
            nested = found
            break
    name = _first_text(nested, NAMES) or _first_text(entry, (*NAMES, "function")) or _built_in_tool(type_of(entry))
    if name is None:
        return None
    return ToolCall(
        tool=name,
        input=_input(entry, nested),
        output=_first(entry, ("output", "result")),
        id=_id(entry, IDS) or _id(nested, IDS),
        timestamp=valid_timestamp(entry.get("timestamp")),
        metadata=_metadata(entry),
    )


def is_result(entry: Entry) -> bool:
    """Return whether an entry is the result of a tool, such as `tool_result` or `function_call_output`."""
    if any(is_mapping_at(entry, key) for key in NESTED_RESULTS):
        return True
    type_ = type_of(entry)
    if type_ == "tool" and "tool_call_id" in entry:  # a message of LangChain
        return True
    if not type_.endswith(RESULT_ENDINGS):
        return False
    return "tool" in type_ or "function" in type_ or type_.endswith("_call_output")


def read_result(entry: Entry) -> ToolResult:
    """Return the result of a tool."""
    for key in NESTED_RESULTS:
        nested = plain_mapping(entry.get(key))
        if nested is not None:
            entry = nested
    is_error = entry.get("is_error") is True or entry.get("isError") is True
    return ToolResult(
        id=_id(entry, RESULT_IDS),
        name=_first_text(entry, NAMES),
        output=plain_output(_first(entry, OUTPUTS)),
        is_error=is_error,
    )


def plain_output(content: Any) -> Any:
    """Return the output of a tool. If it consists of text parts only, return the text."""
    if not isinstance(content, list) or not content:
        return content
    texts = []
    for part in content:
        text = None
        if isinstance(part, Mapping):
            text = part.get("text")
        if not isinstance(text, str):
            return content
        texts.append(text)
    return "\n".join(texts)


def call_with(call: ToolCall, result: ToolResult) -> ToolCall:
    """Return a call with its result."""
    metadata = call.metadata
    if result.is_error:
        metadata = {**(metadata or {}), "is_error": True}
    return ToolCall(
        tool=call.tool,
        input=call.input,
        output=result.output,
        id=call.id,
        timestamp=call.timestamp,
        metadata=metadata,
    )


def valid_timestamp(value: Any) -> str | None:
    """Return a timestamp in ISO 8601, or None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return None
    return value


def _built_in_tool(type_: str) -> str | None:
    """Return the name of a vendor's own tool: `web_search` for the type `web_search_call`."""
    if type_.endswith("_call") and type_ not in NAMED_CALLS:
        return type_.removesuffix("_call")
    return None


def _input(entry: Entry, nested: Entry) -> Any:
    """Return the input of a call. Only `arguments` in a text are decoded: any other text is the input itself."""
    for place in (nested, entry):
        for key in INPUTS:
            value = place.get(key)
            if value is None:
                continue
            if key == "arguments":
                return json_value(value)
            return value
    if _built_in_tool(type_of(entry)) is not None:
        return _first(entry, BUILT_IN_INPUTS)
    return None


def _metadata(entry: Entry) -> Json | None:
    """Return the metadata of a call, with a mark if the call failed."""
    metadata: Json = {}
    given = entry.get("metadata")
    if isinstance(given, Mapping):
        metadata.update(given)
    if entry.get("is_error") is True:
        metadata["is_error"] = True
    return metadata or None


def _id(entry: Entry, keys: tuple[str, ...]) -> str | None:
    value = _first(entry, keys)
    if value is None or isinstance(value, str):
        return value
    return to_json(value).decode()


def _first(entry: Entry, keys: tuple[str, ...]) -> Any:
    """Return the first value that is not None."""
    for key in keys:
        value = entry.get(key)
        if value is not None:
            return value
    return None


def _first_text(entry: Entry, keys: tuple[str, ...]) -> str | None:
    """Return the first value that is a text and not blank."""
    for key in keys:
        value = entry.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return None
