"""A Gemini model, through Google's own SDK.

The SDK closes a client that nothing refers to, and takes aiohttp if that happens to be installed: so we hold on to
its client, and give it the HTTP client that it has anyway.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import ProviderError
from agentv.protocols import Provider
from agentv.providers.models.conversation import Completion, LanguageModel, Turn, parse_json, split_system
from agentv.providers.network import connection_error, excerpt
from agentv.providers.settings import LanguageModelSettings, Text
from agentv.providers.transport import make_transport
from agentv.records import Json, ProviderRequest, TokenUsage, ToolCall

MODEL = "gemini-3.8-flash"
GOOD_STOP_REASONS = ("", "STOP", "MAX_TOKENS", "CONTINUATION", "FINISH_REASON_UNSPECIFIED")


class GeminiSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Gemini model; there is a default one."""

    model: Annotated[Text | None, Meta(description=f"The model's name; {MODEL} if left out.")] = None
    base_url: Annotated[Text | None, Meta(description="Another server, without a version.")] = None

    def open(self, folder: Path) -> Provider:
        return Gemini(self)


class _Client(NamedTuple):
    sdk: Any
    http: Any


class Gemini(LanguageModel[GeminiSettings]):
    """Asks through Google's SDK."""

    package, extra = "google.genai", "gemini"
    stop_reasons: ClassVar[Mapping[str, str]] = {"STOP": "stop", "MAX_TOKENS": "length"}

    def connect(self) -> Any:
        import httpx2

        settings = self.settings
        # a server of the user's own needs no key, and must not get the one for Google
        key = settings.api_key or ("none" if settings.base_url else None)
        http = httpx2.AsyncClient(
            timeout=None, transport=make_transport(httpx2)
        )  # no redirections: the key would go with them
        options = {
            "base_url": settings.base_url,
            "httpx_async_client": http,
            "retry_options": {"attempts": 1},
            "extra_body": self._extra_body(),
        }
        try:
            return _Client(self.module().Client(api_key=key, http_options=options), http)
        except ValueError as error:
            raise ProviderError(str(error)) from error

    async def close(self, client: _Client) -> None:
        await client.sdk.aio.aclose()
        client.sdk.close()
        await client.http.aclose()

    async def ask(self, client: _Client, request: ProviderRequest) -> Completion:
        import httpx2
        from google.genai import errors, types

        system, turns = split_system(request, self.settings.system_prompt)
        fields = self._config(request, system)
        model = self.settings.model or MODEL
        try:
            config = types.GenerateContentConfig(**fields)
        except ValueError as error:
            raise ProviderError(f"options: {_reason(error)}") from error
        try:
            answer = await client.sdk.aio.models.generate_content(model=model, contents=_contents(turns), config=config)
        except errors.APIError as error:
            response: Any = error.response
            delay = _retry_delay(error.details)
            raise self.status_error(error.code, response.content, response.headers, delay) from error
        except httpx2.RequestError as error:
            raise connection_error(error) from error
        except (ValueError, TypeError, AttributeError) as error:  # the SDK trusts in the form of what it reads
            raise ProviderError(f"the model's answer is malformed: {_reason(error)}") from error
        return _completion(answer)

    def _config(self, request: ProviderRequest, system: str) -> Json:
        """Return what is sent besides the turns; what is not set is not sent."""
        settings = self.settings
        fields: Json = {"automatic_function_calling": {"disable": True}}
        if system:
            fields["system_instruction"] = system
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            fields["max_output_tokens"] = settings.max_output_tokens
        if request.response_schema is not None:
            fields |= {"response_mime_type": "application/json", "response_json_schema": request.response_schema}
        known = _known_options()
        return fields | {known[name]: value for name, value in (settings.options or {}).items() if name in known}

    def _extra_body(self) -> Json | None:
        """Return the options that the SDK does not know: they go into the body of the request as they are."""
        known = _known_options()
        return {name: value for name, value in (self.settings.options or {}).items() if name not in known} or None


@cache
def _known_options() -> dict[str, str]:
    """Return the names of the options that the SDK knows, by either of their spellings."""
    from google.genai import types

    fields = types.GenerateContentConfig.model_fields
    return {spelling: name for name, field in fields.items() for spelling in (name, field.alias or name)}


def _contents(turns: Sequence[Turn]) -> list[Json]:
    """Return the turns as contents of user and model in turn: several of one role in a row become one content."""
    contents: list[Json] = []
    for turn in turns:
        role = "model" if turn.role == "assistant" else "user"
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += _parts(turn)
        else:
            contents.append({"role": role, "parts": _parts(turn)})
    return contents


def _parts(turn: Turn) -> list[Json]:
    if turn.answers is not None:
        return [
            {"function_response": {"name": turn.answers.tool, "response": _object(parse_json(turn.text), "output")}}
        ]
    text = [{"text": turn.text}] if turn.text else []
    calls = ({"name": call.tool, "args": _object(call.input, "input")} for call in turn.calls)
    return [*text, *({"function_call": call} for call in calls)]


def _object(value: Any, name: str) -> Json:
    """Return the value as an object, which Google requires."""
    return value if isinstance(value, dict) else {} if value is None else {name: value}


def _completion(answer: Any) -> Completion:
    """Return the completion in the first candidate; raise `ProviderError` if there is none or it was broken off."""
    feedback = answer.prompt_feedback
    if feedback is not None and feedback.block_reason is not None:
        why = f": {feedback.block_reason_message}" if feedback.block_reason_message else ""
        raise ProviderError(f"the prompt was blocked: {_name(feedback.block_reason)}{why}")
    if not answer.candidates:
        raise ProviderError("the model gave no answer: its list of candidates is empty")
    candidate = answer.candidates[0]
    stop_reason = _name(candidate.finish_reason)
    if stop_reason not in GOOD_STOP_REASONS:
        blocked = [_name(rating.category) for rating in candidate.safety_ratings or () if rating.blocked]
        raise ProviderError(
            ": ".join(filter(None, ["the model broke off", stop_reason, candidate.finish_message, *blocked]))
        )
    parts = (candidate.content.parts if candidate.content else None) or []
    calls = [part.function_call for part in parts if part.function_call]
    return Completion(
        text="".join(part.text for part in parts if part.text and not part.thought),
        calls=tuple(ToolCall(tool=call.name or "", input=call.args, id=call.id) for call in calls),
        reasoning="\n\n".join(part.text for part in parts if part.text and part.thought),
        usage=_tokens(answer.usage_metadata),
        stop_reason=stop_reason,
    )


def _tokens(usage: Any) -> TokenUsage | None:
    """Return the tokens: what tools put into the prompt counts as input, thoughts as output."""
    if usage is None:
        return None
    return TokenUsage(
        input=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
        cached=usage.cached_content_token_count,
    )


def _name(reason: Any) -> str:
    return "" if reason is None else str(getattr(reason, "value", reason))


class _Detail(msgspec.Struct):
    retry_delay: str | None = msgspec.field(name="retryDelay", default=None)


class _Error(msgspec.Struct):
    details: tuple[_Detail, ...] = ()


class _Failure(msgspec.Struct):
    error: _Error


def _retry_delay(body: Any) -> float | None:
    """Return the seconds that Google asks to wait before the next request; they are in the body."""
    try:
        details = msgspec.convert(body, _Failure).error.details
        return next((float(found.retry_delay.removesuffix("s")) for found in details if found.retry_delay), None)
    except ValueError:
        return None


def _reason(error: Exception) -> str:
    """Return what is wrong with a value: the first of pydantic's errors, else the message of the exception."""
    found = getattr(error, "errors", None)
    if found is None:
        return excerpt(str(error)) or type(error).__name__
    first = found()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
