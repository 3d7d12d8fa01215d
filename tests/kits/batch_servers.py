"""A server that behaves as the vendors' batch APIs do, with faults that a test can switch on.

It speaks as OpenAI, Azure, Anthropic and Gemini, each at its own paths, and answers single requests as well. An answer
is `echo: ` and the last message of the user; each takes 11 tokens and gives 7. It runs in a thread of the test, or as
a process of its own (`python -m tests.kits.batch_servers`), which outlives agentv. A test asks what it was given, and
sets faults, over HTTP, so that both are used alike.
"""

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests.kits.batch_vendors import ROUTES
from tests.kits.batch_vendors.call import Call
from tests.kits.batch_vendors.store import Faults, Reply, Store
from tests.kits.processes import start_process

STATE, SET = "/test/state", "/test/set"
ROOT = Path(__file__).parent.parent.parent


class BatchServer(NamedTuple):
    """A running server, as a test sees it."""

    url: str

    def state(self) -> dict[str, Any]:
        """The requests so far: `submitted` and `live` (with counts), `batches`, `files`, `asked`."""
        with urllib.request.urlopen(self.url + STATE) as reply:
            found: dict[str, Any] = json.load(reply)
        return found

    def set(self, **faults: Any) -> None:
        """Switch faults on or off; see `Faults`."""
        Faults(**faults)  # no others
        request = urllib.request.Request(self.url + SET, json.dumps(faults).encode(), method="POST")
        urllib.request.urlopen(request).close()

    def target(self, vendor: str, **settings: Any) -> dict[str, Any]:
        """The settings of a target that is this server; `openai-responses` and the like ask the other API."""
        own: dict[str, dict[str, Any]] = {
            "openai": {"model": "gpt-5", "base_url": f"{self.url}/v1"},
            "azure": {"deployment": "mine", "endpoint": self.url},
            "anthropic": {"model": "claude-5", "base_url": self.url},
            "gemini": {"model": "gemini-9", "base_url": f"{self.url}/google"},
        }
        vendor, _, api = vendor.partition("-")
        more = {"api": api} if api else {}
        shared = {"name": "default", "provider": vendor, "api_key": "secret-key-123", "batch_api": True}
        return {**shared, **own[vendor], **more, **settings}


@contextmanager
def batch_server(**faults: Any) -> Iterator[BatchServer]:
    """Serve in a thread."""
    with _Server(("127.0.0.1", 0), Handler) as server:
        server.store = Store(Faults(**faults))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield BatchServer(server.url)
        server.shutdown()
        thread.join()


def start_batch_server(**faults: Any) -> BatchServer:
    """Serve in a separate process, which ends after the test."""
    command = [sys.executable, "-m", "tests.kits.batch_servers", json.dumps(faults)]
    process = start_process(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return BatchServer(process.stdout.readline().strip())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    store: Store

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Clients may go away."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        call = Call(address.path, dict(parse_qsl(address.query)), headers, content, self.server.url)
        store = self.server.store
        if address.path not in (STATE, SET):
            time.sleep(store.faults.seconds)
        with store.lock:
            reply = self._reply(store, call)
        self._send(reply)

    do_GET = do_POST

    def _reply(self, store: Store, call: Call) -> Reply:
        if call.path == STATE:
            return Reply(store.to_json())
        if call.path == SET:
            for name, value in call.json().items():
                setattr(store.faults, name, value)
            return Reply({})
        for method, pattern, route in ROUTES:
            if method == self.command and (match := re.fullmatch(pattern, call.path)):
                return route(store, call, match[1] if match.groups() else "")
        return Reply({"error": {"message": f"no such path: {call.path}"}}, 404)

    def _send(self, reply: Reply) -> None:
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.close_connection = reply.is_cut
        if reply.is_cut and not data:
            return
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if reply.is_cut else data)

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


def main() -> None:
    """Serve until killed, and print the address first."""
    with _Server(("127.0.0.1", 0), Handler) as server:
        server.store = Store(Faults(**json.loads(sys.argv[1])))
        print(server.url, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
