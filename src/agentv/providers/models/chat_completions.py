"""OpenAI's chat completions, as OpenAI itself, Azure and many others speak them."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.providers.models.conversation import Completion, LanguageModel, Turn, decode, parse_json, turns_of
from agentv.providers.network import server_message
from agentv.providers.settings import LanguageModelSettings
from agentv.records import ProviderRequest, TokenUsage, ToolCall

S = TypeVar("S", bound=LanguageModelSettings)


class ChatCompletions(LanguageModel[S]):
    """Asks through OpenAI's SDK."""

    package, extra = "openai", "openai"
    stop_reasons: ClassVar[Mapping[str, str]] = {
        "stop": "stop",
        "length": "length",
        "tool_calls": "tool_calls",
        "function_call": "tool_calls",
        "content_filter": "refusal",
    }
    _refuses_schema = False

    def connect(self) -> Any:
        sdk = self.module()
        try:
            return self.new_client(sdk, self.client_options())
        except (sdk.OpenAIError, ValueError) as error:
            raise ProviderError(str(error)) from error

    @abstractmethod
    def new_client(self, sdk: Any, common: dict[str, Any]) -> Any:
        """Return the SDK's client for these settings; `common` are options for any of them."""

    async def close(self, client: Any) -> None:
        await client.close()

    async def ask(self, client: Any, request: ProviderRequest) -> Completion:
        if self._refuses_schema:
            request = msgspec.structs.replace(request, response_schema=None)
        try:
            return _completion(
                await self.post(client, "/chat/completions", self.body(request), self.module().OpenAIError)
            )
        except ProviderError as error:
            if request.response_schema is None or not _is_about_schema(error):
                raise
        self._refuses_schema = True  # some compatible servers do; judges read plain text too
        return await self.ask(client, request)

    def body(self, request: ProviderRequest) -> dict[str, Any]:
        """Return the body of a request; what is not set is not sent."""
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


def _is_about_schema(error: ProviderError) -> bool:
    """Whether a server refused the request because of its response schema."""
    message = error.message.lower()
    return error.status in (400, 404, 415, 422, 501) and any(
        word in message for word in ("response_format", "json_schema", "structured output")
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


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None
    cost: float | None = None
    """In USD, by some who resell models."""


class _Reply(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


def _completion(body: bytes) -> Completion:
    """Return the completion in the body of a reply; raise `ProviderError` for a refusal or if a filter stopped it."""
    reply = decode(body, _Reply)
    if not reply.choices:
        raise ProviderError(f"the model gave no answer: its list of choices is empty: {server_message(body)}")
    message, stop_reason = reply.choices[0].message, reply.choices[0].finish_reason or ""
    if message.refusal:
        raise ProviderError(f"the model refused: {message.refusal}")
    text, reasoning = _texts(message)
    if stop_reason == "content_filter":
        raise ProviderError(f"the model refused: a content filter stopped it{f' after {text!r}' if text else ''}")
    usage = reply.usage
    return Completion(
        text=text,
        calls=tuple(_call(call) for call in message.tool_calls or ()),
        reasoning=reasoning,
        usage=None if usage is None else _tokens(usage),
        cost_usd=None if usage is None else usage.cost,
        stop_reason=stop_reason,
    )


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
    details = usage.prompt_tokens_details
    return TokenUsage(
        input=usage.prompt_tokens, output=usage.completion_tokens, cached=details.cached_tokens if details else None
    )
