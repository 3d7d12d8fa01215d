"""A collector that receives OTLP over HTTP in protobuf, decoded with the official messages."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class OtlpServer:
    """The received data, and the responses to the next requests."""

    def __init__(self, status: int = 200, seconds: float = 0.0):
        self.status, self.seconds = status, seconds
        self.url = ""
        self.raw: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.resources: list[dict[str, Any]] = []
        self.spans: list[Any] = []
        self.logs: list[Any] = []

    def take(self, data: bytes, headers: dict[str, str], *, is_logs: bool) -> None:
        self.raw.append(data)
        self.headers.append(headers)
        if is_logs:
            for logs in ExportLogsServiceRequest.FromString(data).resource_logs:
                self.logs += [record for scope in logs.scope_logs for record in scope.log_records]
            return
        request = ExportTraceServiceRequest.FromString(data)
        for resource in request.resource_spans:
            self.resources.append(values(resource.resource.attributes))
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def named(self, start: str) -> list[Any]:
        """The spans whose name begins so, in the order of their start."""
        found = [span for span in self.spans if span.name.startswith(start)]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def children(self, parent: Any) -> list[str]:
        """The names of the spans in another, in the order of their start."""
        inner = [span for span in self.spans if span.parent_span_id == parent.span_id]
        return [span.name for span in sorted(inner, key=lambda span: (span.start_time_unix_nano, span.name))]


def values(attributes: Any) -> dict[str, Any]:
    """Attributes by their names."""
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(inner) for inner in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def otlp_server(status: int = 200, seconds: float = 0.0) -> Iterator[OtlpServer]:
    """Serve on loopback. `seconds` is how long each answer takes."""
    found = OtlpServer(status, seconds)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            time.sleep(found.seconds)
            if found.status == 200:
                found.take(
                    data, {name.lower(): value for name, value in self.headers.items()}, is_logs="logs" in self.path
                )
            self.send_response(found.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
