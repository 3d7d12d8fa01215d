"""What a child writes -> the parts of it that are kept, read as they come and up to a limit."""

import asyncio
import os
from typing import NamedTuple

from agentv.processes.guardian import open_pipe

TAIL_BYTES = 16 * 1024
_CHUNK_BYTES = 64 * 1024
_PIPE_BYTES = 1 << 20
"""As much as a pipe can hold."""
_SPARE_PIPES = 2
_spare_pipes: list[tuple[int, int]] = []
"""Pipes for the next child, opened while another child starts: the next one need not wait for that."""


def _open_pipe() -> tuple[int, int]:
    read_end, write_end = open_pipe()
    os.set_blocking(read_end, False)
    return read_end, write_end


def open_spare_pipes() -> None:
    """Open pipes for the next child, unless that was done before."""
    while len(_spare_pipes) < _SPARE_PIPES:
        try:
            _spare_pipes.append(_open_pipe())
        except OSError:  # too many open files, which is no problem of the child that is running
            return


class Output(NamedTuple):
    """The beginning and the end of a stream; `is_complete` is False if the beginning is not all of it."""

    data: bytes = b""
    tail: bytes = b""
    is_complete: bool = True


class Capture:
    """Keeps the first `limit` bytes of a stream, and the last `TAIL_BYTES`."""

    def __init__(self, limit: int = 0):
        self._limit, self._size = limit, 0
        self._chunks: list[bytes] = []
        self._tail = b""

    def add(self, chunk: bytes) -> None:
        if self._size < self._limit:
            self._chunks.append(chunk[: self._limit - self._size])
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        self._size += len(chunk)

    def output(self) -> Output:
        """Return what has been kept so far."""
        return Output(b"".join(self._chunks), self._tail, self._size <= self._limit)


Destination = Capture | int
"""Where the output of a child goes: to a capture, or to an open file."""


class Pipe:
    """Reads what a child writes into `write_end`. Other processes may hold that end too; nobody waits for them.

    The pipe of a child that ends soon is read once, by `drain`: what the child wrote stands in the pipe, and
    watching the pipe from the start would cost a tenth of the child.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, capture: Capture):
        self._loop, self._capture = loop, capture
        self._read_end, self.write_end = _spare_pipes.pop() if _spare_pipes else _open_pipe()
        self._is_watched = False

    def watch(self) -> None:
        """Read whenever there is something to read."""
        if self._read_end >= 0:
            self._is_watched = True
            self._loop.add_reader(self._read_end, self._read)

    def _read(self) -> int:
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
        """Read what is in the pipe, at most as much as it can hold: another process may go on writing."""
        left = _PIPE_BYTES
        while self._read_end >= 0 and left > 0 and (size := self._read()):
            left -= size

    def close(self) -> None:
        if self._read_end >= 0:
            if self._is_watched:
                self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
