"""Convert responses between JSON, in camelCase or snake_case, and records.

Names are converted only where data enters or leaves agentv.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeGuard, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.records import Message, ProviderResponse, TextBlock, TokenUsage, ToolCall, TraceEvent

T = TypeVar("T")
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


def snake_keys(raw: Mapping[str, Any], known: Collection[str]) -> dict[str, str]:
    """Map each name to its key in `raw`. If both spellings are present, the snake_case key takes precedence."""
    keys: dict[str, str] = {}
    for key in raw:
        name = snake_name(key, known)
        if key == name or name not in keys:
            keys[name] = key
    return keys


def response_from(raw: Mapping[str, Any]) -> ProviderResponse:
    """Return the response that a mapping describes. Skip unknown fields, and invalid events and figures.

    Raise `ProviderError` if the mapping has neither a text nor messages.
    """
    fields = {}
    for name, key in snake_keys(raw, RESPONSE_FIELDS).items():
        if name in RESPONSE_FIELDS:
            fields[name] = raw[key]
    messages = _messages(fields.get("output_messages"))
    if "text" in fields:
        text = text_of(fields["text"])
    elif messages is not None:
        text = _last_assistant_text(messages)
    else:
        raise ProviderError("the answer has neither 'text' nor 'output_messages'")
    return ProviderResponse(
        text=text,
        output_messages=messages,
        trace=_trace(fields.get("trace")),
        token_usage=_usage(fields.get("token_usage")),
        cost_usd=_number(fields.get("cost_usd")),
        duration_ms=_number(fields.get("duration_ms")),
        ttft_ms=_number(fields.get("ttft_ms")),
        stop_reason=_stop_reason(fields.get("stop_reason")),
        note=_note(fields.get("note")),
        trace_complete=False if fields.get("trace_complete") is False else None,
    )


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
    return msgspec.json.encode(value, enc_hook=str).decode()


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


def _messages(raw: Any) -> tuple[Message, ...] | None:
    """Return the messages of an answer. Skip invalid ones: the answer itself is more important."""
    if not _is_list(raw):
        return None
    messages = []
    for entry in raw:
        message = _message(entry)
        if message is not None:
            messages.append(message)
    return tuple(messages)


def _message(raw: Any) -> Message | None:
    """Return a message, repaired if it has invalid parts, or None."""
    if not isinstance(raw, Mapping):
        return _convert_or_none(raw, Message)
    keys = snake_keys(raw, ("tool_calls",))
    fields = {name: raw[key] for name, key in keys.items()}
    message = _convert_or_none(fields, Message)
    if message is not None:
        return message
    fields["tool_calls"] = _calls(fields.get("tool_calls"))
    if not isinstance(fields.get("content"), str | dict | None):
        fields["content"] = text_of(fields["content"])  # content blocks of another kind than ours
    return _convert_or_none(fields, Message)


def _calls(raw: Any) -> list[ToolCall] | None:
    """Return the valid tool calls of a list; None if it is not a list."""
    if not _is_list(raw):
        return None
    calls = []
    for entry in raw:
        call = _call(entry)
        if call is not None:
            calls.append(call)
    return calls


def _call(raw: Any) -> ToolCall | None:
    if isinstance(raw, Mapping):
        fields = dict(raw)
        for name in ("id", "timestamp"):
            if name in fields:
                fields[name] = text_of(fields[name])
        raw = fields
    return _convert_or_none(raw, ToolCall)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _convert_or_none(value: Any, type_: type[T]) -> T | None:
    """Return the value as a `type_`, or None if it does not fit."""
    try:
        return msgspec.convert(value, type_, from_attributes=True)
    except msgspec.ValidationError:
        return None


def _last_assistant_text(messages: Sequence[Message]) -> str:
    """Return the content of the last assistant message that has any."""
    for message in reversed(messages):
        if message.role == "assistant" and message.content is not None:
            return _content_text(message.content)
    return ""


def _content_text(content: Any) -> str:
    """Return the content of a message as text: its lines if all blocks are text, or otherwise JSON."""
    if isinstance(content, tuple) and all(isinstance(block, TextBlock) for block in content):
        return "\n".join(block.value for block in content)
    return text_of(content)


def _trace(raw: Any) -> tuple[TraceEvent, ...] | None:
    """Return the valid events of a list; None if it is not a list."""
    if not _is_list(raw):
        return None
    events = []
    for entry in raw:
        try:
            events.append(_event(entry))
        except ValueError:  # includes msgspec.ValidationError
            continue
    return tuple(events)


def _event(raw: Any) -> TraceEvent:
    """Return an event; raise `ValueError` if it or its timestamp is invalid."""
    event = msgspec.convert(raw, TraceEvent, from_attributes=True)
    if event.timestamp is not None:
        datetime.fromisoformat(event.timestamp)
    return event


def _number(value: Any) -> float | None:
    """Return a finite number, also if it is written as text; otherwise None."""
    if isinstance(value, bool):
        return None
    try:
        number = msgspec.convert(value, float, strict=False)
    except msgspec.ValidationError:
        return None
    if not math.isfinite(number):
        return None
    return number


def _usage(value: Any) -> TokenUsage | None:
    """Return the token counts; None if there are none, or if they are not valid."""
    if isinstance(value, Mapping):
        counts = {}
        for name in TokenUsage.__struct_fields__:
            count = _number(value.get(name))
            if count is not None:
                counts[name] = round(count)
        value = counts
    if not value:
        return None
    return _convert_or_none(value, TokenUsage)


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
