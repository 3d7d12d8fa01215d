"""An HTTP transport that sends each request over a connection of its own and keeps idle connections for later requests.

The pool of httpx looks at all its connections whenever a request starts or ends, which takes most of the CPU time of a
request when there are many at once. Here, each connection is a pool of its own.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache, partial
from typing import Any

from agentv.providers.network_settings import has_proxies

CONNECTING = "connection.connect_tcp.started"
"""The event of httpx that a new connection is opened."""
KEEPALIVE_SECONDS = 5.0
"""How long a connection may be idle before it is replaced. Servers close idle connections too."""


def make_transport(httpx: Any, *, resends: bool = True) -> Any:
    """Return a transport for a client of this httpx package; None if proxies are set, which httpx handles itself.

    With `resends`, a request is sent once more if the server closes a reused connection before it answers. A batch must
    not be created twice, so batch APIs do without it.
    """
    if has_proxies():
        return None
    limits = httpx.Limits(max_connections=1, keepalive_expiry=KEEPALIVE_SECONDS)
    # loading the CA certificates takes a while, so all connections share them
    create_ssl_context = cache(httpx.create_ssl_context)
    body_type = _body_type(httpx)
    send: Callable[[Any, Any], Awaitable[Any]] = _send
    if resends:
        send = _resender(httpx)

    class Transport(httpx.AsyncBaseTransport):  # type: ignore[misc] # the SDKs use different httpx packages
        def __init__(self) -> None:
            self._connections: list[Any] = []
            self._idle: defaultdict[tuple[str, bytes], list[Any]] = defaultdict(list)
            """The connections that no request uses, by the server."""

        async def handle_async_request(self, request: Any) -> Any:
            url = request.url
            idle = self._idle[url.scheme, url.netloc]
            if idle:
                connection = idle.pop()
            else:
                connection = self._connect(url.scheme)
            try:
                response = await send(connection, request)
            except BaseException:
                idle.append(connection)  # it connects again for the next request
                raise
            response.stream = body_type(response.stream, partial(idle.append, connection))
            return response

        def _connect(self, scheme: str) -> Any:
            """Return a new connection. It connects when it is first used."""
            verify = False
            if scheme == "https":
                verify = create_ssl_context()
            connection = httpx.AsyncHTTPTransport(verify=verify, limits=limits)
            self._connections.append(connection)
            return connection

        async def aclose(self) -> None:
            for connection in self._connections:
                await connection.aclose()

    return Transport()


async def _send(connection: Any, request: Any) -> Any:
    return await connection.handle_async_request(request)


def _resender(httpx: Any) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a function that sends a request over a connection, and once more if the connection was closed."""
    closed = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)

    async def send(connection: Any, request: Any) -> Any:
        """Return the response. If the server closes a reused connection before it answers, send the request once more.

        A server may close an idle connection at any time, even while a request is on its way.
        """
        is_reused = True

        async def observe(event: str, _info: Any) -> None:
            nonlocal is_reused
            if event == CONNECTING:
                is_reused = False

        request.extensions = {**request.extensions, "trace": observe}
        try:
            return await connection.handle_async_request(request)
        except closed as error:
            # A malformed answer is a RemoteProtocolError, too. A body that is a stream cannot be sent again.
            is_answered = isinstance(error, httpx.RemoteProtocolError) and "disconnected" not in str(error)
            if is_answered or not is_reused or not isinstance(request.stream, httpx.ByteStream):
                raise
            return await connection.handle_async_request(request)

    return send


def _body_type(httpx: Any) -> Any:
    class Body(httpx.AsyncByteStream):  # type: ignore[misc]
        """The body of a response. Closing it releases the connection."""

        def __init__(self, content: Any, release: Callable[[], None]):
            self._content = content
            self._release = release
            self._is_closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in self._content:
                yield chunk

        async def aclose(self) -> None:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                await self._content.aclose()
            finally:
                self._release()

    return Body
