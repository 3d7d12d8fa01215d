"""Convert responses between JSON, in camelCase or snake_case, and records.

Names are converted only where data enters or leaves agentv.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.files.dropped import DroppedParts
from agentv.files.encode import to_json
from agentv.files.messages import read_messages
from agentv.files.plain import is_list, json_mapping, plain_mapping
from agentv.files.token_usage import read_figure, read_usage
from agentv.files.tool_calls import read_calls
from agentv.files.trace_events import read_trace
from agentv.records import Json, Message, ProviderResponse, TextBlock, ToolCall

RESPONSE_FIELDS = (
    "text",
    "output_messages",
    "trace",
    "token_usage",
    "cost_usd",
    "duration_ms",
    "ttft_ms",
    "stop_reason",
    "note",
    "trace_complete",
    "metadata",
    "tool_calls",
    "usage",
)
STOP_REASONS = ("stop", "length", "tool_calls", "refusal", "other")
CUT_OFF = ("max_tokens", "MAX_TOKENS", "max_output_tokens")
"""Vendors' stop reasons for answers that were cut off at the token limit, in addition to `length`."""

_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")


def snake_name(name: str, known: Collection[str]) -> str:
    """Return the snake_case form of a known name, and any other name unchanged."""
    snake = _HUMP.sub(lambda hump: f"_{hump.group().lower()}", name)
    if snake in known:
        return snake
    return name


def camel_name(name: str) -> str:
    """Return the camelCase form of a snake_case name."""
    first, *rest = name.split("_")
    capitalized = map(str.capitalize, rest)
    return first + "".join(capitalized)


def snake_keys(
    raw: Mapping[str, Any],
    known: Collection[str],
) -> dict[str, str]:
    """Map each name to its key in `raw`. If both spellings are present, the snake_case key takes precedence."""
    keys: dict[str, str] = {}
    for key in raw:
        name = snake_name(key, known)
        if key == name or name not in keys:
            keys[name] = key
    return keys


def response_from(raw: Mapping[str, Any], *, counts_unknown: bool = False) -> ProviderResponse:
    """Return the response that a mapping describes. What cannot be read is counted in its `dropped`.

    With `counts_unknown`, so are unknown keys. Raise `ProviderError` if the mapping has neither a text nor messages.
    """
    fields = {}
    unknown = []
    for name, key in snake_keys(raw, RESPONSE_FIELDS).items():
        if name in RESPONSE_FIELDS:
            fields[name] = raw[key]
        else:
            unknown.append(key)
    dropped = DroppedParts()
    if counts_unknown and unknown:
        dropped.add_keys(unknown)
    messages = _messages(fields, dropped)
    if "text" in fields:
        text = text_of(fields["text"])
    elif messages is not None:
        text = _last_assistant_text(messages)
    else:
        raise ProviderError("the answer has neither 'text' nor 'output_messages'")
    trace = read_trace(fields.get("trace"), dropped)
    if fields.get("trace") is not None and trace is None:
        dropped.add("trace_events", fields["trace"])
    trace_complete = None
    if fields.get("trace_complete") is False or dropped.has("tool_calls"):
        trace_complete = False
    response = ProviderResponse(
        text=text,
        output_messages=messages,
        trace=trace,
        token_usage=read_usage(fields.get("token_usage", fields.get("usage")), dropped),
        cost_usd=read_figure("cost_usd", fields.get("cost_usd"), dropped),
        duration_ms=read_figure("duration_ms", fields.get("duration_ms"), dropped),
        ttft_ms=read_figure("ttft_ms", fields.get("ttft_ms"), dropped),
        stop_reason=_stop_reason(fields.get("stop_reason")),
        note=_note(fields.get("note")),
        trace_complete=trace_complete,
        metadata=_metadata(fields.get("metadata"), dropped),
    )
    return with_dropped(response, dropped)


def vendor_fields(raw: Mapping[str, Any] | None) -> Json | None:
    """Return our fields of a whole response of a vendor's SDK; None if it is not one.

    The messages are the first choice of OpenAI or Gemini, the items of the Responses API, or a message itself.
    """
    if raw is None:
        return None
    messages: Sequence[Any] = ()
    answer = raw
    choices = _choices(raw)
    if choices:
        messages = choices[:1]
        answer = plain_mapping(choices[0]) or {}
    elif raw.get("role") is not None:
        messages = (raw,)
    if is_list(raw.get("output")):
        messages = raw["output"]
    if not messages:
        return None
    usage = raw.get("usage") or raw.get("usage_metadata")
    stop_reason = answer.get("stop_reason") or answer.get("finish_reason")
    return {"output_messages": messages, "usage": usage, "stop_reason": stop_reason}


def _choices(raw: Mapping[str, Any]) -> Sequence[Any]:
    """Return the choices of a response of Gemini or OpenAI, or an empty list."""
    for key in ("candidates", "choices"):
        choices = raw.get(key)
        if is_list(choices) and choices:
            return choices
    return ()


def with_dropped(response: ProviderResponse, dropped: DroppedParts) -> ProviderResponse:
    """Return a response with what was dropped from it. Figures that were rejected are also in its note."""
    records = dropped.records()
    if records is None:
        return response
    note = response.note
    for record in records:
        if record.kind == "figures":
            rejected = f"rejected figures ({record.count}), such as {record.example}"
            note = "; ".join(filter(None, (note, rejected)))
    return msgspec.structs.replace(response, note=note, dropped=records)


def checked_response(response: ProviderResponse) -> ProviderResponse:
    """Return a response that user code has made, without negative figures."""
    dropped = DroppedParts()
    figures = {}
    for name in ("cost_usd", "duration_ms", "ttft_ms"):
        figures[name] = read_figure(name, getattr(response, name), dropped)
    usage = read_usage(response.token_usage, dropped)
    metadata = _metadata(response.metadata, dropped)
    if dropped.records() is None and metadata == response.metadata:
        return response
    response = msgspec.structs.replace(response, token_usage=usage, metadata=metadata, **figures)
    return with_dropped(response, dropped)


def _messages(fields: Mapping[str, Any], dropped: DroppedParts) -> tuple[Message, ...] | None:
    """Return the messages of an answer, including the tool calls that it lists beside its text."""
    messages = read_messages(fields.get("output_messages"), dropped)
    if fields.get("output_messages") is not None and messages is None:
        dropped.add("messages", fields["output_messages"])
    if not fields.get("tool_calls"):
        return messages
    known: list[ToolCall] = []
    for message in messages or ():
        known += message.tool_calls or ()
    calls = []
    for call in read_calls(fields["tool_calls"], dropped):
        repeated = _same_call(call, known)
        if repeated is None:
            calls.append(call)
        else:
            known.remove(repeated)
    if not calls:
        return messages
    message = Message(role="assistant", tool_calls=tuple(calls))
    return (*(messages or ()), message)


def _same_call(call: ToolCall, calls: Sequence[ToolCall]) -> ToolCall | None:
    """Return the call among others that this one repeats, perhaps without its input; None if there is none."""
    for other in calls:
        if other.tool == call.tool and (other.input == call.input or not call.input or not other.input):
            return other
    return None


def _metadata(value: Any, dropped: DroppedParts) -> Json | None:
    if value is None:
        return None
    metadata = json_mapping(value)
    if metadata is None:
        dropped.add("metadata", value)
    return metadata or None


def answer_from(data: bytes) -> ProviderResponse:
    """Return the response that a program wrote: a JSON object with our fields, or otherwise plain text."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    plain = ProviderResponse(text=text)
    if not text.lstrip().startswith("{"):
        return plain
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return plain
    names = snake_keys(raw, RESPONSE_FIELDS)
    if "text" in names or "output_messages" in names:
        return response_from(raw)
    return plain


def response_json(response: ProviderResponse) -> bytes:
    """Return a response as JSON in camelCase. The inputs and outputs of tools are unchanged."""
    raw = msgspec.to_builtins(response)
    for message in raw.get("outputMessages") or ():
        if "tool_calls" in message:
            message["toolCalls"] = message.pop("tool_calls")
    return msgspec.json.encode(raw)


def text_of(value: Any) -> str:
    """Return a string unchanged, and anything else as JSON."""
    if isinstance(value, str):
        return value
    return to_json(value).decode()


def _note(value: Any) -> str | None:
    if isinstance(value, str) and value:
        return value
    return None


def _stop_reason(value: Any) -> str | None:
    """Return one of `STOP_REASONS`; None if the value is not a text, or empty."""
    if not isinstance(value, str) or not value:
        return None
    if value in STOP_REASONS:
        return value
    if value in CUT_OFF:
        return "length"
    return "other"


def _last_assistant_text(messages: Sequence[Message]) -> str:
    """Return the content of the last assistant message that has any."""
    for message in reversed(messages):
        if message.role == "assistant" and message.content is not None:
            return _content_text(message.content)
    return ""


def _content_text(content: Any) -> str:
    """Return the content of a message as text: its lines if all blocks are text, or otherwise JSON."""
    if not isinstance(content, tuple):
        return text_of(content)
    if not all(isinstance(block, TextBlock) for block in content):
        return text_of(content)
    return "\n".join(block.value for block in content)


def mended_json(text: bytes) -> bytes | None:
    """Replace the lone surrogates in JSON, and return it; None if it is invalid or did not change.

    Programs in JavaScript write half a surrogate pair when they cut a text in the middle of a character.
    """
    import json

    try:
        value = json.loads(text.decode("utf-8", "replace"))
        dumped = json.dumps(value, ensure_ascii=False)
        repaired = dumped.encode("utf-8", "replace")
        msgspec.json.decode(repaired)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if repaired == text:
        return None
    return repaired
