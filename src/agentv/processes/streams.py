"""Capture the output of a child process while it runs, up to a limit."""

import asyncio
import os
from typing import NamedTuple

from agentv.processes.guardian import open_pipe

TAIL_BYTES = 16 * 1024
_CHUNK_BYTES = 64 * 1024
_PIPE_BYTES = 1 << 20
"""The maximum capacity of a pipe."""
_SPARE_PIPES = 2
_spare_pipes: list[tuple[int, int]] = []
"""Pipes for the next child, opened while another child starts, so that the next one starts faster."""


def _open_pipe() -> tuple[int, int]:
    read_end, write_end = open_pipe()
    os.set_blocking(read_end, False)
    return read_end, write_end


def open_spare_pipes() -> None:
    """Open pipes for the next child, unless they are already open."""
    while len(_spare_pipes) < _SPARE_PIPES:
        try:
            _spare_pipes.append(_open_pipe())
        except OSError:  # too many open files, which does not affect the child that is running
            return


class StreamOutput(NamedTuple):
    """The beginning and the end of a stream."""

    data: bytes = b""
    tail: bytes = b""
    is_complete: bool = True
    """False if `data` was truncated at the limit."""


class Capture:
    """Keep the first `limit` bytes of a stream, and the last `TAIL_BYTES`."""

    def __init__(self, limit: int = 0):
        self._limit = limit
        self._size = 0
        self._chunks: list[bytes] = []
        self._tail = b""

    def add(self, chunk: bytes) -> None:
        room = self._limit - self._size
        if room > 0:
            self._chunks.append(chunk[:room])
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        self._size += len(chunk)

    def output(self) -> StreamOutput:
        """Return the output captured so far."""
        return StreamOutput(
            data=b"".join(self._chunks),
            tail=self._tail,
            is_complete=self._size <= self._limit,
        )


Destination = Capture | int
"""Where the output of a child goes: a capture, or the descriptor of an open file."""


class Pipe:
    """Read what a child writes into `write_end`.

    Other processes may hold that end too, so this does not wait for the end of the stream. The pipe of a short-lived
    child is read once, by `drain`: until then the pipe buffers the output, and watching it from the start would add a
    tenth to the cost of the child.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, capture: Capture):
        self._loop = loop
        self._capture = capture
        self._read_end, self.write_end = _spare_pipes.pop() if _spare_pipes else _open_pipe()
        self._is_watched = False

    def watch(self) -> None:
        """Read from now on whenever data arrives."""
        if self._read_end >= 0:
            self._is_watched = True
            self._loop.add_reader(self._read_end, self._read)

    def _read(self) -> int:
        """Read one chunk and return its size, or 0 without data. Close the pipe at the end of the stream."""
        try:
            chunk = os.read(self._read_end, _CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if chunk:
            self._capture.add(chunk)
        else:
            self.close()
        return len(chunk)

    def drain(self) -> None:
        """Read the buffered data, at most one full pipe: another process may still be writing."""
        left = _PIPE_BYTES
        while self._read_end >= 0 and left > 0:
            size = self._read()
            if not size:
                return
            left -= size

    def close(self) -> None:
        if self._read_end < 0:
            return
        if self._is_watched:
            self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        self._read_end = -1
