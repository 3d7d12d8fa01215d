"""Plays the role of your backend: run a command, receive its spans, and print them as trees.

python show_traces.py agentv eval trips.yaml --otel
"""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS: list[Any] = []
SHOWN = ("test.case.result.status", "gen_ai.tool.name", "gen_ai.evaluation.score.label")


class Handler(BaseHTTPRequestHandler):
    """Receives OTLP over HTTP in protobuf."""

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            SPANS.extend(span for scope in resource.scope_spans for span in scope.spans)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print spans only."""


def show(parent: bytes, depth: int = 0) -> None:
    inner = [span for span in SPANS if span.parent_span_id == parent]
    for span in sorted(inner, key=lambda span: span.start_time_unix_nano):
        attributes = [*span.attributes, *(found for event in span.events for found in event.attributes)]
        known = [found.value.string_value for found in attributes if found.key in SHOWN]
        print(f"{'  ' * depth}{span.name}{f': {known[0]}' if known else ''}")
        show(span.span_id, depth + 1)


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
    code = subprocess.run(sys.argv[1:], env=environment, stdout=subprocess.DEVNULL, check=False).returncode
    show(b"")
    sys.exit(code)
