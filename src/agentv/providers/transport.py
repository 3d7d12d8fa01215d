"""Requests at the same time -> each on a connection of its own, and the next ones on those that are free again.

A pool of httpx looks at all its connections whenever a request comes or goes, which with fifty of them is most of what
a request costs. Here each connection is a pool of one, and nobody looks at those of others.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.request import getproxies

PROXIES = frozenset(("http", "https", "all"))


def lanes(httpx: Any) -> Any:
    """A transport for a client of this httpx; nothing, which is the client's own, if there are proxies to be used."""
    return None if PROXIES.intersection(getproxies()) else _made(httpx)


def _made(httpx: Any) -> Any:
    secure = httpx.create_ssl_context()  # reading the certificates takes its time
    limits = httpx.Limits(max_connections=1)

    class Body(httpx.AsyncByteStream):  # type: ignore[misc] # the SDKs choose between two packages
        """What a connection brings; at its end the connection is free."""

        def __init__(self, inner: Any, free: Callable[[], None]):
            self._inner, self._free = inner, free

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for piece in self._inner:
                yield piece

        async def aclose(self) -> None:
            try:
                await self._inner.aclose()
            finally:
                self._free()

    class Lanes(httpx.AsyncBaseTransport):  # type: ignore[misc]
        def __init__(self) -> None:
            self._free: list[Any] = []
            self._all: list[Any] = []

        async def handle_async_request(self, request: Any) -> Any:
            lane = self._free.pop() if self._free else self._new()
            try:
                response = await lane.handle_async_request(request)
            except BaseException:
                self._free.append(lane)
                raise
            response.stream = Body(response.stream, lambda: self._free.append(lane))
            return response

        def _new(self) -> Any:
            self._all.append(httpx.AsyncHTTPTransport(verify=secure, limits=limits))
            return self._all[-1]

        async def aclose(self) -> None:
            for lane in self._all:
                await lane.aclose()

    return Lanes()
