"""A target that is an HTTP endpoint with JSON.

Values are put into the body as JSON values and into the URL percent-encoded, so that no prompt can break either.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import msgspec
from msgspec import Meta

from agentv.errors import ProviderError, nearest
from agentv.formats.conversion import Misfit
from agentv.protocols import Provider
from agentv.providers.network import NetworkProvider, connection_error, excerpt
from agentv.providers.settings import IN_CACHE_KEY, NOT_IN_CACHE_KEY, SECRET, RetrySettings, Seconds, Text
from agentv.providers.transport import make_transport
from agentv.records import Json, Message, ProviderRequest, ProviderResponse
from agentv.telemetry.context import trace_headers

PLACEHOLDER = re.compile(r"(?<!\$)\{\{\s*([^{}]*?)\s*\}\}")
SERVER = re.compile(r"https?://[^/?#{}\s]")
STEP = re.compile(r"\.?([^.\[\]\"]+)|\[(\d+)\]|\[\"([^\"]+)\"\]")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")
TEXTS = ("question", "guidelines", "eval_id")
"""The placeholders whose values are strings."""
MESSAGES = "messages"
"""The placeholder whose value is a list: it must be a whole value in the body."""
IN_BODY = (*TEXTS, MESSAGES)
DEFAULT_BODY = {"question": "{{ question }}", "guidelines": "{{ guidelines }}"}
WITHOUT_BODY = ("GET", "HEAD")
MAX_ANSWER_BYTES = 16 << 20
Steps = tuple[str | int, ...]
Values = Mapping[str, str]
"""The values of the placeholders, by name."""


class HttpSettings(RetrySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that takes JSON and answers with JSON."""

    url: Annotated[
        Text,
        Meta(description="May hold {{ question }}, {{ guidelines }}, {{ eval_id }}."),
    ]
    method: Annotated[
        Text | None,
        Meta(description="POST if left out."),
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        Meta(description="Sent with every request."),
        SECRET,
        IN_CACHE_KEY,
    ] = None
    body: Annotated[
        Any,
        Meta(description="A JSON value; its strings may hold {{ question }} and others."),
    ] = None
    response_path: Annotated[
        Text | None,
        Meta(description="The way to the answer: choices[0].message.content"),
    ] = None
    timeout_seconds: Annotated[
        Seconds | None,
        Meta(description="How long one case may take."),
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
                "leave it out, or set another 'method'",
            )
        if self.response_path is not None and parse_path(self.response_path) is None:
            yield Misfit(
                ("response_path",),
                f"invalid path {self.response_path!r}",
                """paths look like choices[0].message.content or a["odd key"]""",
            )

    def _check_server(self) -> Iterator[Misfit]:
        """Yield what is wrong with the scheme and the server in the URL."""
        is_variable = self.url.startswith("${{")
        if not is_variable and not SERVER.match(self.url):
            yield Misfit(("url",), "must begin with http:// or https:// and the name of a server")
        after_scheme = self.url.partition("://")[2]
        server = re.split(r"[/?#]", after_scheme)[0]
        if PLACEHOLDER.search(server):
            yield Misfit(
                ("url",),
                "a case must not choose the server",
                "placeholders go behind the server's name",
            )

    @property
    def _method(self) -> str:
        return (self.method or "POST").upper()

    def open(self, folder: Path) -> Provider:
        return Http(self, self._method)


class Http(NetworkProvider):
    """Sends one HTTP request per case."""

    package = "httpx2"
    extra = "http"
    sends_spans_late = True  # the server outlives the request and exports its spans when it likes

    def __init__(self, settings: HttpSettings, method: str):
        super().__init__(settings)
        self._settings = settings
        self._method = method
        self._steps: Steps = ()
        if settings.response_path:
            self._steps = parse_path(settings.response_path) or ()
        self._body = settings.body
        if self._body is None:
            self._body = DEFAULT_BODY

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
        return ProviderResponse(text=self._answer(content, text))

    def _request_options(self, request: ProviderRequest) -> Json:
        """Return the options of httpx for the request of a case."""
        values = {
            "question": request.question,
            "guidelines": request.guidelines,
            "eval_id": request.eval_id,
        }
        headers = self._headers(request, values)
        options: Json = {
            "method": self._method,
            "url": self._url(values),
            "headers": headers,
        }
        if self._method not in WITHOUT_BODY:
            headers.setdefault("content-type", b"application/json")
            body = _fill_body(self._body, values, _turns(request))
            options["content"] = msgspec.json.encode(body)
        return options

    def _headers(self, request: ProviderRequest, values: Values) -> dict[str, bytes]:
        """Return the headers in the settings, and those that carry the trace of the case."""
        headers: dict[str, bytes] = {}
        templates = self._settings.headers or {}
        for name, template in templates.items():
            text = _fill(template, values)
            headers[name.lower()] = _header_value(text)
        traced = trace_headers(request.telemetry)
        for name, text in traced.items():
            headers.setdefault(name, text.encode())
        return headers

    def _url(self, values: Values) -> str:
        quoted = {}
        for name, value in values.items():
            quoted[name] = _quote_for_url(value)
        return _fill(self._settings.url, quoted)

    def _answer(self, content: bytes, text: str) -> str:
        """Return the value at `response_path`, or the whole body. A body that is a JSON string is decoded."""
        try:
            value = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            if self._steps:
                raise ProviderError(f"the answer is no JSON: {excerpt(text) or 'it is empty'}") from None
            return text
        if not self._steps:
            return value if isinstance(value, str) else text
        found = _follow_path(value, self._steps)
        if isinstance(found, str):
            return found
        return msgspec.json.encode(found).decode()


def _turns(request: ProviderRequest) -> Any:
    """Return the conversation of a request as JSON values: its chat prompt, or the question alone."""
    question = Message(role="user", content=request.question)
    return msgspec.to_builtins(request.chat_prompt or (question,))


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
            there = f"an object with {', '.join(map(repr, value)) or 'nothing in it'}"
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


def _fill(text: str, values: Values) -> str:
    """Return the text with its placeholders replaced in one pass: placeholders inside values stay unchanged."""

    def value_of(found: re.Match[str]) -> str:
        return values[found[1]]

    return PLACEHOLDER.sub(value_of, text)


def _fill_body(value: Any, values: Values, turns: Any) -> Any:
    """Return a JSON value with the placeholders in its strings replaced; `turns` replace `{{ messages }}`."""
    if isinstance(value, str):
        if _whole_placeholder(value) == MESSAGES:
            return turns
        return _fill(value, values)
    if isinstance(value, dict):
        filled = {}
        for key, inner in value.items():
            filled[key] = _fill_body(inner, values, turns)
        return filled
    if isinstance(value, list):
        return [_fill_body(inner, values, turns) for inner in value]
    return value


def _whole_placeholder(text: str) -> str | None:
    """Return the name of the placeholder that the whole text consists of, if it does."""
    found = PLACEHOLDER.fullmatch(text.strip())
    return None if found is None else found[1]


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
    for name in PLACEHOLDER.findall(text):
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
