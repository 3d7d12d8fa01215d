"""Lets a judge's script call its judge target: an HTTP server on loopback, with a token for each script."""

import asyncio
import hmac
import json
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import copy_context
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.formats.wire import response_json
from agentv.protocols import Provider
from agentv.records import Message, ProviderRequest

MAX_BODY_BYTES = 4 * 1024 * 1024
URL, TOKEN = "AGENTV_TARGET_PROXY_URL", "AGENTV_TARGET_PROXY_TOKEN"


class RequestRefused(Exception):
    """The proxy does not answer a request; `status` is the HTTP status, `message` says why."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status, self.message = status, message


class Proxy:
    """Answers the calls of one script, up to `max_calls`."""

    def __init__(self, judges: Mapping[str, Provider], default: str, max_calls: int, request: ProviderRequest):
        self._judges, self._default, self._scored = judges, default, request
        self._asked: Counter[tuple[str, str, Any]] = Counter()
        self._max_calls, self._calls = max_calls, 0
        self._lock = threading.Lock()
        self._pending: list[Future[Any]] = []
        self._is_closed = False
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
        self.token = secrets.token_urlsafe(32)

    def info(self) -> dict[str, Any]:
        return {
            "targetName": self._default,
            "maxCalls": self._max_calls,
            "callCount": self._calls,
            "availableTargets": sorted(self._judges),
        }

    def invoke(self, body: Any) -> dict[str, Any]:
        """Return a judge's answer to a question; runs in a thread of the server."""
        question = body.get("question") if isinstance(body, dict) else None
        if not isinstance(question, str):
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "'question' must be a string")
        name = body.get("target") or self._default
        if not isinstance(name, str) or name not in self._judges:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, f"unknown target {name!r}: known are {', '.join(sorted(self._judges))}"
            )
        with self._lock:
            if self._is_closed:
                raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "the script has ended")
            if self._calls >= self._max_calls:
                raise RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, f"no more than {self._max_calls} calls are allowed")
            self._calls += 1
            call = self._judges[name].invoke(self._request(name, question, body.get("system_prompt")))
            future = self._context.copy().run(asyncio.run_coroutine_threadsafe, _await(call), self._loop)
            self._pending.append(future)
        try:
            response = future.result()
        except CancelledError:
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "the script has ended") from None
        except ProviderError as error:
            raise RequestRefused(HTTPStatus.BAD_GATEWAY, error.message) from error
        answer = json.loads(response_json(response))
        messages = answer.get("outputMessages") or [{"role": "assistant", "content": response.text}]
        return {"outputMessages": messages, "rawText": response.text}

    def _request(self, name: str, question: str, system: Any) -> ProviderRequest:
        """Return the request to a judge. A question that is asked again counts as another attempt."""
        start = [Message(role="system", content=system)] if isinstance(system, str) and system else []
        call = name, question, system if start else ""
        self._asked[call] += 1
        return ProviderRequest(
            eval_id=self._scored.eval_id,
            question=f"{system}\n\n{question}" if start else question,
            chat_prompt=(*start, Message(role="user", content=question)),
            attempt=self._asked[call],
            trial=self._scored.trial,
        )

    def close(self) -> None:
        """Refuse further calls, and cancel those that are pending."""
        with self._lock:
            self._is_closed = True
            for future in self._pending:
                future.cancel()


async def _await(call: Any) -> Any:
    return await call


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Ignore the error: a script that has ended does not read its answer."""


@contextmanager
def serve(proxy: Proxy) -> Iterator[dict[str, str]]:
    """Serve the proxy, and yield the environment variables that tell a script where it is."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("/info", lambda _: proxy.info())

        def do_POST(self) -> None:
            self._answer("/invoke", proxy.invoke)

        def _answer(self, path: str, answer: Any) -> None:
            try:
                given = self.headers.get("Authorization", "").encode("utf-8", "replace")
                if not hmac.compare_digest(given, f"Bearer {proxy.token}".encode()):
                    raise RequestRefused(HTTPStatus.UNAUTHORIZED, "a bearer token is needed")
                if self.path != path:
                    raise RequestRefused(HTTPStatus.NOT_FOUND, "there are POST /invoke and GET /info")
                status, content = HTTPStatus.OK, answer(self._body())
            except RequestRefused as error:
                status, content = error.status, {"error": error.message}
            except Exception as error:
                status, content = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}
            data = msgspec.json.encode(content)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _body(self) -> Any:
            size = self.headers.get("Content-Length", "0")
            if not size.isdigit() or int(size) > MAX_BODY_BYTES:
                raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes, please")
            try:
                return msgspec.json.decode(self.rfile.read(int(size)) or b"null")
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise RequestRefused(HTTPStatus.BAD_REQUEST, f"no JSON: {error}") from error

        def log_message(self, *_: object) -> None:
            """Print nothing to the terminal."""

    server = _Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield {URL: f"http://127.0.0.1:{server.server_port}", TOKEN: proxy.token}
    finally:
        proxy.close()
        threading.Thread(target=_close, args=(server,), daemon=True).start()


def _close(server: ThreadingHTTPServer) -> None:
    server.shutdown()
    server.server_close()
