"""A JSON endpoint. Values go into the body as JSON values and into the URL percent-encoded, so that no prompt breaks
either of them."""

import re
from collections.abc import Iterator, Mapping
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

SLOT = re.compile(r"(?<!\$)\{\{\s*([^{}]*?)\s*\}\}")
STEP = re.compile(r"\.?([^.\[\]\"]+)|\[(\d+)\]|\[\"([^\"]+)\"\]")
TEXTS = ("question", "guidelines", "eval_id")
MESSAGES = "messages"
BODY = {"question": "{{ question }}", "guidelines": "{{ guidelines }}"}
"""What is sent if no body is set up."""
WITHOUT_BODY = ("GET", "HEAD")
MAX_ANSWER_BYTES = 16 << 20
Steps = tuple[str | int, ...]


class HttpSettings(RetrySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that takes JSON and answers with JSON."""

    url: Annotated[Text, Meta(description="May hold {{ question }}, {{ guidelines }}, {{ eval_id }}.")]
    method: Annotated[Text | None, Meta(description="POST if left out.")] = None
    headers: Annotated[dict[str, str] | None, Meta(description="Sent with every request."), SECRET, IN_CACHE_KEY] = None
    body: Annotated[Any, Meta(description="A JSON value; its strings may hold {{ question }} and others.")] = None
    response_path: Annotated[Text | None, Meta(description="The way to the answer: choices[0].message.content")] = None
    timeout_seconds: Annotated[Seconds | None, Meta(description="How long one case may take."), NOT_IN_CACHE_KEY] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if not self.url.startswith("${{") and not re.match(r"https?://[^/?#{}\s]", self.url):
            yield Misfit(("url",), "must begin with http:// or https:// and the name of a server")
        if SLOT.search(re.split(r"[/?#]", self.url.partition("://")[2])[0]):
            yield Misfit(("url",), "a case must not choose the server", "placeholders go behind the server's name")
        yield from _check_slots(self.url, ("url",))
        yield from _check_slots(self.headers or {}, ("headers",))
        yield from _check_slots(self.body, ("body",), (*TEXTS, MESSAGES))
        if self.body is not None and self._method in WITHOUT_BODY:
            yield Misfit(("body",), f"{self._method} sends no body", "leave it out, or set another 'method'")
        if self.response_path is not None and parse_path(self.response_path) is None:
            hint = """paths look like choices[0].message.content or a["odd key"]"""
            yield Misfit(("response_path",), f"invalid path {self.response_path!r}", hint)

    @property
    def _method(self) -> str:
        return (self.method or "POST").upper()

    def open(self, folder: Path) -> Provider:
        return Http(self, self._method)


class Http(NetworkProvider):
    """Sends a request for each case, once."""

    package, extra = "httpx2", "http"
    sends_spans_late = True  # the server lives on, and sends them when it sees fit

    def __init__(self, settings: HttpSettings, method: str):
        super().__init__(settings)
        self._settings, self._method = settings, method
        self._steps = parse_path(settings.response_path or "") or ()
        self._body = BODY if settings.body is None else settings.body

    def connect(self) -> Any:
        httpx = self.module()
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # cases must not see each other's cookies
        return httpx.AsyncClient(timeout=None, transport=make_transport(httpx), cookies=no_cookies)

    async def close(self, client: Any) -> None:
        await client.aclose()

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        httpx = self.module()
        try:
            sent = self._request(request)
        except ValueError as error:  # lone surrogates
            raise ProviderError(f"the prompt cannot be sent: {excerpt(str(error))}") from error
        try:
            async with self.client().stream(**sent) as response:
                content = await _read_body(response)
        except httpx.RequestError as error:
            raise connection_error(error) from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ProviderError(f"the request cannot be sent: {excerpt(str(error))}") from error
        if not response.is_success:
            raise self.status_error(response.status_code, content, response.headers)
        text = _decode(content, response.encoding or "utf-8")
        return ProviderResponse(text=self._answer(content, text))

    def _request(self, request: ProviderRequest) -> Json:
        settings = self._settings
        values = {"question": request.question, "guidelines": request.guidelines, "eval_id": request.eval_id}
        turns = request.chat_prompt or (Message(role="user", content=request.question),)
        headers = {name.lower(): _header_value(_fill(text, values)) for name, text in (settings.headers or {}).items()}
        url = _fill(settings.url, {name: _quote_for_url(value) for name, value in values.items()})
        for name, text in trace_headers(request.telemetry).items():
            headers.setdefault(name, text.encode())
        sent: Json = {"method": self._method, "url": url, "headers": headers}
        if self._method not in WITHOUT_BODY:
            headers.setdefault("content-type", b"application/json")
            sent["content"] = msgspec.json.encode(_fill_body(self._body, values, msgspec.to_builtins(turns)))
        return sent

    def _answer(self, content: bytes, text: str) -> str:
        """Return what `response_path` leads to, else the body; a body that is a JSON string is decoded."""
        try:
            value = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            if self._steps:
                raise ProviderError(f"the answer is no JSON: {excerpt(text) or 'it is empty'}") from None
            value = None
        if not self._steps:
            return value if isinstance(value, str) else text
        found = _follow_path(value, self._steps)
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def parse_path(path: str) -> Steps | None:
    """Return the steps of a path such as `choices[0].text`; None if it is malformed."""
    steps: list[str | int] = []
    end = 0
    while end < len(path):
        found = STEP.match(path, end)
        if not found or (end == 0 and path.startswith(".")):
            return None
        end = found.end()
        name, index, quoted = found.groups()
        steps.append(int(index) if index else name or quoted)
    return tuple(steps)


def _follow_path(value: Any, steps: Steps) -> Any:
    """Return what the steps lead to; raise `ProviderError`, which says how far they lead, if there is nothing."""
    for number, step in enumerate(steps):
        try:
            if isinstance(step, str) != isinstance(value, dict) or isinstance(value, str):
                raise KeyError(step)
            value = value[step]
        except (KeyError, IndexError, TypeError):
            _raise_missing(value, steps[:number], step)
    return value


def _raise_missing(value: Any, before: Steps, step: str | int) -> NoReturn:
    match value:
        case dict():
            there = f"an object with {', '.join(map(repr, value)) or 'nothing in it'}"
        case list():
            there = f"an array of {len(value)}"
        case _:
            there = msgspec.json.encode(value).decode()
    where = "".join(f"[{inner}]" if isinstance(inner, int) else f".{inner}" for inner in before).lstrip(".")
    missed = f"[{step}]" if isinstance(step, int) else repr(step)
    raise ProviderError(f"response_path: no {missed} in {where or 'the answer'}, which is {excerpt(there)}")


def _decode(content: bytes, charset: str) -> str:
    """Return the body as text, also if the server names a charset that does not exist."""
    try:
        return content.decode(charset, "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


async def _read_body(response: Any) -> bytes:
    """Return the body; raise `ProviderError` if it is too large."""
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > MAX_ANSWER_BYTES:
            raise ProviderError(f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(content)


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders filled in, all at once: placeholders in the values stay as they are."""
    return SLOT.sub(lambda found: values[found[1]], text)


def _fill_body(value: Any, values: Mapping[str, str], turns: Any) -> Any:
    if isinstance(value, str):
        alone = SLOT.fullmatch(value.strip())
        return turns if alone and alone[1] == MESSAGES else _fill(value, values)
    if isinstance(value, dict):
        return {key: _fill_body(inner, values, turns) for key, inner in value.items()}
    return [_fill_body(inner, values, turns) for inner in value] if isinstance(value, list) else value


def _quote_for_url(value: str) -> str:
    """Return the value quoted as a part of a URL; `.` and `..` alone would mean folders."""
    return value.replace(".", "%2E") if value in (".", "..") else quote(value, safe="")


def _header_value(text: str) -> bytes:
    """Return the text as the value of a header, which is one line."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", text).strip().encode()


def _check_slots(value: Any, steps: tuple[str | int, ...], known: tuple[str, ...] = TEXTS) -> Iterator[Misfit]:
    """Yield the unknown placeholders, and `{{ messages }}` where only a text can stand."""
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _check_slots(inner, (*steps, step), known)
    elif isinstance(value, str):
        alone = SLOT.fullmatch(value.strip())
        for name in SLOT.findall(value):
            if name not in (*TEXTS, MESSAGES):
                yield Misfit(steps, f"unknown placeholder {{{{ {name} }}}}", nearest(name, known))
            elif name == MESSAGES and (not alone or MESSAGES not in known):
                hint = "it can only be a whole value in the body"
                yield Misfit(steps, "{{ messages }} cannot be part of a text", hint)
