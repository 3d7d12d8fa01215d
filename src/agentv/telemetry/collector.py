"""Receive OTLP over HTTP on loopback, and assign spans to the attempts at cases that they belong to.

The server runs in threads, so that it accepts spans while user code blocks the run's event loop. Everything that
arrives on the port is untrusted: it is limited in size and always answered.
"""

import asyncio
import threading
import zlib
from http import HTTPStatus
from types import TracebackType
from typing import Self

import msgspec

from agentv.errors import ConfigError
from agentv.log import warn
from agentv.processes.loopback_server import HOST, LoopbackHandler, LoopbackServer
from agentv.records import Problem, ProviderRequest, ProviderResponse
from agentv.results.trace import build_trace
from agentv.run.options import CollectOptions
from agentv.telemetry.bridge import bridge_local_spans
from agentv.telemetry.inbox import Attempt, BadTelemetry, Inbox
from agentv.telemetry.protobuf import encode_rejected
from agentv.telemetry.spans import dropped_calls, trace_of_spans, usage_of_spans
from agentv.text import plural

SIGNALS = ("traces", "logs", "metrics")
GRACE_SECONDS = 1.0
LATE_GRACE_SECONDS = 6.0
"""For a target that keeps running after its answer: SDKs send their queue every 5 seconds."""
MAX_BODY_BYTES = 64 << 20
MAX_LENGTH_DIGITS = 12
"""Longer values of Content-Length are rejected without parsing them."""
JSON = "application/json"
PROTOBUF = "application/x-protobuf"
HTTP2 = b"PRI * HTTP/2"
GRPC_MESSAGE = "received OTLP over gRPC, but --collect-traces supports only OTLP over HTTP: the spans are lost"
GRPC_HINT = "set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf and use the HTTP exporter"
TOO_LATE = "no running case has this trace, or it already has too many spans"


class Collector:
    """Collects the spans of all cases of a run. A context manager that is entered when the run starts."""

    def __init__(self, options: CollectOptions):
        self._options = options
        self.inbox = Inbox()
        self._grpc_warning = threading.Lock()
        """Acquired by the first thread that warns about gRPC, and never released."""
        self._server: CollectorServer | None = None
        self.base = ""

    def __enter__(self) -> Self:
        """Start listening. Raise `ConfigError` if the port cannot be used."""
        port = self._options.collect_port or 0
        try:
            self._server = CollectorServer(port, self)
        except (OSError, OverflowError) as error:  # OverflowError: not a valid port number
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"--collect-traces cannot listen on port {port} of {HOST}: {reason}",
                hint="choose another --collect-port, or omit it to use any free port",
            ) from error
        self.base = f"http://{HOST}:{self._server.server_port}"
        self._server.start("agentv-collector")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.stop()
        strays = self.inbox.strays
        if strays:
            many = plural(strays, "span", "spans and events")
            hint = "they arrived after their case had ended (see --collect-grace), or come from another program"
            warn(
                Problem(
                    message=f"{many} did not belong to a running case",
                    severity="warning",
                    hint=hint,
                )
            )

    def case(self, *, is_late: bool) -> "CaseTraces":
        """Return a collector for one case. `is_late` is True if the target keeps running after its answer."""
        grace = self._options.collect_grace
        if grace is None:
            grace = GRACE_SECONDS
            if is_late:
                grace = LATE_GRACE_SECONDS
        return CaseTraces(self.inbox, self.base, grace)

    def warn_about_grpc(self) -> None:
        """Warn, once, that spans arrive over an unsupported protocol."""
        is_first = self._grpc_warning.acquire(blocking=False)
        if is_first:
            warn(
                Problem(
                    message=GRPC_MESSAGE,
                    severity="warning",
                    hint=GRPC_HINT,
                )
            )


class CaseTraces:
    """Collects the traces of one case, one per attempt.

    A context manager: spans that arrive after its end are not accepted.
    """

    def __init__(
        self,
        inbox: Inbox,
        base: str,
        grace: float,
    ):
        self._inbox = inbox
        self._base = base
        self._grace = grace
        self._attempt: Attempt | None = None
        self.trace_id: str | None = None
        """The trace id of the last attempt."""

    def takes(self, cached: ProviderResponse) -> bool:
        """Return whether a cached answer can be used: only if it was cached with its trace."""
        return build_trace(cached) is not None

    async def prepare(self, request: ProviderRequest) -> ProviderRequest:
        """Return the request with an endpoint and a trace of its own."""
        bridge_local_spans()  # before each attempt, as the user's code may set up a tracer provider at any time
        self.close()
        self._attempt = self._inbox.open(request, self._base)
        self.trace_id = self._attempt.context.trace_id
        return msgspec.structs.replace(request, telemetry=self._attempt.context)

    async def complete(self, response: ProviderResponse) -> ProviderResponse:
        """Return the response with the collected trace, unless it has a trace already."""
        attempt = self._attempt
        if attempt is None or build_trace(response) is not None:
            return response
        await attempt.wait(self._grace)
        return await self._with_trace(attempt, response)

    async def salvage(self) -> ProviderResponse | None:
        """Return the spans that arrived for the last, failed attempt, or None."""
        if self._attempt is None:
            return None
        response = await self._with_trace(self._attempt, ProviderResponse(text=""))
        if response.trace is None:
            return None
        return response

    async def _with_trace(
        self,
        attempt: Attempt,
        response: ProviderResponse,
    ) -> ProviderResponse:
        """Return the response with the spans that have arrived so far."""
        is_complete = attempt.is_complete
        spans = attempt.spans()
        if not spans:
            return response
        # In threads, as up to 200,000 spans would block the event loop.
        trace = await asyncio.to_thread(trace_of_spans, spans)
        usage = await asyncio.to_thread(usage_of_spans, spans)
        dropped = await asyncio.to_thread(dropped_calls, spans)
        trace_complete: bool | None = False
        if is_complete and dropped is None:
            trace_complete = response.trace_complete
        return msgspec.structs.replace(
            response,
            trace=trace,
            dropped=response.dropped or dropped,
            token_usage=response.token_usage or usage,
            trace_complete=trace_complete,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Accept nothing more for the last attempt."""
        if self._attempt is not None:
            self._inbox.close(self._attempt)
            self._attempt = None


class CollectorServer(LoopbackServer):
    """Receives the telemetry of a run."""

    drops_excess = True
    # Twice the body, since the chunked transfer encoding adds the sizes of its chunks.
    max_request_bytes = 2 * MAX_BODY_BYTES

    def __init__(self, port: int, collector: Collector):
        self.collector = collector
        super().__init__(port, _CollectorHandler)


class _Refused(Exception):
    """A request is refused with this HTTP status."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status


class _CollectorHandler(LoopbackHandler):
    server: CollectorServer
    raw_requestline: bytes

    def parse_request(self) -> bool:
        """Parse a request line. Detect the preface of HTTP/2, which gRPC uses."""
        if self.raw_requestline.startswith(HTTP2):
            self.server.collector.warn_about_grpc()
            self.close_connection = True
            return False
        return super().parse_request()

    def do_POST(self) -> None:
        is_json = self._content_type() == JSON
        status = HTTPStatus.OK
        try:
            answer = self._take(is_json)
        except _Refused as error:
            status = error.status
            answer = _refusal(str(error))
        except BadTelemetry as error:
            status = HTTPStatus.BAD_REQUEST
            answer = _refusal(f"invalid OTLP: {error}")
        answer_type = JSON
        if status == HTTPStatus.OK and not is_json:
            answer_type = PROTOBUF
        self.respond(status, answer, {"Content-Type": answer_type})

    def _content_type(self) -> str:
        header = self.headers.get("Content-Type", "")
        return header.partition(";")[0].strip().lower()

    def _take(self, is_json: bool) -> bytes:
        """Pass the spans or events of the request to the inbox. Return the body of the response."""
        collector = self.server.collector
        token, signal = self._token_and_signal()
        if signal not in SIGNALS:
            raise _Refused(HTTPStatus.NOT_FOUND, "not found: use /v1/traces or /v1/logs")
        content_type = self._content_type()
        if content_type.startswith("application/grpc"):
            collector.warn_about_grpc()
        if content_type not in (JSON, PROTOBUF):
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {PROTOBUF} or {JSON}")
        data = self._body()
        if signal == "metrics":
            # agentv does not use metrics, but an SDK reports an error if they are refused.
            return _accepted(is_json)
        if token and not collector.inbox.knows(token):
            collector.inbox.add_strays(1)
            raise _Refused(HTTPStatus.NOT_FOUND, "no running case has this endpoint")
        rejected = collector.inbox.take(token, signal, data, is_json=is_json)
        if not rejected:
            return _accepted(is_json)
        if not is_json:
            return encode_rejected(rejected, TOO_LATE)
        name = "rejectedLogRecords"
        if signal == "traces":
            name = "rejectedSpans"
        partial_success = {name: str(rejected), "errorMessage": TOO_LATE}
        return msgspec.json.encode({"partialSuccess": partial_success})

    def _token_and_signal(self) -> tuple[str, str]:
        """Return the parts of a path such as `/TOKEN/v1/traces`. The token is empty for the common endpoint."""
        token, _, signal = self.path.strip("/").rpartition("v1/")
        return token.rstrip("/"), signal

    def _body(self) -> bytes:
        """Return the decompressed body. Raise `_Refused` or `BadTelemetry` if it is too large or invalid."""
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        is_chunked = "chunked" in self.headers.get("Transfer-Encoding", "").lower()
        if is_chunked:
            data = self._read_chunks()
        else:
            data = self._read_whole()
        if encoding in ("", "identity"):
            return data
        if encoding not in ("gzip", "deflate"):
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body uncompressed or with gzip")
        return _decompress(data, encoding)

    def _read_whole(self) -> bytes:
        """Read a body whose size is in `Content-Length`."""
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        if len(size) > MAX_LENGTH_DIGITS or int(size) > MAX_BODY_BYTES:
            raise _too_large()
        return self._read(int(size))

    def _read_chunks(self) -> bytes:
        """Read a body in the chunked transfer encoding."""
        data = bytearray()
        while True:
            line = self.rfile.readline(100)
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise BadTelemetry("a chunk has no valid size") from None
            if size < 0 or size > MAX_BODY_BYTES:
                raise _too_large()
            if size == 0:
                return bytes(data)
            data += self._read(size)
            if len(data) > MAX_BODY_BYTES:
                raise _too_large()
            self.rfile.readline(100)  # the line break after a chunk

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise BadTelemetry("the body is truncated")
        return data


def _refusal(message: str) -> bytes:
    return msgspec.json.encode({"message": message})


def _accepted(is_json: bool) -> bytes:
    """Return the body of a response without a partial success: an empty message."""
    if is_json:
        return b"{}"
    return b""


def _decompress(data: bytes, encoding: str) -> bytes:
    """Decompress a body up to the size limit. Raise `_Refused` if it is larger, `BadTelemetry` if it is invalid."""
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)  # 32: detect gzip and zlib headers
    try:
        found = decompressor.decompress(data, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise BadTelemetry(f"invalid {encoding}: {error}") from error
    if len(found) > MAX_BODY_BYTES:
        raise _too_large()
    if not decompressor.eof:
        raise BadTelemetry("the body is truncated")
    return found


def _too_large() -> _Refused:
    return _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body exceeds {MAX_BODY_BYTES >> 20} MiB")
