"""An OpenAI model, or one behind any server that speaks the same language, through OpenAI's own SDK.

The SDK is an extra and slow to import: the first call imports it, `agentv --help` does not.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Self

from msgspec import Meta

from agentv.errors import ConfigError, ProviderError
from agentv.protocols import Provider
from agentv.providers.settings import LanguageModelSettings, Pricing, Text
from agentv.records import Message, ProviderRequest, ProviderResponse, TokenUsage, ToolCall

RETRYABLE = (408, 429, 500, 502, 503, 504, 529)


class OpenAISettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI model, or one behind a compatible server."""

    model: Annotated[Text, Meta(description="The model's name, as the vendor calls it.")]
    base_url: Annotated[Text | None, Meta(description="A compatible server, with its /v1.")] = None

    def open(self, folder: Path) -> Provider:
        if find_spec("openai") is None:
            raise ConfigError("this target needs the 'openai' package", hint="pip install 'agentv[openai]'")
        return OpenAI(self)


class OpenAI:
    """Asks with the chat turns; one client serves all the workers."""

    def __init__(self, settings: OpenAISettings):
        self._settings = settings
        self._client: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        import openai

        if self._client is None:
            settings = self._settings
            key = settings.api_key or "none"  # servers at home want none, and the SDK insists on one
            try:
                self._client = openai.AsyncOpenAI(api_key=key, base_url=settings.base_url, max_retries=0)
            except openai.OpenAIError as error:
                raise ProviderError(str(error)) from error
        try:
            answer = await self._client.chat.completions.create(**self._body(request))
        except openai.APIStatusError as error:
            may_pass = error.status_code in (self._settings.retryable_status_codes or RETRYABLE)
            raise ProviderError(f"status {error.status_code}: {error.message}", may_pass=may_pass) from error
        except openai.APIConnectionError as error:
            raise ProviderError(f"no connection: {error.__cause__ or error}", may_pass=True) from error
        except (openai.OpenAIError, ValueError, TypeError) as error:
            raise ProviderError(f"{type(error).__name__}: {error}") from error
        return _response(answer, self._settings.pricing)

    def _body(self, request: ProviderRequest) -> dict[str, Any]:
        """What is sent; what is not set is not sent."""
        settings = self._settings
        body: dict[str, Any] = {"model": settings.model, "messages": _turns(request, settings.system_prompt)}
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            body["max_completion_tokens"] = settings.max_output_tokens
        if request.response_schema is not None:
            schema = {"name": "answer", "schema": request.response_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body | {"extra_body": settings.options} if settings.options else body


def _turns(request: ProviderRequest, system: str | None) -> list[dict[str, Any]]:
    start = [{"role": "system", "content": system}] if system else []
    turns = request.chat_prompt or (Message(role="user", content=request.question),)
    return [*start, *({"role": turn.role, "content": turn.content} for turn in turns)]


def _response(answer: Any, pricing: Pricing | None) -> ProviderResponse:
    choices = getattr(answer, "choices", None)
    if not choices:
        raise ProviderError("the model gave no answer: its list of choices is empty")
    message = choices[0].message
    if getattr(message, "refusal", None):
        raise ProviderError(f"the model refused: {message.refusal}")
    calls = tuple(
        ToolCall(tool=call.function.name, input=call.function.arguments, id=call.id)
        for call in message.tool_calls or ()
    )
    if not message.content and not calls:
        raise ProviderError("the model gave an empty answer")
    usage = _usage(answer)
    return ProviderResponse(
        text=message.content or "",
        output_messages=(Message(role="assistant", content=message.content, tool_calls=calls or None),),
        token_usage=usage,
        cost_usd=_cost(usage, pricing),
    )


def _usage(answer: Any) -> TokenUsage | None:
    usage = getattr(answer, "usage", None)
    if usage is None:
        return None
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    return TokenUsage(input=usage.prompt_tokens, output=usage.completion_tokens, cached=cached)


def _cost(usage: TokenUsage | None, pricing: Pricing | None) -> float | None:
    """What the tokens cost, where prices are known; cached ones at their own price, if they have one."""
    if usage is None or pricing is None:
        return None
    cached = usage.cached or 0
    fresh = (usage.input or 0) - cached
    price = float(pricing.input or 0)
    of_cached = price if pricing.cached is None else float(pricing.cached)
    return (fresh * price + cached * of_cached + (usage.output or 0) * float(pricing.output or 0)) / 1_000_000
