"""A Gemini model, through Google's own SDK.

The SDK closes a client that nothing refers to, and takes aiohttp if that happens to be installed: so we hold on to
its client, and give it the HTTP client that it has anyway.
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
from agentv.protocols import Provider
from agentv.providers.models.batches.api import BatchApi
from agentv.providers.models.batches.gemini import GeminiBatches
from agentv.providers.models.conversation import Completion, Part, Prompt, Turn, decode, parse_json, split_system
from agentv.providers.models.gemini_reply import read_reply
from agentv.providers.models.model import LanguageModel
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import connection_error, excerpt
from agentv.providers.settings import Text
from agentv.providers.transport import make_transport
from agentv.records import Json, ProviderRequest, TokenUsage, ToolCall

MODEL = "gemini-3.8-flash"
MAX_MEDIA_BYTES = 50_000_000
"""What Google takes as a PDF, and about what it takes as a request."""
SIGNATURE = "thought_signature"
NO_SIGNATURE = urlsafe_b64decode("skip_thought_signature_validator")
"""What Google asks for in the place of a signature, in calls that were not made by the model itself."""
GOOD_STOP_REASONS = ("", "STOP", "MAX_TOKENS", "CONTINUATION", "FINISH_REASON_UNSPECIFIED")


class GeminiSettings(LanguageModelSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Gemini model; there is a default one."""

    takes_media: ClassVar[bool] = True
    efforts: ClassVar[tuple[str, ...]] = ("minimal", "low", "medium", "high")
    max_media_bytes: ClassVar[int] = MAX_MEDIA_BYTES

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

    def __init__(self, settings: GeminiSettings):
        super().__init__(settings)
        self._shared_fields: dict[bytes, Json] = {}

    def connect(self) -> Any:
        import httpx2

        return self._connect(make_transport(httpx2))

    def _connect(self, transport: Any) -> "_Client":
        import httpx2

        settings = self.settings
        # a server of the user's own needs no key, and must not get the one for Google
        key = settings.api_key or ("none" if settings.base_url else None)
        http = httpx2.AsyncClient(timeout=None, transport=transport)  # no redirections: the key would go with them
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

    async def ask(self, client: _Client, prompt: Prompt) -> Completion:
        sent, models, first = self._sent(prompt), client.sdk.aio.models, None
        with self.errors_of_sdk():
            if self.settings.stream:
                answer, first = await _collect(await models.generate_content_stream(**sent))
            else:
                answer = await models.generate_content(**sent)
        return _completion(answer)._replace(first_token_at=first)

    @property
    def model(self) -> str:
        """The model's name in requests."""
        return self.settings.model or MODEL

    def batches(self) -> BatchApi:
        return GeminiBatches(self)

    async def body(self, request: ProviderRequest) -> Json:
        prompt = await self.prompt(request)
        system, turns = split_system(prompt.turns)
        schema = msgspec.json.encode(prompt.schema)
        if schema not in self._shared_fields:
            self._shared_fields[schema] = await self._fields_besides_turns(prompt.schema)
        body: Json = {"contents": [_as_sent(content) for content in _contents(turns)]}
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}], "role": "user"}
        return body | self._shared_fields[schema]

    async def _fields_besides_turns(self, schema: Json | None) -> Json:
        """Return what all requests with this schema have: that is what the SDK sends to a server that echoes.

        It takes the SDK longer to make a request than all else takes together.
        """
        import httpx2

        echo = httpx2.MockTransport(lambda request: httpx2.Response(200, content=request.content))
        client, sent = self._connect(echo), self._sent(Prompt([Turn("user", "")], schema))
        sent["config"].should_return_http_response = True
        with self.errors_of_sdk():
            reply = await client.sdk.aio.models.generate_content(**sent)
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
            return _completion(types.GenerateContentResponse._from_response(response=decode(reply, Json), kwargs={}))

    @contextmanager
    def errors_of_sdk(self) -> Iterator[None]:
        """Raise `ProviderError` for what the SDK raises."""
        import httpx2
        from google.genai import errors

        try:
            yield
        except errors.APIError as error:
            headers = getattr(error.response, "headers", {})
            raise self.status_error(error.code, _content(error), headers, _retry_delay(error.details)) from error
        except httpx2.RequestError as error:
            raise connection_error(error) from error
        except (
            ValueError,
            TypeError,
            AttributeError,
            KeyError,
        ) as error:  # the SDK trusts in the form of what it reads
            raise ProviderError(f"the model's answer is malformed: {_reason(error)}") from error

    def _sent(self, prompt: Prompt) -> Json:
        """Return what the SDK is given."""
        from google.genai import types

        system, turns = split_system(prompt.turns)
        try:
            config = types.GenerateContentConfig(**self._config(prompt, system))
        except ValueError as error:
            raise ProviderError(f"options: {_reason(error)}") from error
        return {"model": self.model, "contents": _contents(turns), "config": config}

    def _config(self, prompt: Prompt, system: str) -> Json:
        """Return what is sent besides the turns; what is not set is not sent."""
        settings, known = self.settings, _known_options()
        options = {known[name]: value for name, value in (settings.options or {}).items() if name in known}
        fields: Json = {"automatic_function_calling": {"disable": True}}
        if system:
            fields["system_instruction"] = system
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            fields["max_output_tokens"] = settings.max_output_tokens
        if settings.reasoning_effort is not None:
            thinking = options.pop("thinking_config", None)
            fields["thinking_config"] = {"thinking_level": settings.reasoning_effort.upper()} | (thinking or {})
        if prompt.schema is not None:
            fields |= {"response_mime_type": "application/json", "response_json_schema": prompt.schema}
        return fields | options

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


def _as_sent(content: Json) -> Json:
    """Return a content as the SDK would send it: texts as they are, anything else by the SDK's own names."""
    if all(part.keys() == {"text"} for part in content["parts"]):
        return content
    from google.genai import types

    sent: Json = types.Content.model_validate(content).model_dump(mode="json", by_alias=True, exclude_none=True)
    return sent


def _parts(turn: Turn) -> list[Json]:
    if turn.answers is not None:
        return [
            {"function_response": {"name": turn.answers.tool, "response": _object(parse_json(turn.text), "output")}}
        ]
    parts: Sequence[Part] = turn.parts or ((turn.text,) if turn.text else ())
    return [*map(_content_part, parts), *_call_parts(turn.calls)]


def _content_part(part: Part) -> Json:
    return {"text": part} if isinstance(part, str) else {"inline_data": {"mime_type": part.type, "data": part.data}}


def _call_parts(calls: Sequence[ToolCall]) -> Iterator[Json]:
    """Yield the calls with their signatures, without which newer models refuse the first of them."""
    for number, call in enumerate(calls):
        part: Json = {"function_call": {"name": call.tool, "args": _object(call.input, "input")}}
        signature = (call.metadata or {}).get(SIGNATURE)
        if isinstance(signature, str):
            part[SIGNATURE] = _decode_signature(signature, call.tool)
        elif number == 0:
            part[SIGNATURE] = NO_SIGNATURE
        yield part


def _decode_signature(text: str, tool: str) -> bytes:
    try:
        return urlsafe_b64decode(text.replace("+", "-").replace("/", "_"))
    except ValueError as error:
        raise ProviderError(f"the {SIGNATURE} in the metadata of a call of {tool!r} is no base64") from error


def _object(value: Any, name: str) -> Json:
    """Return the value as an object, which Google requires."""
    return value if isinstance(value, dict) else {} if value is None else {name: value}


def _completion(answer: Any) -> Completion:
    """Return the completion in the first candidate; raise `ProviderError` if there is none."""
    feedback = answer.prompt_feedback
    if feedback is not None and feedback.block_reason is not None:
        why = f": {feedback.block_reason_message}" if feedback.block_reason_message else ""
        raise ProviderError(f"the prompt was blocked: {_name(feedback.block_reason)}{why}")
    if not answer.candidates:
        raise ProviderError("the model gave no answer: its list of candidates is empty")
    candidate = answer.candidates[0]
    stop_reason = _name(candidate.finish_reason)
    refusal = ""
    if stop_reason not in GOOD_STOP_REASONS:
        blocked = [_name(rating.category) for rating in candidate.safety_ratings or () if rating.blocked]
        refusal = ": ".join(filter(None, ["the model broke off", stop_reason, candidate.finish_message, *blocked]))
    parts = (candidate.content.parts if candidate.content else None) or []
    return Completion(
        text="".join(part.text for part in parts if part.text and not part.thought),
        calls=tuple(_call(part) for part in parts if part.function_call),
        reasoning="\n\n".join(part.text for part in parts if part.text and part.thought),
        usage=_tokens(answer.usage_metadata),
        stop_reason=stop_reason,
        refusal=refusal,
    )


def _call(part: Any) -> ToolCall:
    call, signature = part.function_call, part.thought_signature
    metadata = {SIGNATURE: b64encode(signature).decode()} if signature else None
    return ToolCall(tool=call.name or "", input=call.args, id=call.id, metadata=metadata)


async def _collect(stream: AsyncIterator[Any]) -> tuple[Any, float | None]:
    """Return the chunks of a stream as one answer, and when the first piece of it came."""
    from google.genai import types

    answer, first = types.GenerateContentResponse(), None
    parts: list[Any] = []
    async for chunk in stream:
        answer.prompt_feedback = chunk.prompt_feedback or answer.prompt_feedback
        answer.usage_metadata = chunk.usage_metadata or answer.usage_metadata
        for candidate in (chunk.candidates or ())[:1]:
            pieces = (candidate.content.parts if candidate.content else None) or []
            if first is None and any(piece.text or piece.function_call for piece in pieces):
                first = time.perf_counter()
            for piece in pieces:
                _add_piece(parts, piece)
            candidate.content = types.Content(role="model", parts=parts)
            ended = answer.candidates[0].finish_reason if answer.candidates else None
            candidate.finish_reason = candidate.finish_reason or ended
            answer.candidates = [candidate]
    if answer.candidates and answer.candidates[0].finish_reason is None:
        raise ProviderError("the answer broke off: the stream ended in the middle of it", may_pass=True)
    return answer, first


def _add_piece(parts: list[Any], piece: Any) -> None:
    """Add a piece of the answer; a text that goes on where the last one ended is a part of that."""
    last = parts[-1] if parts else None
    if last is not None and last.text and piece.text and bool(last.thought) == bool(piece.thought):
        last.text += piece.text
    else:
        parts.append(piece)


def _tokens(usage: Any) -> TokenUsage | None:
    """Return the tokens: what tools put into the prompt counts as input, thoughts as output."""
    if usage is None:
        return None
    return TokenUsage(
        input=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
        cached=usage.cached_content_token_count,
        reasoning=usage.thoughts_token_count,
    )


def _name(reason: Any) -> str:
    return "" if reason is None else str(getattr(reason, "value", reason))


def _content(error: Any) -> bytes:
    """Return what the server said; of a stream only what the SDK has read of it is known."""
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
