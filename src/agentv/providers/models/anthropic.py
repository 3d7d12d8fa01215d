"""An Anthropic model, through Anthropic's own SDK."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from agentv.errors import ProviderError
from agentv.protocols import Provider
from agentv.providers.models.conversation import Completion, LanguageModel, Turn, decode, split_system
from agentv.providers.settings import Count, LanguageModelSettings, Text
from agentv.records import Json, ProviderRequest, TokenUsage, ToolCall

MAX_TOKENS = 4096
"""The API insists on a limit."""


class AnthropicSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An Anthropic model."""

    model: Annotated[Text, Meta(description="The model's name, as the vendor calls it.")]
    base_url: Annotated[Text | None, Meta(description="Another server, without /v1.")] = None
    max_output_tokens: Annotated[Count | None, Meta(description=f"{MAX_TOKENS} if left out.")] = None

    def open(self, folder: Path) -> Provider:
        return Anthropic(self)


class Anthropic(LanguageModel[AnthropicSettings]):
    """Asks through Anthropic's SDK."""

    package = extra = "anthropic"
    stop_reasons: ClassVar[Mapping[str, str]] = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "tool_use": "tool_calls",
        "refusal": "refusal",
    }

    def connect(self) -> Any:
        sdk = self.module()
        # a server of the user's own needs no key, and must not get the one for Anthropic
        key = self.settings.api_key or ("none" if self.settings.base_url else None)
        try:
            return sdk.AsyncAnthropic(api_key=key, base_url=self.settings.base_url, **self.client_options())
        except (sdk.AnthropicError, ValueError) as error:
            raise ProviderError(str(error)) from error

    async def close(self, client: Any) -> None:
        await client.close()

    async def ask(self, client: Any, request: ProviderRequest) -> Completion:
        return _completion(await self.post(client, "/v1/messages", self._body(request), self.module().AnthropicError))

    def _body(self, request: ProviderRequest) -> dict[str, Any]:
        """Return the body of a request; what is not set is not sent."""
        settings = self.settings
        system, turns = split_system(request, settings.system_prompt)
        body: dict[str, Any] = {
            "model": settings.model,
            "max_tokens": settings.max_output_tokens or MAX_TOKENS,
            "messages": _messages(turns),
        }
        if system:
            body["system"] = system
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        return body


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
    text = [{"type": "text", "text": turn.text}] if turn.text else []
    return [*text, *({"type": "tool_use", "id": c.id, "name": c.tool, "input": _input(c.input)} for c in turn.calls)]


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


class _Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Details(msgspec.Struct):
    category: str | None = None
    explanation: str | None = None


class _Answer(msgspec.Struct):
    content: list[_Block]
    stop_reason: str | None = None
    stop_details: _Details | None = None
    usage: _Usage | None = None


def _completion(body: bytes) -> Completion:
    """Return the completion in the body of a reply. The outputs of tools that the vendor runs are in it as well."""
    answer = decode(body, _Answer)
    text = "".join(block.text for block in answer.content if block.type == "text")
    if answer.stop_reason == "refusal":
        details = answer.stop_details or _Details()
        why = details.explanation or details.category or text or "no reason given"
        raise ProviderError(f"the model refused: {why}")
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
    )


def _tokens(usage: _Usage) -> TokenUsage:
    """Return the tokens. The vendor's own count leaves out those that were read from the cache or written to it."""
    cached = usage.cache_read_input_tokens
    total = usage.input_tokens + (cached or 0) + (usage.cache_creation_input_tokens or 0)
    return TokenUsage(input=total, output=usage.output_tokens, cached=cached)
