"""Listens on loopback for OTLP over HTTP, and gives each attempt at a case what is its own.

It runs in threads, so that spans are taken while the code of a user holds up the run's loop. Whatever arrives on the
port is bounded and answered; nothing of it is trusted.
"""

import asyncio
import threading
import zlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

from agentv.errors import ConfigError
from agentv.notices import warn
from agentv.records import Problem, ProviderRequest, ProviderResponse
from agentv.telemetry.inbox import Attempt, BadTelemetry, Inbox
from agentv.telemetry.options import CollectOptions
from agentv.telemetry.protobuf import encode_rejected
from agentv.telemetry.spans import trace_of_spans, usage_of_spans
from agentv.telemetry.trace import build_trace

HOST = "127.0.0.1"
SIGNALS = ("traces", "logs", "metrics")
GRACE_SECONDS = 1.0
LATE_GRACE_SECONDS = 6.0
"""For a target that lives on after its answer: SDKs send what they have every 5 seconds."""
MAX_BODY_BYTES = 64 << 20
MAX_CONNECTIONS = 256
IDLE_SECONDS = 60.0
JSON, PROTOBUF = "application/json", "application/x-protobuf"
HTTP2 = b"PRI * HTTP/2"
GRPC = (
    "OTLP over gRPC arrived, and --collect-traces takes OTLP over HTTP: its spans are lost",
    "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, and use the HTTP exporter",
)
TOO_LATE = "no case that is under way has this trace, or it has too many spans already"


class Collector:
    """Takes the spans of all cases of a run. It is a context manager, entered when the run starts."""

    def __init__(self, options: CollectOptions):
        self._options = options
        self.inbox = Inbox()
        self._was_told_of_grpc = threading.Lock()
        self._server: _Server | None = None
        self.base = ""

    def __enter__(self) -> Self:
        """Begin to listen; raise `ConfigError` if the port is taken."""
        port = self._options.port or 0
        try:
            self._server = _Server((HOST, port), _Handler)
        except (OSError, OverflowError) as error:  # it is taken, or is none
            hint = "choose another with --collect-port, or leave it out: then a free one is taken"
            reason = getattr(error, "strerror", None) or error
            message = f"--collect-traces cannot listen on port {port} of {HOST}: {reason}"
            raise ConfigError(message, hint=hint) from error
        self._server.collector = self
        self.base = f"http://{HOST}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self.inbox.strays:
            many = "1 span" if self.inbox.strays == 1 else f"{self.inbox.strays} spans and events"
            hint = "they came after their case had ended, see --collect-grace, or are of another program"
            warn(Problem(message=f"{many} belonged to no case that was under way", severity="warning", hint=hint))

    def case(self, *, is_late: bool) -> "CaseTraces":
        """Return what collects the traces of one case; `is_late` if the target lives on after its answer."""
        grace = self._options.grace
        if grace is None:
            grace = LATE_GRACE_SECONDS if is_late else GRACE_SECONDS
        return CaseTraces(self.inbox, self.base, grace)

    def tell_of_grpc(self) -> None:
        """Warn, once, that spans come in a way that is not understood."""
        if self._was_told_of_grpc.acquire(blocking=False):  # by the first of several threads
            warn(Problem(message=GRPC[0], severity="warning", hint=GRPC[1]))


class CaseTraces:
    """The traces of one case, one for each attempt: see `calls.caller.Preparation`.

    It is a context manager; nothing is taken after its end.
    """

    def __init__(self, inbox: Inbox, base: str, grace: float):
        self._inbox, self._base, self._grace = inbox, base, grace
        self._attempt: Attempt | None = None
        self.trace_id: str | None = None
        """The trace of the last attempt."""

    def takes(self, cached: ProviderResponse) -> bool:
        """Return whether an answer of the cache will do: it was kept with its trace."""
        return build_trace(cached) is not None

    async def prepare(self, request: ProviderRequest) -> ProviderRequest:
        """Return the request with an endpoint and a trace of its own."""
        self.close()
        self._attempt = self._inbox.open(request, self._base)
        self.trace_id = self._attempt.context.trace_id
        return msgspec.structs.replace(request, telemetry=self._attempt.context)

    async def complete(self, response: ProviderResponse) -> ProviderResponse:
        """Return the response with the trace that was collected, unless it came with one of its own."""
        attempt = self._attempt
        if attempt is None or build_trace(response) is not None:
            return response
        await attempt.wait(self._grace)
        return await self._with_trace(attempt, response)

    async def salvage(self) -> ProviderResponse | None:
        """Return what has arrived of the last attempt, which has failed; None if nothing has."""
        if self._attempt is None:
            return None
        found = await self._with_trace(self._attempt, ProviderResponse(text=""))
        return found if found.trace is not None else None

    async def _with_trace(self, attempt: Attempt, response: ProviderResponse) -> ProviderResponse:
        is_complete, spans = attempt.is_complete, attempt.spans()
        if not spans:
            return response
        trace, usage = await asyncio.to_thread(lambda: (trace_of_spans(spans), usage_of_spans(spans)))
        return msgspec.structs.replace(
            response,
            trace=trace,
            token_usage=response.token_usage or usage,
            trace_complete=response.trace_complete if is_complete else False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take nothing more for the last attempt."""
        if self._attempt is not None:
            self._inbox.close(self._attempt)
            self._attempt = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    collector: Collector

    def __init__(self, *args: Any):
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, if there are not too many; else hang up."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Ignore the error: a program that has ended does not read its answer."""


class _Refused(Exception):
    """A request is not taken; `status` is the HTTP status."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    raw_requestline: bytes
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def parse_request(self) -> bool:
        """Look for the beginning of HTTP/2, which is what gRPC speaks."""
        if self.raw_requestline.startswith(HTTP2):
            self.server.collector.tell_of_grpc()
            self.close_connection = True
            return False
        return super().parse_request()

    def do_POST(self) -> None:
        is_json = self.headers.get("Content-Type", "").partition(";")[0].strip().lower() == JSON
        try:
            status, answer = HTTPStatus.OK, self._take(is_json)
        except _Refused as error:
            status, answer = error.status, self._refusal(str(error))
        except BadTelemetry as error:
            status, answer = HTTPStatus.BAD_REQUEST, self._refusal(f"this is no OTLP: {error}")
        self.send_response(status)
        self.send_header("Content-Type", JSON if is_json or status != HTTPStatus.OK else PROTOBUF)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer)

    def _refusal(self, message: str) -> bytes:
        return msgspec.json.encode({"message": message})

    def _take(self, is_json: bool) -> bytes:
        """Take what is sent; return the answer."""
        inbox = self.server.collector.inbox
        token, _, rest = self.path.strip("/").rpartition("v1/")
        token = token.rstrip("/")
        if rest not in SIGNALS:
            raise _Refused(HTTPStatus.NOT_FOUND, "there are /v1/traces and /v1/logs")
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind.startswith("application/grpc"):
            self.server.collector.tell_of_grpc()
        if kind not in (JSON, PROTOBUF):
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {PROTOBUF} or {JSON}")
        data = self._body()
        if rest == "metrics":
            return b"{}" if is_json else b""
        if token and not inbox.knows(token):
            inbox.add_strays(1)
            raise _Refused(HTTPStatus.NOT_FOUND, "no case that is under way has this endpoint")
        refused = inbox.take(token, rest, data, is_json=is_json)
        if not refused:
            return b"{}" if is_json else b""
        if not is_json:
            return encode_rejected(refused, TOO_LATE)
        name = "rejectedSpans" if rest == "traces" else "rejectedLogRecords"
        return msgspec.json.encode({"partialSuccess": {name: str(refused), "errorMessage": TOO_LATE}})

    def _body(self) -> bytes:
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        data = self._chunks() if "chunked" in self.headers.get("Transfer-Encoding", "").lower() else self._whole()
        if encoding in ("", "identity"):
            return data
        if encoding not in ("gzip", "deflate"):
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send it as it is, or compressed by gzip")
        reader = zlib.decompressobj(zlib.MAX_WBITS | 32)
        try:
            found = reader.decompress(data, MAX_BODY_BYTES + 1)
        except zlib.error as error:
            raise BadTelemetry(f"it is no {encoding}: {error}") from error
        if not reader.eof and len(found) <= MAX_BODY_BYTES:
            raise BadTelemetry("it is cut off")
        if len(found) > MAX_BODY_BYTES:
            raise _too_large()
        return found

    def _whole(self) -> bytes:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "say how long it is")
        if len(size) > 12 or int(size) > MAX_BODY_BYTES:
            raise _too_large()
        return self._read(int(size))

    def _chunks(self) -> bytes:
        data = bytearray()
        while True:
            line = self.rfile.readline(100)
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise BadTelemetry("a chunk does not say how long it is") from None
            if size < 0 or size > MAX_BODY_BYTES:
                raise _too_large()
            if size == 0:
                return bytes(data)
            data += self._read(size)
            if len(data) > MAX_BODY_BYTES:
                raise _too_large()
            self.rfile.readline(100)

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise BadTelemetry("it is cut off")
        return data

    def log_message(self, *_: object) -> None:
        """Print nothing to the terminal."""


def _too_large() -> _Refused:
    return _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES >> 20} MiB at once, please")
