"""HTTP requests at the same time -> each on a connection of its own, which is kept for the next one.

httpx's own pool looks at all its connections whenever a request comes or goes, and sends the head and the body of a
request apart. With fifty requests at once that is most of what a request costs. Here a request takes any free
connection to its server, and is sent in one piece. The HTTP itself is httpcore's, on which httpx is built.
"""

import asyncio
import importlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from functools import cached_property, partial
from typing import Any
from urllib.request import getproxies

PROXIES = frozenset(("http", "https", "all"))
KEEPALIVE_SECONDS = 5.0
"""How long a connection may be idle; servers close theirs after a while, too."""
MAX_UNSENT_BYTES = 1 << 16
MAX_UNREAD_BYTES = 1 << 20
HAPPY_EYEBALLS_SECONDS = 0.25
"""After how long the next address of a server is tried, while the first has not answered (RFC 8305)."""


def make_transport(httpx: Any) -> Any:
    """Return a transport for a client of this httpx; None, which is the client's own, if proxies are set."""
    if PROXIES.intersection(getproxies()):
        return None
    httpcore = importlib.import_module(httpx.__name__.replace("httpx", "httpcore"))
    connections = _Connections(httpcore, httpx.create_ssl_context)
    body_type = _body_type(httpx, _network_errors(httpcore))

    class Transport(httpx.AsyncBaseTransport):  # type: ignore[misc] # the SDKs choose between two packages
        """Sends requests over connections that nobody else uses meanwhile."""

        async def handle_async_request(self, request: Any) -> Any:
            url = request.url
            if url.scheme not in ("http", "https"):
                raise httpx.UnsupportedProtocol("Request URL is missing an 'http://' or 'https://' protocol.")
            target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
            content, options = request.stream, request.extensions
            sent = httpcore.Request(
                request.method, target, headers=request.headers.raw, content=content, extensions=options
            )
            connection = await connections.take(target.origin)
            try:
                reply = await connection.handle_async_request(sent)
            except BaseException as error:
                connections.release(connection)
                if isinstance(error, _network_errors(httpcore)):
                    raise _httpx_error(httpx, error) from error
                raise
            body = body_type(reply.stream, partial(connections.release, connection))
            return httpx.Response(reply.status, headers=reply.headers, stream=body, extensions=reply.extensions)

        async def aclose(self) -> None:
            await connections.close()

    return Transport()


def _body_type(httpx: Any, network_errors: tuple[type[Exception], ...]) -> Any:
    class Body(httpx.AsyncByteStream):  # type: ignore[misc]
        """The body of a response. When it is closed, its connection is released."""

        def __init__(self, content: Any, release: Callable[[], None]):
            self._content, self._release = content, release

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for chunk in self._content:
                    yield chunk
            except network_errors as error:
                raise _httpx_error(httpx, error) from error

        async def aclose(self) -> None:
            release, self._release = self._release, lambda: None  # once
            try:
                await self._content.aclose()
            finally:
                release()

    return Body


def _network_errors(httpcore: Any) -> tuple[type[Exception], ...]:
    return httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException


def _httpx_error(httpx: Any, error: Exception) -> Exception:
    """Return the error of httpx for one of httpcore; both have the same names."""
    kind: type[Exception] = getattr(httpx, type(error).__name__, httpx.NetworkError)
    return kind(str(error))


class _Connections:
    """The connections of one client, to whatever servers it asks."""

    def __init__(self, httpcore: Any, create_ssl_context: Callable[[], Any]):
        self._httpcore, self._create_ssl_context = httpcore, create_ssl_context
        self._backend = _Backend(httpcore)
        self._free: defaultdict[str, list[Any]] = defaultdict(list)
        self._origins: dict[Any, str] = {}
        """All that are open, and the server of each."""

    async def take(self, origin: Any) -> Any:
        """Return a free connection to a server, or a new one, which connects with its first request."""
        free = self._free[str(origin)]
        while free:
            connection = free.pop()
            if not connection.has_expired():
                return connection
            del self._origins[connection]
            await connection.aclose()
        connection = self._httpcore.AsyncHTTPConnection(
            origin,
            ssl_context=self._ssl_context if origin.scheme == b"https" else None,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=self._backend,
        )
        self._origins[connection] = str(origin)
        return connection

    def release(self, connection: Any) -> None:
        """Keep a connection for the next request, unless it is closed."""
        if connection.is_available():
            self._free[self._origins[connection]].append(connection)
        else:
            self._origins.pop(connection, None)

    async def close(self) -> None:
        self._free.clear()
        while self._origins:
            connection, _origin = self._origins.popitem()
            await connection.aclose()

    @cached_property
    def _ssl_context(self) -> Any:
        return self._create_ssl_context()  # reads all the certificates, which takes its time


class _Backend:
    """Opens connections for httpcore."""

    def __init__(self, httpcore: Any):
        self._httpcore = httpcore

    async def connect_tcp(self, host: str, port: int, timeout: float | None = None, **_: Any) -> "_Stream":
        try:
            async with asyncio.timeout(timeout):
                _transport, stream = await asyncio.get_running_loop().create_connection(
                    lambda: _Stream(self._httpcore), host, port, happy_eyeballs_delay=HAPPY_EYEBALLS_SECONDS
                )
        except TimeoutError as error:
            raise self._httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise self._httpcore.ConnectError(str(error)) from error
        return stream


class _Stream(asyncio.Protocol):
    """A connection as httpcore reads and writes it. What is written is sent when an answer is waited for."""

    _transport: Any

    def __init__(self, httpcore: Any):
        self._httpcore = httpcore
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._unread = bytearray()
        self._is_paused = False
        self._is_closed = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > MAX_UNREAD_BYTES:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._is_closed = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed, self._error = True, exc
        self._wake()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent.append(buffer)
        self._unsent_bytes += len(buffer)
        if self._unsent_bytes >= MAX_UNSENT_BYTES:
            self._send()
        while self._is_paused and not self._unread and not self._is_closed:  # a large file is not held in memory
            await self._wait(timeout, self._httpcore.WriteTimeout)

    def _send(self) -> None:
        if self._unsent and not self._is_closed:  # a server may answer and close before it has read everything
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_bytes = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._send()
        if not self._unread and not self._is_closed:
            await self._wait(timeout, self._httpcore.ReadTimeout)
        if self._unread:
            data = bytes(self._unread[:max_bytes])
            del self._unread[:max_bytes]
            if not self._is_closed and len(self._unread) <= MAX_UNREAD_BYTES:
                self._transport.resume_reading()
            return data
        if self._error is not None:
            raise self._httpcore.ReadError(str(self._error)) from self._error
        return b""

    async def _wait(self, timeout: float | None, timeout_error: type[Exception]) -> None:
        """Wait until there is something to read, or never will be, or there is room to write."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._waiter
        except TimeoutError as error:
            raise timeout_error(str(error)) from error
        finally:
            self._waiter = None

    async def start_tls(self, ssl_context: Any, server_hostname: str, timeout: float | None = None) -> "_Stream":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                self._transport = await loop.start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        except BaseException as error:
            self._transport.abort()
            if isinstance(error, TimeoutError):
                raise self._httpcore.ConnectTimeout(str(error)) from error
            if isinstance(error, OSError):  # those of TLS among them
                raise self._httpcore.ConnectError(str(error)) from error
            raise
        return self

    async def aclose(self) -> None:
        self._transport.abort()
        await asyncio.sleep(0)  # which is when the socket is closed

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # while nothing is asked, this means that the server has closed the connection
            return self._is_closed or bool(self._unread)
        return self._transport.get_extra_info({"client_addr": "sockname", "server_addr": "peername"}.get(info, info))
