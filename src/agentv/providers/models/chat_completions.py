"""OpenAI's chat completions format, which OpenAI, Azure and many compatible servers use."""

from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.files.token_usage import read_usage
from agentv.providers.models.conversation import (
    Completion,
    Part,
    Prompt,
    Turn,
    content_filter_refusal,
    decode,
    json_or_text,
)
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import server_message
from agentv.records import Json, ToolCall

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""The fields in which compatible servers send the reasoning of a model."""
STREAMED_FIELDS = ("content", "refusal", *REASONING_FIELDS)
"""The fields of a message that come in pieces."""


class ChatCompletions:
    """The format of `/chat/completions`."""

    path = "/chat/completions"

    def body(
        self,
        model: str | None,
        settings: LanguageModelSettings,
        prompt: Prompt,
    ) -> Json:
        body: Json = {
            "model": model,
            "messages": [_message(turn) for turn in prompt.turns],
        }
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            body["max_completion_tokens"] = settings.max_output_tokens
        if settings.reasoning_effort is not None:
            body["reasoning_effort"] = settings.reasoning_effort
        if prompt.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": prompt.schema},
            }
        if settings.stream:
            body["stream_options"] = {"include_usage": True}
        return body

    def completion(self, reply: bytes) -> Completion:
        """Return the completion in a reply. Raise `ProviderError` if it has none."""
        found = decode(reply, _Reply)
        if not found.choices:
            raise ProviderError(f"the model returned no answer: its list of choices is empty: {server_message(reply)}")
        message = found.choices[0].message
        stop_reason = found.choices[0].finish_reason or ""
        text = _text(message)
        refusal = ""
        if message.refusal:
            refusal = f"the model refused: {message.refusal}"
        elif stop_reason == "content_filter":
            refusal = content_filter_refusal(text)
        usage = found.usage
        return Completion(
            text=text,
            calls=tuple(_call(call) for call in message.tool_calls or ()),
            reasoning=message.reasoning_content or message.reasoning or "",
            usage=read_usage(usage),
            cost_usd=None if usage is None else usage.cost,
            stop_reason=stop_reason,
            refusal=refusal,
        )

    def reader(self) -> "_ChunkReader":
        return _ChunkReader()


class _ChunkReader:
    """Joins the chunks of a stream."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._calls: dict[int, Json] = {}
        self._finish_reason: str | None = None
        self._usage: Any = None

    def add(self, event: Json) -> bool:
        self._usage = event.get("usage") or self._usage
        choices = event.get("choices") or [{}]
        choice: Json = choices[0]
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        delta = choice.get("delta") or {}
        has_piece = False
        for name in STREAMED_FIELDS:
            piece = delta.get(name)
            if piece:
                self._message[name] = self._message.get(name, "") + str(piece)
                has_piece = True
        for call in delta.get("tool_calls") or []:
            self._add_call(call)
            has_piece = True
        return has_piece

    def _add_call(self, call: Json) -> None:
        """Add a piece of a tool call. Pieces of the same call have the same index."""
        index = call.get("index", len(self._calls))
        known = self._calls.setdefault(index, {})
        known["id"] = call.get("id") or known.get("id")
        for kind in ("function", "custom"):
            pieces = call.get(kind) or {}
            for name, piece in pieces.items():
                fields = known.setdefault(kind, {})
                fields[name] = fields.get(name, "") + (piece or "")

    def reply(self) -> Json | None:
        if self._finish_reason is None:
            return None
        calls = [call for _, call in sorted(self._calls.items())]
        choice = {
            "message": self._message | {"tool_calls": calls or None},
            "finish_reason": self._finish_reason,
        }
        return {"choices": [choice], "usage": self._usage}


def _message(turn: Turn) -> dict[str, Any]:
    if turn.answers is not None:
        return {
            "role": "tool",
            "tool_call_id": turn.answers.id,
            "content": turn.text,
        }
    if turn.calls:
        return {
            "role": turn.role,
            "content": turn.text or None,
            "tool_calls": [_sent_call(call) for call in turn.calls],
        }
    if turn.parts:
        return {
            "role": turn.role,
            "content": [_content_part(part) for part in turn.parts],
        }
    return {"role": turn.role, "content": turn.text}


def _sent_call(call: ToolCall) -> Json:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.tool, "arguments": arguments(call.input)},
    }


def _content_part(part: Part) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.is_image:
        return {"type": "image_url", "image_url": {"url": part.data_url}}
    return {
        "type": "file",
        "file": {"filename": part.name, "file_data": part.data_url},
    }


def arguments(value: Any) -> str:
    """Return the input of a tool as JSON text, which is its form in a request."""
    if isinstance(value, str):
        return value
    if value is None:
        return "{}"
    return msgspec.json.encode(value).decode()


class _Named(msgspec.Struct):
    name: str
    arguments: str | None = None
    input: str | None = None


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Named | None = None
    custom: _Named | None = None


class _Message(msgspec.Struct):
    content: str | list[dict[str, Any]] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    cost: float | None = None
    """In USD. Some resellers of models report it."""


class _Reply(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


def _text(message: _Message) -> str:
    """Return the text of a message. Compatible servers may send it as a list of parts."""
    if not isinstance(message.content, list):
        return message.content or ""
    text = ""
    for part in message.content:
        if isinstance(part.get("text"), str):
            text += part["text"]
    return text


def _call(call: _Call) -> ToolCall:
    named = call.function or call.custom
    if named is None:
        raise ProviderError("the model's answer is malformed: it calls a tool without a name")
    text = named.arguments
    if text is None:
        text = named.input
    return ToolCall(
        tool=named.name,
        input=None if text is None else json_or_text(text),
        id=call.id,
    )
