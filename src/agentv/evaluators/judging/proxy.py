"""Lets a code judge call its judge target: an HTTP server on loopback, with one token per script."""

import asyncio
import hmac
import json
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import copy_context
from http import HTTPStatus
from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.files.wire import response_json
from agentv.processes.loopback_server import HOST, MAX_HEAD, LoopbackHandler, LoopbackServer
from agentv.protocols import Provider
from agentv.records import Json, Message, ProviderRequest

MAX_BODY_BYTES = 4 * 1024 * 1024
URL = "AGENTV_TARGET_PROXY_URL"
TOKEN = "AGENTV_TARGET_PROXY_TOKEN"


class RequestRefused(Exception):
    """The proxy rejects a request; `status` is the HTTP status, `message` the reason."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status
        self.message = message


class Proxy:
    """Forwards the calls of one script to its judges, up to `max_calls`."""

    def __init__(
        self,
        judges: Mapping[str, Provider],
        default: str,
        max_calls: int,
        request: ProviderRequest,
    ):
        """Forward calls to `default` unless the script names another judge; `request` is the one being scored."""
        self._judges = judges
        self._default = default
        self._max_calls = max_calls
        self._scored = request
        self._calls = 0
        self._repeats: Counter[tuple[str, str, str]] = Counter()
        self._pending: list[Future[Any]] = []
        self._is_closed = False
        self._lock = threading.Lock()
        # Calls arrive in threads of the server, but run in the event loop and with the context variables of the case.
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self.token = secrets.token_urlsafe(32)

    def info(self) -> Json:
        """Return the limits of the script and the judges that it can call."""
        return {
            "targetName": self._default,
            "maxCalls": self._max_calls,
            "callCount": self._calls,
            "availableTargets": sorted(self._judges),
        }

    def invoke(self, body: Any) -> Json:
        """Return a judge's answer to the question in the body of a request.

        Runs in a thread of the server. Raise `RequestRefused` if the judge gives no answer.
        """
        question = None
        if isinstance(body, dict):
            question = body.get("question")
        if not isinstance(question, str):
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "'question' must be a string")
        name = body.get("target") or self._default
        if not isinstance(name, str) or name not in self._judges:
            known = ", ".join(sorted(self._judges))
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"unknown target {name!r}: available targets: {known}")
        future = self._start_call(name, question, body.get("system_prompt"))
        try:
            response = future.result()
        except CancelledError:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "the script has ended") from None
        except ProviderError as error:
            raise RequestRefused(HTTPStatus.BAD_GATEWAY, error.message) from error
        answer = json.loads(response_json(response))
        messages = answer.get("outputMessages")
        if not messages:
            messages = [{"role": "assistant", "content": response.text}]
        return {"outputMessages": messages, "rawText": response.text}

    def _start_call(
        self,
        name: str,
        question: str,
        system_prompt: Any,
    ) -> Future[Any]:
        """Start a call in the event loop of the case; raise `RequestRefused` if no further call is allowed."""
        with self._lock:
            if self._is_closed:
                raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "the script has ended")
            if self._calls >= self._max_calls:
                raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, f"the limit of {self._max_calls} calls is reached")
            self._calls += 1
            request = self._build_request(name, question, system_prompt)
            call = _await(self._judges[name].invoke(request))
            # A context can be entered by one thread at a time, and calls may run in parallel.
            context = self._context.copy()
            future = context.run(asyncio.run_coroutine_threadsafe, call, self._loop)
            self._pending.append(future)
        return future

    def _build_request(
        self,
        name: str,
        question: str,
        system_prompt: Any,
    ) -> ProviderRequest:
        """Return the request to a judge. A repeated question is another attempt, so that no cache merges the two."""
        user_message = Message(role="user", content=question)
        if isinstance(system_prompt, str) and system_prompt:
            system_message = Message(role="system", content=system_prompt)
            chat_prompt: tuple[Message, ...] = (system_message, user_message)
            prompt = f"{system_prompt}\n\n{question}"
            key = (name, question, system_prompt)
        else:
            chat_prompt = (user_message,)
            prompt = question
            key = (name, question, "")
        self._repeats[key] += 1
        return ProviderRequest(
            eval_id=self._scored.eval_id,
            question=prompt,
            chat_prompt=chat_prompt,
            attempt=self._repeats[key],
            trial=self._scored.trial,
        )

    def close(self) -> None:
        """Refuse further calls and cancel the pending ones."""
        with self._lock:
            self._is_closed = True
            for future in self._pending:
                future.cancel()


async def _await(call: Any) -> Any:
    """Await any awaitable: `run_coroutine_threadsafe` accepts only coroutines."""
    return await call


class ProxyServer(LoopbackServer):
    """Serves one proxy on a free port."""

    max_request_bytes = MAX_HEAD + MAX_BODY_BYTES

    def __init__(self, proxy: Proxy):
        super().__init__(0, _ProxyHandler)
        self.proxy = proxy


class _ProxyHandler(LoopbackHandler):
    """Answers `POST /invoke` and `GET /info` with JSON."""

    server: ProxyServer
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._respond("/info", self._info)

    def do_POST(self) -> None:
        self._respond("/invoke", self.server.proxy.invoke)

    def _info(self, _body: Any) -> Json:
        return self.server.proxy.info()

    def _respond(self, path: str, answer: Callable[[Any], Json]) -> None:
        """Send what `answer` returns for the body of the request, or an error as `{"error": reason}`."""
        status = HTTPStatus.OK
        try:
            self._check_token()
            if self.path != path:
                raise RequestRefused(HTTPStatus.NOT_FOUND, "not found: use POST /invoke or GET /info")
            content = answer(self._read_body())
        except RequestRefused as error:
            status = error.status
            content = {"error": error.message}
        except Exception as error:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            content = {"error": f"{type(error).__name__}: {error}"}
        data = msgspec.json.encode(content)
        self.respond(status, data, {"Content-Type": "application/json"})

    def _check_token(self) -> None:
        header = self.headers.get("Authorization", "")
        given = header.encode("utf-8", "replace")
        expected = f"Bearer {self.server.proxy.token}".encode()
        if not hmac.compare_digest(given, expected):
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, "missing or invalid bearer token")

    def _read_body(self) -> Any:
        size = self.headers.get("Content-Length", "0")
        if not size.isdigit() or int(size) > MAX_BODY_BYTES:
            raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body exceeds {MAX_BODY_BYTES} bytes")
        try:
            data = self.rfile.read(int(size))
            return msgspec.json.decode(data or b"null")
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"invalid JSON: {error}") from error


@contextmanager
def serve(proxy: Proxy) -> Iterator[dict[str, str]]:
    """Serve the proxy and yield the environment variables with which a script finds it."""
    server = ProxyServer(proxy)
    server.start("agentv-judge-proxy")
    try:
        yield {
            URL: f"http://{HOST}:{server.server_port}",
            TOKEN: proxy.token,
        }
    finally:
        proxy.close()
        # `stop` waits for the serving thread: in this thread it would hold up the event loop.
        stopping = threading.Thread(target=server.stop, daemon=True)
        stopping.start()
