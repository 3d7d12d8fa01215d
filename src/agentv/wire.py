"""camelCase forms <-> snake_case ones. Conversion happens where data enters or leaves, nowhere else."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.records import Message, ProviderResponse, TokenUsage, TraceEvent

RESPONSE_FIELDS = ("text", "output_messages", "trace", "token_usage", "cost_usd", "duration_ms")
CALL_FIELDS = ("tool", "input", "output", "id", "timestamp")

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
    """The response that a mapping describes. Fields that we do not know, and events that are none, are ignored."""
    fields = {name: raw[key] for name, key in snake_keys(raw, RESPONSE_FIELDS).items() if name in RESPONSE_FIELDS}
    messages = _messages(fields.get("output_messages"))
    if "text" not in fields and messages is None:
        raise ProviderError("the answer has neither 'text' nor 'output_messages'")
    trace = fields.get("trace")
    return ProviderResponse(
        text=text_of(fields["text"]) if "text" in fields else _last_words(messages or ()),
        output_messages=messages,
        trace=tuple(_events(trace)) if isinstance(trace, Sequence) and not isinstance(trace, str) else None,
        token_usage=_typed(fields, "token_usage", TokenUsage | None),
        cost_usd=_typed(fields, "cost_usd", float | None),
        duration_ms=_typed(fields, "duration_ms", float | None),
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


def _messages(raw: Any) -> tuple[Message, ...] | None:
    if raw is None:
        return None
    try:
        return msgspec.convert([_renamed_calls(message) for message in raw], tuple[Message, ...], from_attributes=True)
    except (msgspec.ValidationError, TypeError) as error:
        raise ProviderError(f"output_messages: {error}") from error


def _renamed_calls(message: Any) -> Any:
    return (
        {name: message[key] for name, key in snake_keys(message, ("tool_calls",)).items()}
        if isinstance(message, Mapping)
        else message
    )


def _last_words(messages: Sequence[Message]) -> str:
    """What the assistant said last."""
    said = [message.content for message in messages if message.role == "assistant" and message.content is not None]
    return text_of(said[-1]) if said else ""


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


def _typed(fields: Mapping[str, Any], name: str, type_: Any) -> Any:
    try:
        return msgspec.convert(fields.get(name), type_, from_attributes=True)
    except msgspec.ValidationError as error:
        raise ProviderError(f"{name}: {error}") from error
