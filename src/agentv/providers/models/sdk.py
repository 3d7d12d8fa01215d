"""What OpenAI's and Anthropic's SDKs share: they come from one generator, so that one way to call serves both.

Their methods for each kind of request check all that is sent against their types, which takes as long as all the rest.
So requests go through the clients' own `post`, and a `Format` knows what is in them.
"""

import importlib
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.providers.models.conversation import Completion, Prompt
from agentv.providers.models.model import LanguageModel
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import connection_error, excerpt
from agentv.providers.transport import make_transport
from agentv.records import Json, ProviderRequest

S = TypeVar("S", bound=LanguageModelSettings)
MERGED = ("output_config", "reasoning", "text", "stream_options")
"""Objects in a request that are put together from the settings and from `options`."""
STREAMING = ("stream", "stream_options")
"""What no request in a batch has."""
BROKEN_OFF = {"overloaded_error": 529, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504}
"""The statuses that stand for errors in the middle of a stream of Anthropic's."""


class StreamReader(Protocol):
    """Puts the events of a stream together to the reply that would have come without one."""

    def add(self, event: Json) -> bool:
        """Take an event, and return whether it has a piece of the answer; raise `ProviderError` if it is an error."""
        ...

    def reply(self) -> Json | None:
        """Return the reply; None if the stream ended before it was complete."""
        ...


class Format(Protocol):
    """How one API of a vendor is spoken."""

    @property
    def path(self) -> str: ...

    def body(self, model: str | None, settings: LanguageModelSettings, prompt: Prompt) -> Json:
        """Return the body of a request; what is not set is not sent."""
        ...

    def completion(self, reply: bytes) -> Completion:
        """Return the completion in the body of a reply; raise `ProviderError` if there is none."""
        ...

    def reader(self) -> StreamReader: ...


class SdkModel(LanguageModel[S], Generic[S]):
    """Asks through an SDK. A server that refuses the schema of an answer is asked without it from then on."""

    _refuses_schema = False

    def __init__(self, settings: S, format_: Format):
        super().__init__(settings)
        self._format = format_

    @abstractmethod
    def new_client(self, sdk: Any, common: Json) -> Any:
        """Return the SDK's client for these settings; `common` are options for any of them."""

    @property
    def model(self) -> str | None:
        """The model's name in requests."""
        return self.settings.model

    def connect(self) -> Any:
        sdk = self.module()
        try:
            return self.new_client(sdk, self._client_options())
        except (self._sdk_error, ValueError) as error:
            raise ProviderError(str(error)) from error

    async def close(self, client: Any) -> None:
        await client.close()

    async def ask(self, client: Any, prompt: Prompt) -> Completion:
        if self._refuses_schema:
            prompt = prompt._replace(schema=None)
        body = self._body(prompt)
        try:
            return await (self._stream(client, body) if self.settings.stream else self._post(client, body))
        except ProviderError as error:
            if prompt.schema is None or not _is_about_schema(error):
                raise
        self._refuses_schema = True  # some compatible servers and older models do; judges read plain text too
        return await self.ask(client, prompt)

    async def body(self, request: ProviderRequest) -> Json:
        body = self._body(await self.prompt(request))
        return {name: value for name, value in body.items() if name not in STREAMING}

    def completion(self, reply: bytes) -> Completion:
        return self._format.completion(reply)

    @contextmanager
    def errors_of_sdk(self) -> Iterator[None]:
        """Raise `ProviderError` for what the SDK raises."""
        try:
            yield
        except Exception as error:
            if (known := self._error(error)) is None:
                raise
            raise known from error

    def _body(self, prompt: Prompt) -> Json:
        return _merged(self._format.body(self.model, self.settings, prompt), self.settings.options or {})

    async def _post(self, client: Any, body: Json) -> Completion:
        with self.errors_of_sdk():
            response = await client.post(self._format.path, body=body, cast_to=self._httpx().Response)
        return self._format.completion(response.content)

    async def _stream(self, client: Any, body: Json) -> Completion:
        """Return the answer, taken event by event; a server that does not stream answers in one piece."""
        sdk, reader, first = self.module(), self._format.reader(), None
        with self.errors_of_sdk():
            stream = await client.post(
                self._format.path,
                body=_merged({"stream": True}, body),
                cast_to=object,
                stream=True,
                stream_cls=sdk.AsyncStream[object],
            )
            async with stream:
                if "event-stream" not in stream.response.headers.get("content-type", ""):
                    return self._format.completion(await stream.response.aread())
                async for event in stream:
                    if _has_piece(reader, event) and first is None:
                        first = time.perf_counter()
        reply = reader.reply()
        if reply is None:
            raise ProviderError("the answer broke off: the stream ended in the middle of it", may_pass=True)
        return self._format.completion(msgspec.json.encode(reply))._replace(first_token_at=first)

    def _error(self, error: Exception) -> ProviderError | None:
        """Return the error of a request as one of ours; None for one that is so already, or is a mistake of ours."""
        sdk, request_error = self.module(), self._httpx().RequestError
        found = None
        match error:
            case sdk.APIStatusError() if error.response.is_error:
                found = self.status_error(error.status_code, error.response.content, error.response.headers)
            case sdk.APIConnectionError() | request_error():
                found = connection_error(error.__cause__ or error)
            case sdk.APIError():
                found = self._broken_off(error)
            case JSONDecodeError():  # an event
                found = ProviderError(f"the model's answer is malformed: {error}: {excerpt(error.doc)}")
            case self._sdk_error() | ValueError() | TypeError():  # no key, or options that are no JSON
                found = ProviderError(excerpt(str(error)) or type(error).__name__)
        return found

    def _broken_off(self, error: Any) -> ProviderError:
        """Return the error for a stream that told of one."""
        body: Any = error.body if isinstance(error.body, dict) else {}
        told = body["error"] if isinstance(body.get("error"), dict) else body
        status = BROKEN_OFF.get(str(told.get("type")))
        words = excerpt(str(told.get("message") or error))
        return ProviderError(
            f"the answer broke off: {words}", may_pass=status is None or status in self._retryable, status=status
        )

    @property
    def _sdk_error(self) -> type[Exception]:
        """The base of all the SDK's errors."""
        found: type[Exception] = self.module().APIError.__base__
        return found

    def _client_options(self) -> Json:
        """Return options for the client: no retries and no timeouts, which are the caller's."""
        http = self.module().DefaultAsyncHttpxClient(timeout=None, transport=make_transport(self._httpx()))
        return {"max_retries": 0, "timeout": None, "http_client": http}

    def _httpx(self) -> Any:
        """Return the httpx that the SDK is built on."""
        kinds = self.module().DefaultAsyncHttpxClient.__mro__
        (package,) = {kind.__module__ for kind in kinds if kind.__name__ == "AsyncClient"}
        return importlib.import_module(package.partition(".")[0])


def _has_piece(reader: StreamReader, event: Any) -> bool:
    """Add an event, and return whether it has a piece of the answer; raise `ProviderError` if it makes no sense."""
    try:
        return reader.add(event)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        shown = excerpt(msgspec.json.encode(event).decode())
        raise ProviderError(f"the model's answer is malformed: one of its events is {shown}") from error


def _merged(body: Json, options: Json) -> Json:
    """Return a body with the user's own options, which win over it."""
    together = {
        name: body[name] | options[name]
        for name in MERGED
        if isinstance(body.get(name), dict) and isinstance(options.get(name), dict)
    }
    return body | options | together


def _is_about_schema(error: ProviderError) -> bool:
    """Whether a server refused the request because of its response schema."""
    message = error.message.lower()
    words = ("response_format", "json_schema", "structured output", "output_config.format", "text.format")
    return error.status in (400, 404, 415, 422, 501) and any(word in message for word in words)
