"""Gemini models, through Google's SDK.

The SDK closes a client that nothing refers to, and uses aiohttp if that happens to be installed. So a reference to its
client is kept, and it gets an HTTP client of the kind that it uses by default.
"""

import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import ProviderError
from agentv.files.token_usage import read_usage
from agentv.protocols import Provider
from agentv.providers.models.batches.api import BatchApi
from agentv.providers.models.batches.gemini import GeminiBatches
from agentv.providers.models.conversation import (
    Completion,
    Part,
    Prompt,
    Turn,
    decode,
    json_or_text,
    split_system,
)
from agentv.providers.models.gemini_reply import read_reply
from agentv.providers.models.model import LanguageModel, client_key
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import connection_error, excerpt
from agentv.providers.settings import Text
from agentv.providers.transport import make_transport
from agentv.records import Json, ProviderRequest, ToolCall

MODEL = "gemini-3.8-flash"
MAX_MEDIA_BYTES = 50_000_000
"""Google's limit for a PDF, and about its limit for a request."""
SIGNATURE = "thought_signature"
NO_SIGNATURE = urlsafe_b64decode("skip_thought_signature_validator")
"""The value that Google requires instead of a signature in calls that the model itself did not make."""
GOOD_STOP_REASONS = ("", "STOP", "MAX_TOKENS", "CONTINUATION", "FINISH_REASON_UNSPECIFIED")


class GeminiSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Gemini model; there is a default one."""

    takes_media: ClassVar[bool] = True
    efforts: ClassVar[tuple[str, ...]] = ("minimal", "low", "medium", "high")
    max_media_bytes: ClassVar[int] = MAX_MEDIA_BYTES

    model: Annotated[
        Text | None,
        Meta(description=f"The model's name. Defaults to {MODEL}."),
    ] = None
    base_url: Annotated[
        Text | None,
        Meta(description="The URL of another server, without a version."),
    ] = None

    def open(self, folder: Path) -> Provider:
        return Gemini(self)


class _Client(NamedTuple):
    sdk: Any
    http: Any


class Gemini(LanguageModel[GeminiSettings]):
    """Calls a model through Google's SDK."""

    package = "google.genai"
    extra = "gemini"

    def __init__(self, settings: GeminiSettings):
        super().__init__(settings)
        self._shared_fields: dict[bytes, Json] = {}
        """The fields that all requests with a schema share, by the schema as JSON."""

    def connect(self) -> Any:
        import httpx2

        return self._connect(make_transport(httpx2, resends=not self.settings.batch_api))

    def _connect(self, transport: Any) -> "_Client":
        import httpx2

        base_url = self.settings.base_url
        # redirects are not followed: they would receive the key
        http = httpx2.AsyncClient(timeout=None, transport=transport)
        options = {
            "base_url": base_url,
            "httpx_async_client": http,
            "retry_options": {"attempts": 1},
            "extra_body": self._extra_body(),
        }
        key = client_key(self.settings.api_key, base_url)
        try:
            sdk = self.module().Client(api_key=key, http_options=options)
        except ValueError as error:
            raise ProviderError(str(error)) from error
        return _Client(sdk, http)

    async def close(self, client: _Client) -> None:
        await client.sdk.aio.aclose()
        client.sdk.close()
        await client.http.aclose()

    async def ask(self, client: _Client, prompt: Prompt) -> Completion:
        arguments = self._sdk_arguments(prompt)
        models = client.sdk.aio.models
        first_token_at = None
        with self.errors_of_sdk():
            if self.settings.stream:
                stream = await models.generate_content_stream(**arguments)
                answer, first_token_at = await _collect(stream)
            else:
                answer = await models.generate_content(**arguments)
        return _completion(answer)._replace(first_token_at=first_token_at)

    @property
    def model(self) -> str:
        """The name of the model in requests."""
        return self.settings.model or MODEL

    def batches(self) -> BatchApi:
        return GeminiBatches(self)

    async def body(self, request: ProviderRequest) -> Json:
        prompt = await self.prompt(request)
        system, turns = split_system(prompt.turns)
        schema = msgspec.json.encode(prompt.schema)
        if schema not in self._shared_fields:
            self._shared_fields[schema] = await self._read_shared_fields(prompt.schema)
        contents = [_as_sent(content) for content in _contents(turns)]
        body: Json = {"contents": contents}
        if system:
            body["systemInstruction"] = {
                "parts": [{"text": system}],
                "role": "user",
            }
        return body | self._shared_fields[schema]

    async def _read_shared_fields(self, schema: Json | None) -> Json:
        """Return the fields that all requests with this schema share.

        They are read from a request that the SDK sends to an echo server, once: the SDK takes longer to build a
        request than everything else takes together.
        """
        import httpx2

        def echo(request: Any) -> Any:
            return httpx2.Response(200, content=request.content)

        client = self._connect(httpx2.MockTransport(echo))
        prompt = Prompt([Turn("user", "")], schema)
        arguments = self._sdk_arguments(prompt)
        arguments["config"].should_return_http_response = True
        with self.errors_of_sdk():
            reply = await client.sdk.aio.models.generate_content(**arguments)
        await self.close(client)
        fields: Json = msgspec.json.decode(reply.sdk_http_response.body)
        del fields["contents"]
        return fields

    def completion(self, reply: bytes) -> Completion:
        answer = read_reply(reply)
        if answer is not None:
            return _completion(answer)
        from google.genai import types

        with self.errors_of_sdk():
            parsed = types.GenerateContentResponse._from_response(
                response=decode(reply, Json),
                kwargs={},
            )
            return _completion(parsed)

    @contextmanager
    def errors_of_sdk(self) -> Iterator[None]:
        """Convert the exceptions of the SDK to `ProviderError`."""
        import httpx2
        from google.genai import errors

        try:
            yield
        except errors.APIError as error:
            raise self._api_error(error) from error
        except httpx2.RequestError as error:
            raise connection_error(error) from error
        except (ValueError, TypeError, AttributeError, KeyError) as error:  # the SDK does not validate replies
            raise ProviderError(f"the model's answer is malformed: {_reason(error)}") from error

    def _api_error(self, error: Any) -> ProviderError:
        headers = getattr(error.response, "headers", {})
        return self.status_error(
            error.code,
            _content(error),
            headers,
            _retry_delay(error.details),
        )

    def _sdk_arguments(self, prompt: Prompt) -> Json:
        """Return the arguments of the SDK's functions for a prompt."""
        from google.genai import types

        system, turns = split_system(prompt.turns)
        fields = self._config(prompt, system)
        try:
            config = types.GenerateContentConfig(**fields)
        except ValueError as error:
            raise ProviderError(f"options: {_reason(error)}") from error
        return {
            "model": self.model,
            "contents": _contents(turns),
            "config": config,
        }

    def _config(self, prompt: Prompt, system: str) -> Json:
        """Return everything that is sent except the turns. Settings that are not set are not sent."""
        settings = self.settings
        options = self._sdk_options()
        fields: Json = {"automatic_function_calling": {"disable": True}}
        if system:
            fields["system_instruction"] = system
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            fields["max_output_tokens"] = settings.max_output_tokens
        if settings.reasoning_effort is not None:
            thinking = {"thinking_level": settings.reasoning_effort.upper()}
            own_thinking = options.pop("thinking_config", None) or {}
            fields["thinking_config"] = thinking | own_thinking
        if prompt.schema is not None:
            fields["response_mime_type"] = "application/json"
            fields["response_json_schema"] = prompt.schema
        return fields | options

    def _sdk_options(self) -> Json:
        """Return the options that the SDK supports, by its own names."""
        known = _known_options()
        given = self.settings.options or {}
        return {known[name]: given[name] for name in given if name in known}

    def _extra_body(self) -> Json | None:
        """Return the options that the SDK does not support, which are added to the request body unchanged."""
        known = _known_options()
        given = self.settings.options or {}
        unknown = {name: given[name] for name in given if name not in known}
        return unknown or None


@cache
def _known_options() -> dict[str, str]:
    """Return the names of the SDK's options, by both of their spellings."""
    from google.genai import types

    names: dict[str, str] = {}
    fields = types.GenerateContentConfig.model_fields
    for name, field in fields.items():
        names[name] = name
        names[field.alias or name] = name
    return names


def _contents(turns: Sequence[Turn]) -> list[Json]:
    """Return the turns as contents. User and model must alternate: turns of one role are joined."""
    contents: list[Json] = []
    for turn in turns:
        role = "model" if turn.role == "assistant" else "user"
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += _parts(turn)
        else:
            contents.append({"role": role, "parts": _parts(turn)})
    return contents


def _as_sent(content: Json) -> Json:
    """Return a content as the SDK would send it. Texts are the same in both forms, which saves the conversion."""
    if all(part.keys() == {"text"} for part in content["parts"]):
        return content
    from google.genai import types

    sent: Json = types.Content.model_validate(content).model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
    )
    return sent


def _parts(turn: Turn) -> list[Json]:
    if turn.answers is not None:
        response = {
            "name": turn.answers.tool,
            "response": _object(json_or_text(turn.text), "output"),
        }
        return [{"function_response": response}]
    parts: Sequence[Part] = turn.parts
    if not parts and turn.text:
        parts = (turn.text,)
    sent = [_content_part(part) for part in parts]
    sent += _call_parts(turn.calls)
    return sent


def _content_part(part: Part) -> Json:
    if isinstance(part, str):
        return {"text": part}
    return {"inline_data": {"mime_type": part.type, "data": part.data}}


def _call_parts(calls: Sequence[ToolCall]) -> Iterator[Json]:
    """Yield the calls with their signatures. Newer models refuse a first call without one."""
    for number, call in enumerate(calls):
        function_call = {
            "name": call.tool,
            "args": _object(call.input, "input"),
        }
        part: Json = {"function_call": function_call}
        metadata = call.metadata or {}
        signature = metadata.get(SIGNATURE)
        if isinstance(signature, str):
            part[SIGNATURE] = _decode_signature(signature, call.tool)
        elif number == 0:
            part[SIGNATURE] = NO_SIGNATURE
        yield part


def _decode_signature(text: str, tool: str) -> bytes:
    url_safe = text.replace("+", "-").replace("/", "_")
    try:
        return urlsafe_b64decode(url_safe)
    except ValueError as error:
        raise ProviderError(f"the {SIGNATURE} in the metadata of a call of {tool!r} is not valid base64") from error


def _object(value: Any, name: str) -> Json:
    """Return the value as an object, which Google requires; `name` is the field of any other value."""
    if isinstance(value, dict):
        return value
    if value is None:
        return {}
    return {name: value}


def _completion(answer: Any) -> Completion:
    """Return the completion in the first candidate. Raise `ProviderError` if there is none."""
    _check_not_blocked(answer.prompt_feedback)
    if not answer.candidates:
        raise ProviderError("the model returned no answer: its list of candidates is empty")
    candidate = answer.candidates[0]
    texts = []
    thoughts = []
    calls = []
    for part in _candidate_parts(candidate):
        if part.text and part.thought:
            thoughts.append(part.text)
        elif part.text:
            texts.append(part.text)
        if part.function_call:
            calls.append(_call(part))
    return Completion(
        text="".join(texts),
        calls=tuple(calls),
        reasoning="\n\n".join(thoughts),
        usage=read_usage(answer.usage_metadata),
        stop_reason=_name(candidate.finish_reason),
        refusal=_refusal(candidate),
    )


def _check_not_blocked(feedback: Any) -> None:
    """Raise `ProviderError` if the prompt was blocked."""
    if feedback is None or feedback.block_reason is None:
        return
    message = f"the prompt was blocked: {_name(feedback.block_reason)}"
    if feedback.block_reason_message:
        message += f": {feedback.block_reason_message}"
    raise ProviderError(message)


def _refusal(candidate: Any) -> str:
    """Return why the model stopped early, or "" if it did not."""
    stop_reason = _name(candidate.finish_reason)
    if stop_reason in GOOD_STOP_REASONS:
        return ""
    reasons = ["the model stopped early", stop_reason, candidate.finish_message]
    for rating in candidate.safety_ratings or ():
        if rating.blocked:
            reasons.append(_name(rating.category))
    return ": ".join(filter(None, reasons))


def _candidate_parts(candidate: Any) -> Sequence[Any]:
    content = candidate.content
    if not content:
        return ()
    return content.parts or ()


def _call(part: Any) -> ToolCall:
    call = part.function_call
    metadata = None
    if part.thought_signature:
        signature = b64encode(part.thought_signature).decode()
        metadata = {SIGNATURE: signature}
    return ToolCall(
        tool=call.name or "",
        input=call.args,
        id=call.id,
        metadata=metadata,
    )


async def _collect(stream: AsyncIterator[Any]) -> tuple[Any, float | None]:
    """Return the chunks of a stream as one answer, and when its first piece arrived."""
    from google.genai import types

    answer = types.GenerateContentResponse()
    first_token_at = None
    finish_reason = None
    parts: list[Any] = []
    async for chunk in stream:
        answer.prompt_feedback = chunk.prompt_feedback or answer.prompt_feedback
        answer.usage_metadata = chunk.usage_metadata or answer.usage_metadata
        if not chunk.candidates:
            continue
        candidate = chunk.candidates[0]
        for piece in _candidate_parts(candidate):
            if first_token_at is None and (piece.text or piece.function_call):
                first_token_at = time.perf_counter()
            _add_piece(parts, piece)
        candidate.content = types.Content(role="model", parts=parts)
        finish_reason = candidate.finish_reason or finish_reason
        candidate.finish_reason = finish_reason
        answer.candidates = [candidate]
    if answer.candidates and finish_reason is None:
        raise ProviderError("the answer is incomplete: the stream ended early", may_pass=True)
    return answer, first_token_at


def _add_piece(parts: list[Any], piece: Any) -> None:
    """Add a piece of the answer. A text that continues the last one is appended to it."""
    if parts and _continues(parts[-1], piece):
        parts[-1].text += piece.text
    else:
        parts.append(piece)


def _continues(last: Any, piece: Any) -> bool:
    """Return whether both pieces are texts, and both of the answer or both of the reasoning."""
    if not last.text or not piece.text:
        return False
    return bool(last.thought) == bool(piece.thought)


def _name(reason: Any) -> str:
    """Return the name of a value of one of the SDK's enums, or "" for None."""
    if reason is None:
        return ""
    return str(getattr(reason, "value", reason))


def _content(error: Any) -> bytes:
    """Return the body of a failed reply. For a stream, only what the SDK has read of it is known."""
    try:
        found: bytes = error.response.content
    except (AttributeError, RuntimeError):
        return msgspec.json.encode(error.details)
    return found


class _Detail(msgspec.Struct):
    retry_delay: str | None = msgspec.field(name="retryDelay", default=None)


class _Error(msgspec.Struct):
    details: tuple[_Detail, ...] = ()


class _Failure(msgspec.Struct):
    error: _Error


def _retry_delay(body: Any) -> float | None:
    """Return how many seconds Google asks to wait before the next request; the body has them, not a header."""
    try:
        failure = msgspec.convert(body, _Failure)
        for detail in failure.error.details:
            if detail.retry_delay:
                return float(detail.retry_delay.removesuffix("s"))
    except ValueError:
        return None
    return None


def _reason(error: Exception) -> str:
    """Return the problem of a value: the first of pydantic's errors, or the message of the exception."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return excerpt(str(error)) or type(error).__name__
    first = errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}"
