"""A target that is an HTTP endpoint with JSON.

Values are put into the body as JSON values and into the URL percent-encoded, so that no prompt can break either.
"""

import re
from collections.abc import Iterator, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import msgspec
from msgspec import Meta

from agentv.errors import ProviderError, nearest
from agentv.files.conversion import Misfit
from agentv.files.wire import response_from
from agentv.placeholders import (
    KEEP,
    PLACEHOLDER,
    STATE,
    VARS,
    Steps,
    UnknownName,
    ValueOf,
    as_text,
    fill_all,
    fill_text,
    fill_value,
    lookup,
    names_in,
    texts_in,
)
from agentv.protocols import Provider
from agentv.providers.network import NetworkProvider, connection_error, excerpt
from agentv.providers.settings import IN_CACHE_KEY, NOT_IN_CACHE_KEY, SECRET, RetrySettings, Seconds, Text
from agentv.providers.trace_context import trace_headers
from agentv.providers.transport import make_transport
from agentv.records import Json, ProviderRequest, ProviderResponse

ENVIRONMENT = re.compile(r"\$\{\{[^{}]*\}\}")
"""A variable of the environment that is not set, in settings that are only checked."""
SERVER = re.compile(r"https?://[^/?#{}\s]|https?://\{\{\s*state\.|\{\{\s*state\.")
"""How an address begins: with a server, or with one that a hook returns."""
BEFORE_PATH = re.compile(r"(?:https?://)?[^/?#]*")
STEP = re.compile(r"\.?([^.\[\]\"]+)|\[(\d+)\]|\[\"([^\"]+)\"\]")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")
TEXTS = ("question", "guidelines", "eval_id")
"""The placeholders whose values are strings."""
MESSAGES = "messages"
"""The placeholder whose value is a list: it must be a whole value in the body."""
IN_BODY = (*TEXTS, MESSAGES)
DEFAULT_BODY = {"question": "{{ question }}", "guidelines": "{{ guidelines }}"}
BESIDE_ANSWER = {"output_messages": list, "token_usage": dict, "usage": dict, "metadata": dict}
"""The fields of a body that are kept in addition to the answer, with their types."""
WITHOUT_BODY = ("GET", "HEAD")
MAX_ANSWER_BYTES = 16 << 20
OF_CASE = (f"{VARS}.", f"{STATE}.")
"""What the names of variables of the case, and of the state that its hooks return, start with."""


class HttpSettings(RetrySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that takes JSON and answers with JSON."""

    url: Annotated[
        Text,
        Meta(description="May contain {{ question }}, {{ guidelines }}, {{ eval_id }}, {{ vars.NAME }}."),
    ]
    method: Annotated[
        Text | None,
        Meta(description="Defaults to POST."),
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        Meta(description="Sent with every request."),
        SECRET,
        IN_CACHE_KEY,
    ] = None
    body: Annotated[
        Any,
        Meta(description="A JSON value; its strings may contain {{ question }} and other placeholders."),
    ] = None
    response_path: Annotated[
        Text | None,
        Meta(description="The path of the answer: choices[0].message.content"),
    ] = None
    timeout_seconds: Annotated[
        Seconds | None,
        Meta(description="Time limit per case."),
        NOT_IN_CACHE_KEY,
    ] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        yield from self._check_server()
        yield from _check_placeholders(self.url, ("url",))
        yield from _check_placeholders(self.headers or {}, ("headers",))
        yield from _check_placeholders(self.body, ("body",), IN_BODY)
        if self.body is not None and self._method in WITHOUT_BODY:
            yield Misfit(
                ("body",),
                f"{self._method} sends no body",
                "remove it, or set another 'method'",
            )
        if self.response_path is not None and parse_path(self.response_path) is None:
            yield Misfit(
                ("response_path",),
                f"invalid path {self.response_path!r}",
                """valid paths: choices[0].message.content or a["odd key"]""",
            )

    def _check_server(self) -> Iterator[Misfit]:
        """Yield the problems of the scheme and the server in the URL."""
        is_variable = self.url.startswith("${{")
        if not is_variable and not SERVER.match(self.url):
            yield Misfit(("url",), "must start with http:// or https:// and a host name")
        server, _ = self.url_parts
        for name in names_in(ENVIRONMENT.sub("", server)):
            if not name.startswith(f"{STATE}."):
                yield Misfit(
                    ("url",),
                    "the server must not depend on the case",
                    "put placeholders after the host name",
                )
                return

    @property
    def url_parts(self) -> tuple[str, str]:
        """The scheme and the server of the URL, and the rest of it."""
        found = BEFORE_PATH.match(self.url)
        assert found is not None  # it matches every text
        return found[0], self.url[found.end() :]

    @property
    def _method(self) -> str:
        return (self.method or "POST").upper()

    @property
    def sent_body(self) -> Any:
        """The body with its placeholders. None if the method has no body."""
        if self._method in WITHOUT_BODY:
            return None
        if self.body is None:
            return DEFAULT_BODY
        return self.body

    def takes_guidelines(self, folder: Path, targets_file: Path | None) -> bool:
        names = {name for _, name in self.placeholders()}
        return not names.isdisjoint(("guidelines", MESSAGES))

    def placeholders(self) -> Iterator[tuple[Steps, str]]:
        templates = {"url": self.url, "headers": self.headers, "body": self.sent_body}
        for steps, text in texts_in(templates):
            for name in names_in(text):
                yield steps, name

    def open(self, folder: Path) -> Provider:
        return Http(self, self._method)


class Http(NetworkProvider):
    """Sends one HTTP request per case."""

    package = "httpx2"
    extra = "http"
    sends_spans_late = True  # the server outlives the request and exports its spans at any time

    def __init__(self, settings: HttpSettings, method: str):
        super().__init__(settings)
        self._settings = settings
        self._method = method
        self._steps: Steps = ()
        if settings.response_path:
            self._steps = parse_path(settings.response_path) or ()
        self._body = settings.sent_body

    def connect(self) -> Any:
        httpx = self.module()
        no_cookies = DefaultCookiePolicy(allowed_domains=())
        return httpx.AsyncClient(
            timeout=None,
            transport=make_transport(httpx),
            cookies=CookieJar(no_cookies),  # cases must not share cookies
        )

    async def close(self, client: Any) -> None:
        await client.aclose()

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        httpx = self.module()
        try:
            options = self._request_options(request)
        except UnknownName as unknown:
            raise ProviderError(f"the request cannot be sent: {unknown}", hint=unknown.hint) from unknown
        except ValueError as error:  # lone surrogates cannot be encoded
            raise ProviderError(f"the prompt cannot be sent: {excerpt(str(error))}") from error
        try:
            async with self.client().stream(**options) as response:
                content = await _read_body(response)
        except httpx.RequestError as error:
            raise connection_error(error) from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ProviderError(f"the request cannot be sent: {excerpt(str(error))}") from error
        if not response.is_success:
            raise self.status_error(response.status_code, content, response.headers)
        text = _decode(content, response.encoding or "utf-8")
        return self._response(content, text)

    def _request_options(self, request: ProviderRequest) -> Json:
        """Return the options of httpx for the request of a case."""

        def value_of(name: str) -> Any:
            return _value_of(name, request)

        headers = self._headers(request, value_of)
        options: Json = {
            "method": self._method,
            "url": self._url(value_of),
            "headers": headers,
        }
        if self._method not in WITHOUT_BODY:
            headers.setdefault("content-type", b"application/json")
            body = self._fill_body(value_of, request)
            options["content"] = msgspec.json.encode(body)
        return options

    def _fill_body(self, value_of: ValueOf, request: ProviderRequest) -> Any:
        """Return the body with its placeholders replaced."""

        def fill_one(text: str, _steps: Steps) -> Any:
            if _whole_placeholder(text) == MESSAGES:
                return request.messages
            return fill_value(text, value_of)

        return fill_all(self._body, fill_one)

    def _headers(self, request: ProviderRequest, value_of: ValueOf) -> dict[str, bytes]:
        """Return the headers in the settings, and those that carry the trace of the case."""
        headers: dict[str, bytes] = {}
        templates = self._settings.headers or {}
        for name, template in templates.items():
            text = fill_text(template, value_of)
            headers[name.lower()] = _header_value(text)
        traced = trace_headers(request.telemetry)
        for name, text in traced.items():
            headers.setdefault(name, text.encode())
        return headers

    def _url(self, value_of: ValueOf) -> str:
        def quoted(name: str) -> Any:
            value = value_of(name)
            if value is KEEP:
                return KEEP
            return _quote_for_url(as_text(value))

        server, rest = self._settings.url_parts
        # Only the state of hooks, which are the user's own code, can be a part of the server.
        return fill_text(server, value_of) + fill_text(rest, quoted)

    def _response(self, content: bytes, text: str) -> ProviderResponse:
        """Return the answer, with the messages, usage and metadata that a JSON object has beside it."""
        try:
            value = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            if self._steps:
                raise ProviderError(f"the answer is not valid JSON: {excerpt(text) or 'it is empty'}") from None
            return ProviderResponse(text=text)
        fields: Json = {"text": self._answer(value, text)}
        if isinstance(value, dict):
            for name, type_ in BESIDE_ANSWER.items():
                # The body is not in our format: a field of another type means something else.
                if isinstance(value.get(name), type_):
                    fields[name] = value[name]
        return response_from(fields)

    def _answer(self, value: Any, text: str) -> str:
        """Return the value at `response_path`, or the whole body. A body that is a JSON string is decoded."""
        if not self._steps:
            return value if isinstance(value, str) else text
        found = _follow_path(value, self._steps)
        if isinstance(found, str):
            return found
        return msgspec.json.encode(found).decode()


def parse_path(path: str) -> Steps | None:
    """Return the steps of a path such as `choices[0].text`, or None if it is malformed."""
    if path.startswith("."):
        return None
    steps: list[str | int] = []
    end = 0
    while end < len(path):
        found = STEP.match(path, end)
        if not found:
            return None
        end = found.end()
        name, index, quoted_name = found.groups()
        if index:
            steps.append(int(index))
        else:
            steps.append(name or quoted_name)
    return tuple(steps)


def _follow_path(value: Any, steps: Steps) -> Any:
    """Return the value at the end of a path. Raise `ProviderError` that names the first missing step."""
    for number, step in enumerate(steps):
        try:
            # names lead into objects, indexes into arrays; a string must not be indexed
            is_name = isinstance(step, str)
            if is_name != isinstance(value, dict) or isinstance(value, str):
                raise KeyError(step)
            value = value[step]
        except (KeyError, IndexError, TypeError):
            _raise_missing(value, steps[:number], step)
    return value


def _raise_missing(value: Any, path: Steps, step: str | int) -> NoReturn:
    """Raise the error for a step that is missing in `value`, which is at `path`."""
    match value:
        case dict():
            there = f"an object with {', '.join(map(repr, value)) or 'no fields'}"
        case list():
            there = f"an array of {len(value)}"
        case _:
            there = msgspec.json.encode(value).decode()
    where = ""
    for inner in path:
        where += f"[{inner}]" if isinstance(inner, int) else f".{inner}"
    where = where.lstrip(".") or "the answer"
    missing = f"[{step}]" if isinstance(step, int) else repr(step)
    raise ProviderError(f"response_path: no {missing} in {where}, which is {excerpt(there)}")


def _decode(content: bytes, charset: str) -> str:
    """Return the body as text, as UTF-8 if the charset that the server names is unknown."""
    try:
        return content.decode(charset, "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


async def _read_body(response: Any) -> bytes:
    """Return the body. Raise `ProviderError` if it is larger than `MAX_ANSWER_BYTES`."""
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > MAX_ANSWER_BYTES:
            raise ProviderError(f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(content)


def _value_of(name: str, request: ProviderRequest) -> Any:
    """Return the value of a placeholder. Raise `UnknownName` for a variable or a state that the case does not have."""
    match name:
        case "question":
            return request.prompt
        case "guidelines":
            return request.guidelines
        case "eval_id":
            return request.eval_id
    if name.startswith(f"{STATE}."):
        return lookup(name, STATE, request.state)
    return lookup(name, VARS, request.vars)


def _whole_placeholder(text: str) -> str | None:
    """Return the name of the placeholder that the whole text consists of, if it does."""
    found = PLACEHOLDER.fullmatch(text.strip())
    return None if found is None else found["name"]


def _quote_for_url(value: str) -> str:
    """Return the value percent-encoded as a part of a URL."""
    if value in (".", ".."):  # as path segments these would be folders, and `quote` keeps them
        return value.replace(".", "%2E")
    return quote(value, safe="")


def _header_value(text: str) -> bytes:
    """Return the text as the value of a header, which must be one line."""
    line = CONTROL_CHARACTERS.sub(" ", text)
    return line.strip().encode()


def _check_placeholders(
    value: Any,
    steps: Steps,
    known: Sequence[str] = TEXTS,
) -> Iterator[Misfit]:
    """Yield the unknown placeholders in a JSON value, and `{{ messages }}` where only a string can be."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _check_placeholders(inner, (*steps, name), known)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _check_placeholders(inner, (*steps, index), known)
    elif isinstance(value, str):
        yield from _check_text_placeholders(value, steps, known)


def _check_text_placeholders(
    text: str,
    steps: Steps,
    known: Sequence[str],
) -> Iterator[Misfit]:
    can_be_messages = MESSAGES in known and _whole_placeholder(text) is not None
    for name in names_in(ENVIRONMENT.sub("", text)):
        if name.startswith(OF_CASE):
            continue
        if name not in IN_BODY:
            yield Misfit(
                steps,
                f"unknown placeholder {{{{ {name} }}}}",
                nearest(name, known),
            )
        elif name == MESSAGES and not can_be_messages:
            yield Misfit(
                steps,
                "{{ messages }} cannot be part of a text",
                "it can only be a whole value in the body",
            )
