"""The HTTP server of the viewer: the checks of each request, and the headers of each answer.

What protects the user on a shared machine would be our own code with any framework: the token, the checks of `Host` and
`Origin` (see `guard`), and the limits on requests (see `agentv.processes.loopback_server`). There are few routes, and
none of them takes a file path.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from agentv.errors import AgentvError
from agentv.processes.loopback_server import MAX_HEAD, LoopbackHandler, LoopbackServer
from agentv.view.guard import Guard, Refused

DATA = "/api/"
"""The start of all paths to data, which require the token."""
MAX_FIELDS = 20
MAX_BODY = 4 << 20
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
}
NO_TOKEN = """This is the agentv viewer. The address has no valid token.

Open the complete address printed by 'agentv view', including the token.
"""


class UnreadableRequest(Exception):
    """The request is invalid, for the reason in the message."""


class HttpRequest(NamedTuple):
    """A request that has passed all checks."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""


class HttpAnswer(NamedTuple):
    """The response to a request."""

    body: bytes
    type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


Answerer = Callable[[HttpRequest], HttpAnswer]


class ViewerServer(LoopbackServer):
    """Answers the requests that the guard lets pass."""

    max_threads = 24
    evicts_strangers = True
    max_request_bytes = MAX_HEAD + MAX_BODY
    request_seconds = 10.0

    def __init__(
        self,
        port: int,
        answer: Answerer,
        token: str | None = None,
    ):
        """Bind the port, 0 for a free one; raise `AgentvError` if it cannot be used."""
        self.answer = answer
        try:
            super().__init__(port, _ViewerHandler)
        except OSError as error:
            raise AgentvError(
                f"port {port} cannot be used: {error.strerror}",
                hint="choose another --port, or omit it to use any free port",
            ) from error
        self.guard = Guard(self.server_port, token)


class _ViewerHandler(LoopbackHandler):
    """Checks a request and answers it."""

    server: ViewerServer

    def send_error(
        self,
        code: int,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """Send an error as plain text instead of the standard library's HTML page."""
        status = HTTPStatus(code)
        text = f"{message or status.phrase}\n"
        self._send(HttpAnswer(text.encode(errors="replace"), status=status))

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        try:
            answer = self._check_and_answer()
        except Refused as refused:
            answer = HttpAnswer(f"{refused}\n".encode(), status=HTTPStatus.FORBIDDEN)
        except UnreadableRequest as error:
            answer = HttpAnswer(f"{error}\n".encode(), status=HTTPStatus.BAD_REQUEST)
        except OSError:
            raise
        except Exception as error:
            # A bug in one page must not stop the server.
            text = f"internal error: {type(error).__name__}: {error}\n"
            answer = HttpAnswer(text.encode(errors="replace"), status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(answer)

    def _check_and_answer(self) -> HttpAnswer:
        """Return the answer to the request; raise `Refused` or `UnreadableRequest` if it fails a check."""
        guard = self.server.guard
        headers = self.headers
        header_size = sum(len(line) for line in headers.as_string().splitlines())
        if header_size > MAX_HEAD:
            return HttpAnswer(b"the headers are too long\n", status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        guard.check_place(headers)
        path, query = self._split_address()
        method = self.command
        if method == "HEAD":
            method = "GET"
        needs_token = method != "GET" or path.startswith(DATA)
        guard.check_origin(headers, is_page=not needs_token)
        if guard.has_token(headers):
            self.server.trust(self.connection)
        elif needs_token:
            return HttpAnswer(NO_TOKEN.encode(), status=HTTPStatus.FORBIDDEN)
        body = b""
        if method == "POST":
            body = self._read_body()
        request = HttpRequest(method, path, query, body)
        return self.server.answer(request)

    def _split_address(self) -> tuple[str, dict[str, str]]:
        """Return the path and the query parameters; raise `UnreadableRequest` if the address is invalid."""
        try:
            address = urlsplit(self.path)
            fields = parse_qsl(address.query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            raise UnreadableRequest("invalid address") from None
        return address.path, dict(fields)

    def _read_body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise Refused("a request with a body needs a Content-Length")
        if int(length) > MAX_BODY:
            raise Refused("the request is too large")
        return self.rfile.read(int(length))

    def _send(self, answer: HttpAnswer) -> None:
        headers = {
            "Content-Type": answer.type,
            **SAFE_HEADERS,
            **answer.headers,
        }
        self.respond(answer.status, answer.body, headers)
