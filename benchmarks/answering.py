"""A server on loopback that answers every request after some milliseconds: `python -m benchmarks.answering MS`.

It does as little as possible, so that what is measured is who asks. It prints its port, and ends with its stdin.
"""

import asyncio
import json
import sys

TEXT = "hello there"
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "bench",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
}
BODY = json.dumps(ANSWER).encode()
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
HEAD_END, LENGTH = b"\r\n\r\n", b"content-length:"


class Connection(asyncio.Protocol):
    """Answers the requests of one connection, one after another."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(HEAD_END)
        if end and len(rest) >= _length(head):
            self._received = rest[_length(head) :]
            asyncio.get_running_loop().call_later(self._seconds, self._transport.write, REPLY)


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(LENGTH)
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


async def serve(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(seconds), "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) / 1000))
