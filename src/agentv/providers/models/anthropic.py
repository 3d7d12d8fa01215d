"""An Anthropic model, through Anthropic's own SDK."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.protocols import Provider
from agentv.providers.models.batches.anthropic import AnthropicBatches
from agentv.providers.models.batches.api import BatchApi
from agentv.providers.models.conversation import Completion, Part, Prompt, Turn, decode, parse_json, split_system
from agentv.providers.models.sdk import SdkModel
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.settings import Count, Text
from agentv.records import Json, TokenUsage, ToolCall

MAX_TOKENS = 4096
"""The API insists on a limit."""
MAX_TITLE = 500
MAX_REQUEST_BYTES = 32_000_000
"""What Anthropic takes as a request, in which files are a third larger than they are."""


class AnthropicSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An Anthropic model."""

    takes_media: ClassVar[bool] = True
    efforts: ClassVar[tuple[str, ...]] = ("low", "medium", "high", "xhigh", "max")
    max_media_bytes: ClassVar[int] = MAX_REQUEST_BYTES * 3 // 4

    model: Annotated[Text, Meta(description="The model's name, as the vendor calls it.")]
    base_url: Annotated[Text | None, Meta(description="Another server, without /v1.")] = None
    max_output_tokens: Annotated[Count | None, Meta(description=f"{MAX_TOKENS} if left out.")] = None

    def open(self, folder: Path) -> Provider:
        return Anthropic(self)


class Anthropic(SdkModel[AnthropicSettings]):
    """Asks through Anthropic's SDK."""

    package = extra = "anthropic"

    def __init__(self, settings: AnthropicSettings):
        super().__init__(settings, Messages(lambda schema: self.module().transform_schema(schema)))

    def new_client(self, sdk: Any, common: Json) -> Any:
        # a server of the user's own needs no key, and must not get the one for Anthropic
        key = self.settings.api_key or ("none" if self.settings.base_url else None)
        return sdk.AsyncAnthropic(api_key=key, base_url=self.settings.base_url, **common)

    def batches(self) -> BatchApi:
        return AnthropicBatches(self)


class Messages:
    """The format of `/v1/messages`. `transform_schema` is the SDK's: the API takes only a part of JSON Schema."""

    path = "/v1/messages"

    def __init__(self, transform_schema: Callable[[Json], Json]):
        self._transform_schema = transform_schema

    def body(self, model: str | None, settings: LanguageModelSettings, prompt: Prompt) -> Json:
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
        output: Json = {}
        if settings.reasoning_effort is not None:
            output["effort"] = settings.reasoning_effort
        if prompt.schema is not None:
            with suppress(ValueError):  # a schema that it cannot express: judges read plain text too
                output["format"] = {"type": "json_schema", "schema": self._transform_schema(prompt.schema)}
        return body | {"output_config": output} if output else body

    def completion(self, reply: bytes) -> Completion:
        """Return the completion in a reply. The outputs of tools that the vendor runs are in it as well."""
        answer = decode(reply, _Answer)
        text = "".join(block.text for block in answer.content if block.type == "text")
        refusal = ""
        if answer.stop_reason == "refusal":
            details = answer.stop_details or _Details()
            refusal = f"the model refused: {details.explanation or details.category or text or 'no reason given'}"
        outputs = {block.tool_use_id: block.content for block in answer.content if block.tool_use_id}
        return Completion(
            text=text,
            calls=tuple(
                ToolCall(tool=block.name, input=block.input, output=outputs.get(block.id or ""), id=block.id)
                for block in answer.content
                if block.type.endswith("tool_use")
            ),
            reasoning="\n\n".join(block.thinking for block in answer.content if block.thinking),
            usage=None if answer.usage is None else _tokens(answer.usage),
            stop_reason=answer.stop_reason or "",
            refusal=refusal,
        )

    def reader(self) -> "_EventReader":
        return _EventReader()


class _EventReader:
    """Puts the events of a stream together: blocks come in pieces, the input of a tool as pieces of its JSON."""

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
                return bool(block.get("type", "").endswith("tool_use"))
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                return self._add_piece(index, delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                usage = {name: count for name, count in (event.get("usage") or {}).items() if count is not None}
                self._message |= delta | {"usage": (self._message.get("usage") or {}) | usage}
            case {"type": "message_stop"}:
                self._is_complete = True
        return False

    def _add_piece(self, index: int, delta: Json) -> bool:
        block = self._blocks.setdefault(index, {"type": "text"})
        if "partial_json" in delta:
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
            return bool(delta["partial_json"])
        for name in ("text", "thinking"):
            if name in delta:
                block[name] = block.get(name, "") + delta[name]
                return bool(delta[name])
        return False

    def reply(self) -> Json | None:
        if not self._is_complete:
            return None
        for index, text in self._inputs.items():
            self._blocks[index]["input"] = parse_json(text or "{}")
        return self._message | {"content": [block for _, block in sorted(self._blocks.items())]}


def _messages(turns: Sequence[Turn]) -> list[Json]:
    """Return the turns as messages of user and assistant in turn: several of one role in a row become one message."""
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
        return [{"type": "tool_result", "tool_use_id": turn.answers.id, "content": turn.text}]
    parts: Sequence[Part] = turn.parts or ((turn.text,) if turn.text else ())
    text = [_content_block(part) for part in parts]
    return [*text, *({"type": "tool_use", "id": c.id, "name": c.tool, "input": _input(c.input)} for c in turn.calls)]


def _content_block(part: Part) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.type, "data": part.base64}
    return {"type": "image", "source": source} if part.is_image else _document(part.name, source)


def _document(name: str, source: Json) -> Json:
    return {"type": "document", "source": source, "title": name[:MAX_TITLE]}


def _input(value: Any) -> Json:
    """Return the input of a tool as an object, which Anthropic requires."""
    return value if isinstance(value, dict) else {} if value is None else {"input": value}


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


def _tokens(usage: _Usage) -> TokenUsage:
    """Return the tokens. The vendor's own count leaves out those that were read from the cache or written to it."""
    cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    made = usage.output_tokens_details or _OutputDetails()
    return TokenUsage(
        input=usage.input_tokens + (cached or 0) + (written or 0),
        output=usage.output_tokens,
        cached=cached,
        cache_write=written,
        reasoning=made.thinking_tokens,
    )
