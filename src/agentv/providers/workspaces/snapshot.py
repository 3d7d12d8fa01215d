"""A folder -> what is in it at one moment, to tell later what has changed.

Texts are kept in a file that has no name, so that nothing of it is left behind, and memory stays small.
"""

import os
import stat
import tempfile
import time
from hashlib import blake2b
from typing import BinaryIO, NamedTuple

from agentv.system.trees import read_blocks, special_kind, walk_tree

MAX_ENTRIES = 200_000
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Of a larger file only the size is shown."""
MAX_KEPT_BYTES = 256 * 1024 * 1024
"""How much text is kept of one folder."""
MAX_HASHED_BYTES = 1 << 30
"""How much is read of one folder."""
FRESH_NS = 2_000_000_000
"""Clocks of file systems are coarse: what was written so shortly before may have changed without a sign of it."""

Stamp = tuple[int, int, int, int]


class Item(NamedTuple):
    """A file, a link or something special: what can be told of it without comparing it."""

    mode: int
    size: int
    stamp: Stamp
    """Is another after a change, if the change was not made in the same moment as the one before."""
    is_fresh: bool = False
    """Whether it was changed so shortly before that the stamp proves nothing."""
    digest: bytes | None = None
    """Of its content; None if that was not read."""
    offset: int | None = None
    """Where its text is kept, if it is a text."""
    target: bytes = b""
    """Where a link leads."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def special(self) -> str | None:
        return special_kind(self.mode)

    def is_same(self, now: "Item") -> bool:
        """Return whether nothing has changed, as far as that can be told without reading what it is now."""
        is_proof = not self.is_fresh or self.digest is None  # without a digest there is nothing better
        return is_proof and (self.stamp, self.mode) == (now.stamp, now.mode)


class Content(NamedTuple):
    """What is in a file: its hash, and its text if it is one."""

    digest: bytes
    text: bytes | None = None


class Snapshot:
    """What was in a folder, by path. It is closed when it is no longer needed."""

    def __init__(self, root: bytes):
        self.root = root
        self.items: dict[bytes, Item] = {}
        self.problems: list[tuple[bytes, str]] = []
        """What could not be looked at, and why."""
        self.unread: list[tuple[bytes, str]] = []
        """The files that could not be read, and why."""
        self.is_complete = True
        self._texts: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._kept = self._read = 0

    def close(self) -> None:
        self._texts.close()

    def text(self, item: Item) -> bytes | None:
        """Return the text that a file had; None if it had none, or it was not kept."""
        if item.offset is None:
            return None
        self._texts.seek(item.offset)
        return self._texts.read(item.size)

    def take(self) -> None:
        """Look at all that is in the folder. It may take as long as reading it."""
        for path, status in walk_tree(self.root, self._skip):
            if stat.S_ISDIR(status.st_mode):
                continue
            if len(self.items) >= MAX_ENTRIES:
                self.is_complete = False
                return
            item = item_of(os.path.join(self.root, path), status)
            self.items[path] = self._with_content(path, item) if item.is_file else item
        fresh = time.time_ns() - FRESH_NS
        for path, item in self.items.items():
            if max(item.stamp[:2]) > fresh:
                self.items[path] = item._replace(is_fresh=True)

    def _skip(self, path: bytes, error: OSError) -> None:
        self.problems.append((path, error.strerror or str(error)))

    def _with_content(self, path: bytes, item: Item) -> Item:
        if self._read + item.size > MAX_HASHED_BYTES:
            return item
        self._read += item.size
        try:
            content = read_content(os.path.join(self.root, path))
        except OSError as error:
            self.unread.append((path, error.strerror or str(error)))
            return item
        if content.text is None or self._kept + len(content.text) > MAX_KEPT_BYTES:
            return item._replace(digest=content.digest)
        self._kept += len(content.text)
        offset = self._texts.seek(0, os.SEEK_END)
        self._texts.write(content.text)
        return item._replace(digest=content.digest, offset=offset, size=len(content.text))


def item_of(path: bytes, status: os.stat_result) -> Item:
    """Return what can be told of something by its status alone."""
    target = b""
    if stat.S_ISLNK(status.st_mode):
        try:
            target = os.readlink(path)
        except OSError:
            target = b"?"
    stamp = status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
    return Item(status.st_mode, status.st_size, stamp, target=target)


def read_content(path: bytes) -> Content:
    """Return what is in a file; raise `OSError` if it cannot be read. A text that is too large is not held."""
    digest, blocks, size = blake2b(digest_size=20), list[bytes](), 0
    for block in read_blocks(path):
        digest.update(block)
        size += len(block)
        if size <= MAX_TEXT_BYTES:
            blocks.append(block)
    text = b"".join(blocks)
    return Content(digest.digest(), text if size <= MAX_TEXT_BYTES and is_text(text) else None)


def is_text(data: bytes) -> bool:
    """Return whether bytes are text: UTF-8 without a NUL."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
