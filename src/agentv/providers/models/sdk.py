"""The base of models that are called through OpenAI's or Anthropic's SDK.

Both SDKs come from the same generator, so that one implementation serves both. Their typed methods validate everything
that is sent, which takes as long as the rest of a call. So requests go through the clients' generic `post`, and a
`Format` knows their content.
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
"""Objects in a request that are merged from the settings and from `options`."""
STREAMING = ("stream", "stream_options")
"""Fields that are omitted from requests in a batch."""
STREAM_ERROR_STATUSES = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
}
"""The HTTP statuses for the errors that Anthropic sends in the middle of a stream."""
SCHEMA_REFUSED_STATUSES = (400, 404, 415, 422, 501)
SCHEMA_WORDS = (
    "response_format",
    "json_schema",
    "structured output",
    "output_config.format",
    "text.format",
)
"""Words in the message of a server that refuses the schema of an answer."""


class StreamReader(Protocol):
    """Joins the events of a stream to the reply that would have come without streaming."""

    def add(self, event: Json) -> bool:
        """Add an event and return whether it has a piece of the answer. Raise `ProviderError` if it is an error."""
        ...

    def reply(self) -> Json | None:
        """Return the reply, or None if the stream ended before it was complete."""
        ...


class Format(Protocol):
    """The requests and replies of one of a vendor's APIs."""

    @property
    def path(self) -> str: ...

    def body(
        self,
        model: str | None,
        settings: LanguageModelSettings,
        prompt: Prompt,
    ) -> Json:
        """Return the body of a request. Settings that are not set are not sent."""
        ...

    def completion(self, reply: bytes) -> Completion:
        """Return the completion in the body of a reply. Raise `ProviderError` if it has none."""
        ...

    def reader(self) -> StreamReader: ...


class SdkModel(LanguageModel[S], Generic[S]):
    """Calls a model through an SDK. Once a server refuses the schema of an answer, later requests omit it."""

    _refuses_schema = False

    def __init__(self, settings: S, format_: Format):
        super().__init__(settings)
        self._format = format_

    @abstractmethod
    def new_client(self, sdk: Any, common: Json) -> Any:
        """Return the SDK's client for these settings; `common` are the options that all clients share."""

    @property
    def model(self) -> str | None:
        """The name of the model in requests."""
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
            if self.settings.stream:
                return await self._stream(client, body)
            return await self._post(client, body)
        except ProviderError as error:
            if prompt.schema is None or not _is_about_schema(error):
                raise
        # Some compatible servers and older models know no schemas. Judges also read plain text.
        self._refuses_schema = True
        return await self.ask(client, prompt)

    async def body(self, request: ProviderRequest) -> Json:
        body = self._body(await self.prompt(request))
        return {name: value for name, value in body.items() if name not in STREAMING}

    def completion(self, reply: bytes) -> Completion:
        return self._format.completion(reply)

    @contextmanager
    def errors_of_sdk(self) -> Iterator[None]:
        """Convert the exceptions of the SDK to `ProviderError`."""
        try:
            yield
        except Exception as error:
            known = self._error(error)
            if known is None:
                raise
            raise known from error

    def _body(self, prompt: Prompt) -> Json:
        body = self._format.body(self.model, self.settings, prompt)
        return _merged(body, self.settings.options or {})

    async def _post(self, client: Any, body: Json) -> Completion:
        with self.errors_of_sdk():
            response = await client.post(
                self._format.path,
                body=body,
                cast_to=self._httpx().Response,
            )
        return self._format.completion(response.content)

    async def _stream(self, client: Any, body: Json) -> Completion:
        """Return the answer from its events. A server that does not stream sends it in one piece."""
        sdk = self.module()
        reader = self._format.reader()
        first_token_at = None
        with self.errors_of_sdk():
            stream = await client.post(
                self._format.path,
                body=_merged({"stream": True}, body),
                cast_to=object,
                stream=True,
                stream_cls=sdk.AsyncStream[object],
            )
            async with stream:
                content_type = stream.response.headers.get("content-type", "")
                if "event-stream" not in content_type:
                    content = await stream.response.aread()
                    return self._format.completion(content)
                async for event in stream:
                    has_piece = _add_event(reader, event)
                    if has_piece and first_token_at is None:
                        first_token_at = time.perf_counter()
        reply = reader.reply()
        if reply is None:
            raise ProviderError("the answer is incomplete: the stream ended early", may_pass=True)
        completion = self._format.completion(msgspec.json.encode(reply))
        return completion._replace(first_token_at=first_token_at)

    def _error(self, error: Exception) -> ProviderError | None:
        """Return the `ProviderError` for an exception, or None if it is one already or a bug of agentv."""
        sdk = self.module()
        request_error = self._httpx().RequestError
        match error:
            case sdk.APIStatusError() if error.response.is_error:
                response = error.response
                return self.status_error(error.status_code, response.content, response.headers)
            case sdk.APIConnectionError() | request_error():
                return connection_error(error.__cause__ or error)
            case sdk.APIError():
                return self._stream_error(error)
            case JSONDecodeError():  # an event of a stream
                return ProviderError(f"the model's answer is malformed: {error}: {excerpt(error.doc)}")
            case self._sdk_error() | ValueError() | TypeError():  # a missing key, or options that are not JSON
                return ProviderError(excerpt(str(error)) or type(error).__name__)
        return None

    def _stream_error(self, error: Any) -> ProviderError:
        """Return the error for a stream that reported one."""
        details: Any = {}
        if isinstance(error.body, dict):
            details = error.body
        if isinstance(details.get("error"), dict):
            details = details["error"]
        kind = str(details.get("type"))
        status = STREAM_ERROR_STATUSES.get(kind)
        reason = excerpt(str(details.get("message") or error))
        return ProviderError(
            f"the answer is incomplete: {reason}",
            may_pass=status is None or status in self._retryable,
            status=status,
        )

    @property
    def _sdk_error(self) -> type[Exception]:
        """The base class of all exceptions of the SDK."""
        found: type[Exception] = self.module().APIError.__base__
        return found

    def _client_options(self) -> Json:
        """Return the options that all clients share. Retries and timeouts are the responsibility of the caller."""
        http_client = self.module().DefaultAsyncHttpxClient(
            timeout=None,
            transport=make_transport(self._httpx(), resends=not self.settings.batch_api),
        )
        return {
            "max_retries": 0,
            "timeout": None,
            "http_client": http_client,
        }

    def _httpx(self) -> Any:
        """Return the httpx module that the SDK is built on."""
        classes = self.module().DefaultAsyncHttpxClient.__mro__
        (module,) = {class_.__module__ for class_ in classes if class_.__name__ == "AsyncClient"}
        package = module.partition(".")[0]
        return importlib.import_module(package)


def _add_event(reader: StreamReader, event: Any) -> bool:
    """Add an event and return whether it has a piece of the answer. Raise `ProviderError` if it is malformed."""
    try:
        return reader.add(event)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        shown = excerpt(msgspec.json.encode(event).decode())
        raise ProviderError(f"the model's answer is malformed: one of its events is {shown}") from error


def _merged(body: Json, options: Json) -> Json:
    """Return a body with the user's options, which take precedence over it."""
    merged = body | options
    for name in MERGED:
        ours = body.get(name)
        theirs = options.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            merged[name] = ours | theirs
    return merged


def _is_about_schema(error: ProviderError) -> bool:
    """Return whether a server refused a request because of its response schema."""
    if error.status not in SCHEMA_REFUSED_STATUSES:
        return False
    message = error.message.lower()
    return any(word in message for word in SCHEMA_WORDS)
