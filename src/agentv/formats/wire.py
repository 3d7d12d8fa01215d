"""camelCase forms <-> snake_case ones. Conversion happens where data enters or leaves, nowhere else."""

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
"""What vendors call an answer that was cut off at the token limit, besides `length`."""

_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")


def snake_name(name: str, known: Collection[str]) -> str:
    """The snake_case form of a known name; any other name stays as it is."""
    snake = _HUMP.sub(lambda hump: f"_{hump.group().lower()}", name)
    return snake if snake in known else name


def camel_name(name: str) -> str:
    """The camelCase form of a snake_case name."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def snake_keys(raw: Mapping[str, Any], known: Collection[str]) -> dict[str, str]:
    """By which key of `raw` each name is given; where both spellings stand, by the snake_case one."""
    keys: dict[str, str] = {}
    for key in raw:
        name = snake_name(key, known)
        if key == name or name not in keys:
            keys[name] = key
    return keys


def response_from(raw: Mapping[str, Any]) -> ProviderResponse:
    """The response that a mapping describes. Fields, events and figures that we do not understand are left out."""
    fields = {name: raw[key] for name, key in snake_keys(raw, RESPONSE_FIELDS).items() if name in RESPONSE_FIELDS}
    messages = _messages(fields.get("output_messages"))
    if "text" not in fields and messages is None:
        raise ProviderError("the answer has neither 'text' nor 'output_messages'")
    trace = fields.get("trace")
    return ProviderResponse(
        text=text_of(fields["text"]) if "text" in fields else _last_words(messages or ()),
        output_messages=messages,
        trace=tuple(_events(trace)) if _is_list(trace) else None,
        token_usage=_usage(fields.get("token_usage")),
        cost_usd=_number(fields.get("cost_usd")),
        duration_ms=_number(fields.get("duration_ms")),
        ttft_ms=_number(fields.get("ttft_ms")),
        stop_reason=_stop_reason(fields.get("stop_reason")),
        note=note if isinstance(note := fields.get("note"), str) and note else None,
        trace_complete=False if fields.get("trace_complete") is False else None,
    )


def answer_from(data: bytes) -> ProviderResponse:
    """The response that a program wrote: a JSON object with our fields, or else the text as it stands."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    if text.lstrip().startswith("{"):
        try:
            raw = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return ProviderResponse(text=text)
        if not snake_keys(raw, RESPONSE_FIELDS).keys().isdisjoint(("text", "output_messages")):
            return response_from(raw)
    return ProviderResponse(text=text)


def response_json(response: ProviderResponse) -> bytes:
    """A response as JSON, in camelCase throughout; what tools were given and gave back stays as it is."""
    raw = msgspec.to_builtins(response)
    for message in raw.get("outputMessages") or ():
        if "tool_calls" in message:
            message["toolCalls"] = message.pop("tool_calls")
    return msgspec.json.encode(raw)


def text_of(value: Any) -> str:
    """A text as it is; anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _stop_reason(value: Any) -> str | None:
    """A stop reason in our words; any other text is `other`."""
    if not isinstance(value, str) or not value:
        return None
    return value if value in STOP_REASONS else "length" if value in CUT_OFF else "other"


def _messages(raw: Any) -> tuple[Message, ...] | None:
    """The messages of an answer. What is none is left out, as with events: the answer itself is worth more."""
    if not _is_list(raw):
        return None
    return tuple(message for entry in raw if (message := _message(entry)))


def _message(raw: Any) -> Message | None:
    if not isinstance(raw, Mapping):
        return _fitting(raw, Message)
    fields = {name: raw[key] for name, key in snake_keys(raw, ("tool_calls",)).items()}
    if (message := _fitting(fields, Message)) is not None:
        return message
    calls = fields.get("tool_calls")
    fields["tool_calls"] = [call for entry in calls if (call := _call(entry))] if _is_list(calls) else None
    if not isinstance(fields.get("content"), str | dict | None):
        fields["content"] = text_of(fields["content"])  # blocks of another kind than ours
    return _fitting(fields, Message)


def _call(raw: Any) -> ToolCall | None:
    if isinstance(raw, Mapping):
        raw = {name: text_of(raw[name]) if name in ("id", "timestamp") else raw[name] for name in raw}
    return _fitting(raw, ToolCall)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _fitting(value: Any, type_: type[T]) -> T | None:
    """The value as a `type_`, or nothing."""
    try:
        return msgspec.convert(value, type_, from_attributes=True)
    except msgspec.ValidationError:
        return None


def _last_words(messages: Sequence[Message]) -> str:
    """What the assistant said last."""
    said = [message.content for message in messages if message.role == "assistant" and message.content is not None]
    last = said[-1] if said else ""
    if isinstance(last, tuple) and all(isinstance(block, TextBlock) for block in last):
        return "\n".join(block.value for block in last)
    return text_of(last)


def _events(trace: Sequence[Any]) -> list[TraceEvent]:
    found = []
    for event in trace:
        try:
            found.append(_event(event))
        except ValueError:  # of which msgspec's is one
            continue
    return found


def _event(raw: Any) -> TraceEvent:
    event = msgspec.convert(raw, TraceEvent, from_attributes=True)
    if event.timestamp is not None:
        datetime.fromisoformat(event.timestamp)
    return event


def _number(value: Any) -> float | None:
    """A finite number, be it written as text; anything else tells nothing."""
    try:
        number = msgspec.convert(value, float, strict=False)
    except msgspec.ValidationError:
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


def _usage(value: Any) -> TokenUsage | None:
    if isinstance(value, Mapping):
        counts = {name: _number(value.get(name)) for name in TokenUsage.__struct_fields__}
        value = {name: round(count) for name, count in counts.items() if count is not None}
    return _fitting(value, TokenUsage) if value else None


def mended_json(text: bytes) -> bytes | None:
    """JSON in which a text was cut in the middle of a character, as programs in JavaScript do, without that half."""
    import json

    try:
        mended = json.dumps(json.loads(text.decode("utf-8", "replace")), ensure_ascii=False)
        found = mended.encode("utf-8", "replace")
        msgspec.json.decode(found)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return None if found == text else found
