"""OpenAI's chat completions, as OpenAI itself, Azure and many others speak them."""

from abc import abstractmethod
from typing import Any, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.providers.models.conversation import LanguageModel, Said, Turn, decoded, turns_of, value_of
from agentv.providers.network import words_in
from agentv.providers.settings import LanguageModelSettings
from agentv.records import ProviderRequest, TokenUsage, ToolCall

S = TypeVar("S", bound=LanguageModelSettings)


class ChatCompletions(LanguageModel[S]):
    """Asks through OpenAI's SDK."""

    package, extra = "openai", "openai"
    _takes_no_schema = False

    def connect(self) -> Any:
        sdk = self.module()
        try:
            return self.new_client(sdk, self.alone())
        except (sdk.OpenAIError, ValueError) as error:
            raise ProviderError(str(error)) from error

    @abstractmethod
    def new_client(self, sdk: Any, common: dict[str, Any]) -> Any:
        """The SDK's client for these settings."""

    async def close(self, client: Any) -> None:
        await client.close()

    async def ask(self, client: Any, request: ProviderRequest) -> Said:
        if self._takes_no_schema:
            request = msgspec.structs.replace(request, response_schema=None)
        try:
            return _said(await self.posted(client, "/chat/completions", self.body(request), self.module().OpenAIError))
        except ProviderError as error:
            if request.response_schema is None or not _is_of_schema(error):
                raise
        self._takes_no_schema = True  # as some servers that are compatible otherwise: judges read plain text too
        return await self.ask(client, request)

    def body(self, request: ProviderRequest) -> dict[str, Any]:
        """What is sent; what is not set is not sent."""
        settings = self.settings
        start = [Turn("system", settings.system_prompt)] if settings.system_prompt else []
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": [_message(turn) for turn in (*start, *turns_of(request))],
        }
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            body["max_completion_tokens"] = settings.max_output_tokens
        if request.response_schema is not None:
            schema = {"name": "answer", "schema": request.response_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


def _is_of_schema(error: ProviderError) -> bool:
    """Whether a server has refused the form that an answer should have."""
    words = error.message.lower()
    return error.status in (400, 404, 415, 422, 501) and any(
        word in words for word in ("response_format", "json_schema", "structured output")
    )


def _message(turn: Turn) -> dict[str, Any]:
    if turn.answers is not None:
        return {"role": "tool", "tool_call_id": turn.answers.id, "content": turn.text}
    message: dict[str, Any] = {"role": turn.role, "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": _arguments(call.input)}}
            for call in turn.calls
        ]
        message["content"] = turn.text or None
    return message


def _arguments(value: Any) -> str:
    """The input of a tool as a text of JSON, which is the form it has there."""
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


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None
    cost: float | None = None
    """In USD, by some who resell models."""


class _Completion(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


def _said(body: bytes) -> Said:
    """What the first choice says. A refusal, and an answer that a filter cut off, are none."""
    completion = decoded(body, _Completion)
    if not completion.choices:
        raise ProviderError(f"the model gave no answer: its list of choices is empty: {words_in(body)}")
    message, stopped = completion.choices[0].message, completion.choices[0].finish_reason or ""
    if message.refusal:
        raise ProviderError(f"the model refused: {message.refusal}")
    text, reasoning = _texts(message)
    if stopped == "content_filter":
        raise ProviderError(f"the model refused: a content filter stopped it{f' after {text!r}' if text else ''}")
    usage = completion.usage
    return Said(
        text=text,
        calls=tuple(_call(call) for call in message.tool_calls or ()),
        reasoning=reasoning,
        usage=None if usage is None else _tokens(usage),
        cost_usd=None if usage is None else usage.cost,
        stopped=stopped,
    )


def _texts(message: _Message) -> tuple[str, str]:
    """What was said, and what was thought: compatible servers have several places for either."""
    thought = message.reasoning_content or message.reasoning or ""
    if not isinstance(message.content, list):
        return message.content or "", thought
    texts = [part["text"] for part in message.content if isinstance(part.get("text"), str)]
    return "".join(texts), thought


def _call(call: _Call) -> ToolCall:
    named = call.function or call.custom
    if named is None:
        raise ProviderError("the model's answer is malformed: it calls a tool without a name")
    given = named.arguments if named.arguments is not None else named.input
    return ToolCall(tool=named.name, input=None if given is None else value_of(given), id=call.id)


def _tokens(usage: _Usage) -> TokenUsage:
    details = usage.prompt_tokens_details
    return TokenUsage(
        input=usage.prompt_tokens, output=usage.completion_tokens, cached=details.cached_tokens if details else None
    )
