"""Anthropic models, through Anthropic's SDK."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.files.token_usage import read_usage
from agentv.protocols import Provider
from agentv.providers.models.batches.anthropic import AnthropicBatches
from agentv.providers.models.batches.api import BatchApi
from agentv.providers.models.conversation import (
    Completion,
    Part,
    Prompt,
    Turn,
    decode,
    json_or_text,
    split_system,
)
from agentv.providers.models.model import client_key
from agentv.providers.models.sdk import SdkModel
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import Count, Text
from agentv.records import Json, ToolCall

MAX_TOKENS = 4096
"""The API requires a limit."""
MAX_TITLE = 500
MAX_REQUEST_BYTES = 32_000_000
"""Anthropic's limit for a request. Files are a third larger in it, since they are encoded as base64."""


class AnthropicSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An Anthropic model."""

    takes_media: ClassVar[bool] = True
    efforts: ClassVar[tuple[str, ...]] = ("low", "medium", "high", "xhigh", "max")
    max_media_bytes: ClassVar[int] = MAX_REQUEST_BYTES * 3 // 4

    model: Annotated[
        Text,
        Meta(description="The vendor's name of the model."),
    ]
    base_url: Annotated[
        Text | None,
        Meta(description="The URL of another server, without /v1."),
    ] = None
    max_output_tokens: Annotated[
        Count | None,
        Meta(description=f"Defaults to {MAX_TOKENS}."),
    ] = None

    def open(self, folder: Path) -> Provider:
        return Anthropic(self)


class Anthropic(SdkModel[AnthropicSettings]):
    """Calls a model through Anthropic's SDK."""

    package = "anthropic"
    extra = "anthropic"

    def __init__(self, settings: AnthropicSettings):
        super().__init__(settings, Messages(self._transform_schema))

    def _transform_schema(self, schema: Json) -> Json:
        transformed: Json = self.module().transform_schema(schema)
        return transformed

    def new_client(self, sdk: Any, common: Json) -> Any:
        base_url = self.settings.base_url
        key = client_key(self.settings.api_key, base_url)
        return sdk.AsyncAnthropic(api_key=key, base_url=base_url, **common)

    def batches(self) -> BatchApi:
        return AnthropicBatches(self)


class Messages:
    """The format of `/v1/messages`."""

    path = "/v1/messages"

    def __init__(self, transform_schema: Callable[[Json], Json]):
        """Take the SDK's function that reduces a JSON Schema to the part that the API supports."""
        self._transform_schema = transform_schema

    def body(
        self,
        model: str | None,
        settings: LanguageModelSettings,
        prompt: Prompt,
    ) -> Json:
        system, turns = split_system(prompt.turns)
        body: Json = {
            "model": model,
            "max_tokens": settings.max_output_tokens or MAX_TOKENS,
            "messages": _messages(turns),
        }
        if system:
            body["system"] = system
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        output_config = self._output_config(settings, prompt.schema)
        if output_config:
            body["output_config"] = output_config
        return body

    def _output_config(self, settings: LanguageModelSettings, schema: Json | None) -> Json:
        config: Json = {}
        if settings.reasoning_effort is not None:
            config["effort"] = settings.reasoning_effort
        if schema is not None:
            with suppress(ValueError):  # the API cannot express this schema; judges also read plain text
                transformed = self._transform_schema(schema)
                config["format"] = {"type": "json_schema", "schema": transformed}
        return config

    def completion(self, reply: bytes) -> Completion:
        """Return the completion in a reply, which also has the outputs of tools that the vendor runs."""
        answer = decode(reply, _Answer)
        texts = [block.text for block in answer.content if block.type == "text"]
        thoughts = [block.thinking for block in answer.content if block.thinking]
        text = "".join(texts)
        return Completion(
            text=text,
            calls=_calls(answer.content),
            reasoning="\n\n".join(thoughts),
            usage=read_usage(answer.usage),
            stop_reason=answer.stop_reason or "",
            refusal=_refusal(answer, text),
        )

    def reader(self) -> "_EventReader":
        return _EventReader()


class _EventReader:
    """Joins the events of a stream. Blocks come in pieces, the input of a tool as pieces of its JSON."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, str] = {}
        self._is_complete = False

    def add(self, event: Json) -> bool:
        match event:
            case {"type": "message_start", "message": dict(message)}:
                self._message = message
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = dict(block)
                kind = block.get("type", "")
                return bool(kind.endswith("tool_use"))
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                return self._add_piece(index, delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                usage = self._updated_usage(event.get("usage") or {})
                self._message |= delta
                self._message["usage"] = usage
            case {"type": "message_stop"}:
                self._is_complete = True
        return False

    def _updated_usage(self, usage: Json) -> Json:
        """Return the token counts with those of another event; null leaves a count as it was."""
        counts = dict(self._message.get("usage") or {})
        for name, count in usage.items():
            if count is not None:
                counts[name] = count
        return counts

    def _add_piece(self, index: int, delta: Json) -> bool:
        block = self._blocks.setdefault(index, {"type": "text"})
        if "partial_json" in delta:
            piece = delta["partial_json"]
            self._inputs[index] = self._inputs.get(index, "") + piece
            return bool(piece)
        for name in ("text", "thinking"):
            if name in delta:
                piece = delta[name]
                block[name] = block.get(name, "") + piece
                return bool(piece)
        return False

    def reply(self) -> Json | None:
        if not self._is_complete:
            return None
        for index, text in self._inputs.items():
            self._blocks[index]["input"] = json_or_text(text or "{}")
        content = [block for _, block in sorted(self._blocks.items())]
        return self._message | {"content": content}


def _messages(turns: Sequence[Turn]) -> list[Json]:
    """Return the turns as messages. User and assistant must alternate: turns of one role are joined."""
    messages: list[Json] = []
    for turn in turns:
        role = "assistant" if turn.role == "assistant" else "user"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += _blocks(turn)
        else:
            messages.append({"role": role, "content": _blocks(turn)})
    return messages


def _blocks(turn: Turn) -> list[Json]:
    if turn.answers is not None:
        result = {
            "type": "tool_result",
            "tool_use_id": turn.answers.id,
            "content": turn.text,
        }
        return [result]
    parts: Sequence[Part] = turn.parts
    if not parts and turn.text:
        parts = (turn.text,)
    blocks = [_content_block(part) for part in parts]
    blocks += [_tool_use(call) for call in turn.calls]
    return blocks


def _content_block(part: Part) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {
        "type": "base64",
        "media_type": part.type,
        "data": part.base64,
    }
    if part.is_image:
        return {"type": "image", "source": source}
    return {
        "type": "document",
        "source": source,
        "title": part.name[:MAX_TITLE],
    }


def _tool_use(call: ToolCall) -> Json:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.tool,
        "input": _input(call.input),
    }


def _input(value: Any) -> Json:
    """Return the input of a tool as an object, which Anthropic requires."""
    if isinstance(value, dict):
        return value
    if value is None:
        return {}
    return {"input": value}


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str | None = None
    name: str = ""
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Details(msgspec.Struct):
    category: str | None = None
    explanation: str | None = None


class _Answer(msgspec.Struct):
    content: list[_Block]
    stop_reason: str | None = None
    stop_details: _Details | None = None
    usage: _Usage | None = None


def _calls(content: Sequence[_Block]) -> tuple[ToolCall, ...]:
    """Return the tool calls, with the outputs of tools that the vendor runs."""
    outputs = {}
    for block in content:
        if block.tool_use_id:
            outputs[block.tool_use_id] = block.content
    calls = []
    for block in content:
        if block.type.endswith("tool_use"):
            call = ToolCall(
                tool=block.name,
                input=block.input,
                output=outputs.get(block.id or ""),
                id=block.id,
            )
            calls.append(call)
    return tuple(calls)


def _refusal(answer: _Answer, text: str) -> str:
    """Return why the model refused to answer, or "" if it did not."""
    if answer.stop_reason != "refusal":
        return ""
    details = answer.stop_details or _Details()
    reason = details.explanation or details.category or text or "no reason given"
    return f"the model refused: {reason}"
