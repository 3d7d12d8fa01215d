"""An HTTP server on 127.0.0.1, with limits on threads, request sizes and times.

It is based on the standard library's server, which needs no dependency. Each connection serves one request, so that no
thread waits for the next one. Requests that are not complete in time are dropped, and so are clients that do not read.
"""

import contextlib
import io
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

HOST = "127.0.0.1"
MAX_HEAD = 32 * 1024
POLL_SECONDS = 0.05
"""How often the listener checks whether it has to stop."""


class LoopbackServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 and answers each connection in a thread. A subclass sets its limits."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    max_threads: ClassVar[int] = 256
    drops_excess: ClassVar[bool] = False
    """Whether connections are closed if all threads are busy. Otherwise, they wait for a thread."""
    evicts_strangers: ClassVar[bool] = False
    """Whether a connection that waits for a thread takes that of the oldest one that is not trusted."""
    max_request_bytes: ClassVar[int] = MAX_HEAD
    """The maximum size of a request, with its headers."""
    request_seconds: ClassVar[float] = 60.0
    """The time in which a request has to arrive completely."""
    answer_seconds: ClassVar[float] = 60.0
    """How long a client may take to read a part of the answer."""

    def __init__(self, port: int, handler: "type[LoopbackHandler]"):
        """Bind the port, 0 for a free one; raise `OSError` or `OverflowError` if it cannot be used."""
        self._slots = threading.BoundedSemaphore(self.max_threads)
        self._connections: dict[socket.socket, bool] = {}
        """The open connections, oldest first, and whether they are trusted."""
        self._listener: threading.Thread | None = None
        super().__init__((HOST, port), handler)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        # The base class would make a DNS lookup here.
        self.server_name = HOST
        self.server_port = self.socket.getsockname()[1]

    def start(self, name: str) -> None:
        """Serve in a separate thread with this name."""
        self._listener = threading.Thread(
            target=self.serve_forever,
            args=(POLL_SECONDS,),
            name=name,
            daemon=True,
        )
        self._listener.start()

    def stop(self) -> None:
        """Accept no more connections. Those that are open are still served."""
        self.shutdown()
        self.server_close()

    def disconnect(self) -> None:
        """Close all connections, stop, and wait for all threads."""
        # Before the shutdown: the listener may wait for a slot of a thread that waits for its client.
        self._close_connections()
        self.stop()
        self._close_connections()
        # When all slots are free, all threads have ended.
        for _ in range(self.max_threads):
            self._slots.acquire(timeout=self.request_seconds)
        if self._listener is not None:
            self._listener.join()

    def _close_connections(self) -> None:
        for connection in list(self._connections):
            _shut(connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._acquire_slot():
            self.shutdown_request(request)
            return
        self._connections[request] = False
        super().process_request(request, client_address)

    def _acquire_slot(self) -> bool:
        """Wait for a thread; return False if the connection is to be closed instead."""
        if not self.evicts_strangers:
            return self._slots.acquire(blocking=not self.drops_excess)
        is_free = self._slots.acquire(blocking=False)
        while not is_free:
            self._evict_stranger()
            is_free = self._slots.acquire(timeout=POLL_SECONDS)
        return True

    def _evict_stranger(self) -> None:
        """Close the oldest connection that is not trusted, so that its thread ends."""
        for connection, is_trusted in list(self._connections.items()):
            if not is_trusted:
                # another call must not choose the same one, whose thread may take a moment to end
                self._connections.pop(connection, None)
                _shut(connection)
                return

    def trust(self, connection: socket.socket) -> None:
        """Let a connection keep its thread, regardless of who waits."""
        if connection in self._connections:
            self._connections[connection] = True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.pop(request, None)
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: clients that disconnect or send garbage are not reported."""


def _shut(connection: socket.socket) -> None:
    """End all transfers of a connection. A thread that waits for one of them continues."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class LoopbackHandler(BaseHTTPRequestHandler):
    """Reads one request and answers it."""

    server: LoopbackServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        limited = _LimitedReader(
            self.connection,
            max_bytes=self.server.max_request_bytes,
            seconds=self.server.request_seconds,
        )
        self.rfile = io.BufferedReader(limited)

    def handle(self) -> None:
        # The client has disconnected, or was too slow.
        with contextlib.suppress(OSError):
            self.handle_one_request()

    def version_string(self) -> str:
        return "agentv"

    def log_message(self, *_: object) -> None:
        """Do nothing: requests are not logged to the terminal."""

    def respond(
        self,
        status: HTTPStatus,
        body: bytes,
        headers: Mapping[str, str],
    ) -> None:
        """Send an answer and close the connection."""
        self.close_connection = True
        # Send headers even to clients that speak HTTP/0.9.
        self.request_version = self.protocol_version
        self.connection.settimeout(self.server.answer_seconds)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        # `command` is missing if the request line was invalid.
        if getattr(self, "command", None) != "HEAD":
            self.wfile.write(body)


class _LimitedReader(io.RawIOBase):
    """Reads from a connection, at most `max_bytes` within `seconds` seconds in total."""

    def __init__(
        self,
        connection: socket.socket,
        max_bytes: int,
        seconds: float,
    ):
        self._connection = connection
        self._bytes_left = max_bytes
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds_left = self._end - time.monotonic()
        if seconds_left <= 0 or self._bytes_left <= 0:
            raise TimeoutError
        self._connection.settimeout(seconds_left)
        count = self._connection.recv_into(buffer)
        self._bytes_left -= count
        return count
