"""OpenAI's chat completions, as OpenAI itself, Azure and many others speak them."""

from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.providers.models.conversation import Completion, Part, Prompt, Turn, decode, parse_json
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import server_message
from agentv.records import Json, TokenUsage, ToolCall

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where compatible servers tell what a model thought."""


class ChatCompletions:
    """The format of `/chat/completions`."""

    path = "/chat/completions"

    def body(self, model: str | None, settings: LanguageModelSettings, prompt: Prompt) -> Json:
        body: Json = {"model": model, "messages": [_message(turn) for turn in prompt.turns]}
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            body["max_completion_tokens"] = settings.max_output_tokens
        if settings.reasoning_effort is not None:
            body["reasoning_effort"] = settings.reasoning_effort
        if prompt.schema is not None:
            schema = {"name": "answer", "schema": prompt.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if settings.stream:
            body["stream_options"] = {"include_usage": True}
        return body

    def completion(self, reply: bytes) -> Completion:
        """Return the completion in a reply; raise `ProviderError` if there is none."""
        found = decode(reply, _Reply)
        if not found.choices:
            raise ProviderError(f"the model gave no answer: its list of choices is empty: {server_message(reply)}")
        message, stop_reason = found.choices[0].message, found.choices[0].finish_reason or ""
        text, reasoning = _texts(message)
        refusal = f"the model refused: {message.refusal}" if message.refusal else ""
        if stop_reason == "content_filter" and not refusal:
            refusal = f"the model refused: a content filter stopped it{f' after {text!r}' if text else ''}"
        usage = found.usage
        return Completion(
            text=text,
            calls=tuple(_call(call) for call in message.tool_calls or ()),
            reasoning=reasoning,
            usage=None if usage is None else _tokens(usage),
            cost_usd=None if usage is None else usage.cost,
            stop_reason=stop_reason,
            refusal=refusal,
        )

    def reader(self) -> "_ChunkReader":
        return _ChunkReader()


class _ChunkReader:
    """Puts the chunks of a stream together."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._calls: dict[int, Json] = {}
        self._finish_reason: str | None = None
        self._usage: Any = None

    def add(self, event: Json) -> bool:
        self._usage = event.get("usage") or self._usage
        choice: Json = next(iter(event.get("choices") or ()), {})
        self._finish_reason = choice.get("finish_reason") or self._finish_reason
        delta = choice.get("delta") or {}
        pieces = {name: delta[name] for name in ("content", "refusal", *REASONING_FIELDS) if delta.get(name)}
        for name, piece in pieces.items():
            self._message[name] = self._message.get(name, "") + str(piece)
        calls = delta.get("tool_calls") or []
        for call in calls:
            self._add_call(call)
        return bool(pieces or calls)

    def _add_call(self, call: Json) -> None:
        known = self._calls.setdefault(call.get("index", len(self._calls)), {})
        known["id"] = call.get("id") or known.get("id")
        for kind in ("function", "custom"):
            for name, piece in (call.get(kind) or {}).items():
                made = known.setdefault(kind, {})
                made[name] = made.get(name, "") + (piece or "")

    def reply(self) -> Json | None:
        if self._finish_reason is None:
            return None
        message = self._message | {"tool_calls": [call for _, call in sorted(self._calls.items())] or None}
        return {"choices": [{"message": message, "finish_reason": self._finish_reason}], "usage": self._usage}


def _message(turn: Turn) -> dict[str, Any]:
    if turn.answers is not None:
        return {"role": "tool", "tool_call_id": turn.answers.id, "content": turn.text}
    content = [_content_part(part) for part in turn.parts] if turn.parts else turn.text
    message: dict[str, Any] = {"role": turn.role, "content": content}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments(call.input)}}
            for call in turn.calls
        ]
        message["content"] = turn.text or None
    return message


def _content_part(part: Part) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.is_image:
        return {"type": "image_url", "image_url": {"url": part.data_url}}
    return {"type": "file", "file": {"filename": part.name, "file_data": part.data_url}}


def arguments(value: Any) -> str:
    """Return the input of a tool as JSON text, which is the form it has there."""
    return value if isinstance(value, str) else msgspec.json.encode({} if value is None else value).decode()


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
    """In USD, by some who resell models."""


class _Reply(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


def _texts(message: _Message) -> tuple[str, str]:
    """Return the answer and the reasoning; compatible servers have several fields for either."""
    reasoning = message.reasoning_content or message.reasoning or ""
    if not isinstance(message.content, list):
        return message.content or "", reasoning
    texts = [part["text"] for part in message.content if isinstance(part.get("text"), str)]
    return "".join(texts), reasoning


def _call(call: _Call) -> ToolCall:
    named = call.function or call.custom
    if named is None:
        raise ProviderError("the model's answer is malformed: it calls a tool without a name")
    arguments = named.arguments if named.arguments is not None else named.input
    return ToolCall(tool=named.name, input=None if arguments is None else parse_json(arguments), id=call.id)


def _tokens(usage: _Usage) -> TokenUsage:
    given = usage.prompt_tokens_details or _PromptDetails()
    made = usage.completion_tokens_details or _CompletionDetails()
    return TokenUsage(
        input=usage.prompt_tokens,
        output=usage.completion_tokens,
        cached=given.cached_tokens,
        cache_write=given.cache_write_tokens,
        reasoning=made.reasoning_tokens,
    )
