"""Bytes -> compressed blocks of text that stand in an HTML page, written one after the other to a temporary file.

Compressing is most of the work and needs no interpreter, so it is done in threads. A few blocks are in flight at a
time, and nothing else is held.
"""

import binascii
import os
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO

BLOCK_BYTES = 256 * 1024
"""A block is closed when it has so many bytes: the browser inflates a whole one to show one case."""
LEVEL = 3
"""More makes pages hardly smaller, and takes half as long again."""
_IN_FLIGHT = 4
_COPY_BYTES = 1 << 20


def encode_block(name: str, data: bytes) -> bytes:
    """Return an element that holds `data`: compressed, in base64, so that nothing in it is markup."""
    text = binascii.b2a_base64(zlib.compress(data, LEVEL), newline=False)
    return b'<script type="application/octet-stream" id="%s">%s</script>\n' % (name.encode(), text)


class BlockWriter:
    """Writes blocks to a file while they are compressed; `size` is how many bytes have been written."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._pool = ThreadPoolExecutor(max_workers=min(_IN_FLIGHT, os.cpu_count() or 1))
        self._waiting: deque[Future[bytes]] = deque()
        self.size = 0

    def add(self, name: str, data: bytes) -> None:
        """Write a block under this name, after those before it."""
        self._waiting.append(self._pool.submit(encode_block, name, data))
        while len(self._waiting) > _IN_FLIGHT:
            self._write(self._waiting.popleft())

    def finish(self) -> None:
        """Write what is still in flight."""
        while self._waiting:
            self._write(self._waiting.popleft())

    def close(self) -> None:
        """Drop what is still in flight, and end the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _write(self, encoded: Future[bytes]) -> None:
        block = encoded.result()
        self._file.write(block)
        self.size += len(block)

    def chunks(self) -> Iterator[bytes]:
        """Yield all that was written."""
        self._file.seek(0)
        while chunk := self._file.read(_COPY_BYTES):
            yield chunk


class Lines:
    """Collects lines, and writes them as blocks called `<prefix>0`, `<prefix>1` and so on."""

    def __init__(self, prefix: str, writer: BlockWriter, most: int = BLOCK_BYTES):
        self._prefix, self._writer, self._most = prefix, writer, most
        self._lines: list[bytes] = []
        self._bytes = self._count = 0
        self.starts: list[int] = []
        """The number of the first line of each block."""

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= self._most:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        if not self._lines:
            return
        self._writer.add(f"{self._prefix}{len(self.starts)}", b"\n".join(self._lines))
        self.starts.append(self._count)
        self._count += len(self._lines)
        self._lines, self._bytes = [], 0
