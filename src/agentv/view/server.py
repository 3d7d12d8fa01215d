"""A small HTTP server on 127.0.0.1: bounded requests, bounded threads, bounded time, and no traceback.

The standard library's server is enough, and it is in every install. What protects a machine that others use is ours in
any framework: the token, the checks of `Host` and `Origin` (see `guard`), how large and how slow a request may be. The
surface is a handful of routes that never take a path. One request is answered on each connection, so that no thread
waits for the next: a request that is not complete in time is dropped, and so is a reader that does not read.
"""

import contextlib
import io
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from agentv.errors import AgentvError
from agentv.view.guard import Guard, Refused

HOST = "127.0.0.1"
MAX_THREADS = 24
MAX_HEAD = 32 * 1024
MAX_FIELDS = 20
MAX_BODY = 4 << 20
REQUEST_SECONDS = 10.0
ANSWER_SECONDS = 60.0
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}
NO_TOKEN = """This is the viewer of agentv, and it does not know you.

Use the whole address that 'agentv view' has printed, with the token in it.
"""


class UnreadableRequest(Exception):
    """The request makes no sense; the text says why."""


class Request(NamedTuple):
    """What was asked, after all checks."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""


class Answer(NamedTuple):
    """What is sent back."""

    body: bytes
    type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


Answerer = Callable[[Request], Answer]


class Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1. Raise `AgentvError` if the port is taken."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, answer: Answerer, token: str | None = None):
        self.answer = answer
        self._slots = threading.BoundedSemaphore(MAX_THREADS)
        self._open: set[socket.socket] = set()
        self._listener: threading.Thread | None = None
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            hint = "name another with --port, or leave it out to get a free one"
            raise AgentvError(f"port {port} cannot be used: {error.strerror}", hint=hint) from error
        self.guard = Guard(self.server_port, token)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = HOST, self.socket.getsockname()[1]  # no name is looked up

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._listener = threading.Thread(target=self.serve_forever, args=(0.1,), name="agentv-view", daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """End all connections and threads."""
        self._end_connections()  # the listener may wait for a thread that waits for one of them
        self.shutdown()
        self.server_close()
        self._end_connections()
        for _ in range(MAX_THREADS):  # each is given back by a thread that has ended
            self._slots.acquire(timeout=REQUEST_SECONDS)
        if self._listener is not None:
            self._listener.join()

    def _end_connections(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._slots.acquire()
        self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or says nothing that can be read, is no news."""


class _Deadline(io.RawIOBase):
    """Reads from a connection: so many bytes in all, within so many seconds."""

    def __init__(self, connection: socket.socket, most: int, seconds: float):
        self._connection, self._left, self._end = connection, most, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        rest = self._end - time.monotonic()
        if rest <= 0 or self._left <= 0:
            raise TimeoutError
        self._connection.settimeout(rest)
        count = self._connection.recv_into(buffer)
        self._left -= count
        return count


class _Handler(BaseHTTPRequestHandler):
    """Reads one request, checks it and answers it."""

    server: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Deadline(self.connection, MAX_HEAD + MAX_BODY, REQUEST_SECONDS))

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client went away, or was too slow
            self.handle_one_request()

    def version_string(self) -> str:
        return "agentv"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is the user's."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer in plain text what the standard library answers with a page."""
        status = HTTPStatus(code)
        self._send(Answer(f"{message or status.phrase}\n".encode(errors="replace"), status=status))

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        try:
            answer = self._checked()
        except Refused as refused:
            answer = Answer(f"{refused}\n".encode(), status=HTTPStatus.FORBIDDEN)
        except UnreadableRequest as error:
            answer = Answer(f"{error}\n".encode(), status=HTTPStatus.BAD_REQUEST)
        except Exception as error:  # whatever breaks, the server goes on
            if isinstance(error, OSError):
                raise
            text = f"agentv broke: {type(error).__name__}: {error}\n"
            answer = Answer(text.encode(errors="replace"), status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(answer)

    def _checked(self) -> Answer:
        """Check who asks, and answer."""
        guard, headers = self.server.guard, self.headers
        if sum(map(len, headers.as_string().splitlines())) > MAX_HEAD:
            return Answer(b"the headers are too long\n", status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        guard.check_place(headers)
        try:
            asked = urlsplit(self.path)
            query = dict(parse_qsl(asked.query, keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError:
            raise UnreadableRequest("the address cannot be read") from None
        if self.command in ("GET", "HEAD") and guard.knows(query.get("token", "")):
            return self._let_in(asked.path)
        guard.check_origin(headers)
        if not guard.has_cookie(headers):
            return Answer(NO_TOKEN.encode(), status=HTTPStatus.FORBIDDEN)
        body = b""
        if self.command == "POST":
            guard.check_change(headers)
            body = self._body()
        return self.server.answer(Request("GET" if self.command == "HEAD" else self.command, asked.path, query, body))

    def _let_in(self, path: str) -> Answer:
        """Make the token a cookie, and take it out of the address.

        A browser that comes from another site, such as the file that opened it, does not send the new cookie along a
        redirect. A page of ours that leads on makes it come from here.
        """
        path = "/" + path.lstrip("/\\")  # `//host` would lead elsewhere
        cookie = {"Set-Cookie": self.server.guard.cookie}
        if (self.headers.get("Sec-Fetch-Site") or "none") in ("none", "same-origin"):
            return Answer(b"", status=HTTPStatus.SEE_OTHER, headers={**cookie, "Location": path})
        return Answer(b"", headers={**cookie, "Refresh": f"0; url={path}"}, type="text/html; charset=utf-8")

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise Refused("a request with a body says how long it is")
        if int(length) > MAX_BODY:
            raise Refused("the request is too large")
        return self.rfile.read(int(length))

    def _send(self, answer: Answer) -> None:
        self.close_connection, self.request_version = True, self.protocol_version  # whatever was asked by
        self.connection.settimeout(ANSWER_SECONDS)
        self.send_response(answer.status)
        headers = {"Content-Type": answer.type, "Content-Length": str(len(answer.body)), **SAFE_HEADERS}
        for name, value in {**headers, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if getattr(self, "command", None) != "HEAD":
            self.wfile.write(answer.body)
