"""Write compressed blocks of data for an HTML page to a temporary file.

Compression takes most of the time and releases the GIL, so it runs in threads. Only a few blocks are in memory at a
time.
"""

import binascii
import os
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO

BLOCK_BYTES = 256 * 1024
"""The minimum size of a full block. The browser decompresses a whole block to show one case."""
LEVEL = 3
"""The compression level. Higher levels take 50% longer for pages that are hardly smaller."""
_IN_FLIGHT = 4
"""The maximum number of blocks that wait for compression."""
_COPY_BYTES = 1 << 20


def encode_block(name: str, data: bytes) -> bytes:
    """Return a script element that holds the data, compressed and in base64, so that nothing in it is markup."""
    text = binascii.b2a_base64(zlib.compress(data, LEVEL), newline=False)
    return b'<script type="application/octet-stream" id="%s">%s</script>\n' % (name.encode(), text)


class BlockWriter:
    """Compress blocks in threads and write them to a file in order."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        threads = min(_IN_FLIGHT, os.cpu_count() or 1)
        self._pool = ThreadPoolExecutor(max_workers=threads)
        self._waiting: deque[Future[bytes]] = deque()
        self.size = 0
        """The number of bytes written so far."""

    def add(self, name: str, data: bytes) -> None:
        """Write a block with this name after all earlier blocks."""
        encoded = self._pool.submit(encode_block, name, data)
        self._waiting.append(encoded)
        while len(self._waiting) > _IN_FLIGHT:
            self._write(self._waiting.popleft())

    def finish(self) -> None:
        """Write all blocks that are still in flight."""
        while self._waiting:
            self._write(self._waiting.popleft())

    def close(self) -> None:
        """Drop all blocks that are still in flight and stop the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _write(self, encoded: Future[bytes]) -> None:
        block = encoded.result()
        self._file.write(block)
        self.size += len(block)

    def chunks(self) -> Iterator[bytes]:
        """Yield everything that was written."""
        self._file.seek(0)
        while chunk := self._file.read(_COPY_BYTES):
            yield chunk


class Lines:
    """Collect lines and write them as blocks named `<prefix>0`, `<prefix>1` and so on."""

    def __init__(self, prefix: str, writer: BlockWriter, block_bytes: int = BLOCK_BYTES):
        self._prefix = prefix
        self._writer = writer
        self._block_bytes = block_bytes
        self._lines: list[bytes] = []
        self._bytes = 0
        self._written = 0
        """The number of lines in the blocks written so far."""
        self.starts: list[int] = []
        """The number of the first line of each block."""

    @property
    def has_text(self) -> bool:
        """Whether a line that is not empty was added."""
        return bool(self.starts) or self._bytes > 0

    def add(self, line: bytes) -> None:
        """Add a line. Write a block when it is full."""
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= self._block_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the lines collected since the last block."""
        if not self._lines:
            return
        name = f"{self._prefix}{len(self.starts)}"
        self._writer.add(name, b"\n".join(self._lines))
        self.starts.append(self._written)
        self._written += len(self._lines)
        self._lines = []
        self._bytes = 0
