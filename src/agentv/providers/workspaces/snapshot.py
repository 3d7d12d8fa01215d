"""A snapshot of a folder, for finding later changes.

Texts are stored in an unnamed temporary file, so that nothing is left behind and memory use stays small.
"""

import os
import stat
import tempfile
import time
from hashlib import blake2b
from typing import BinaryIO, NamedTuple

from agentv.files.trees import read_file_blocks, special_kind, walk_tree

MAX_ENTRIES = 200_000
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""For larger files, only the size is shown."""
MAX_KEPT_BYTES = 256 * 1024 * 1024
"""The maximum size of the texts that are stored for one folder."""
MAX_HASHED_BYTES = 1 << 30
"""The maximum number of bytes that are read from one folder."""
FRESH_NS = 2_000_000_000
"""File system clocks are coarse: a file modified this recently may change again and keep its timestamps."""

Stamp = tuple[int, int, int, int]


class FileState(NamedTuple):
    """The state of a file, symlink or special file at one point in time."""

    mode: int
    size: int
    stamp: Stamp
    """Differs after a change, unless two changes are made at the same moment."""
    is_fresh: bool = False
    """Whether it was modified so recently that an equal stamp does not prove equal content."""
    digest: bytes | None = None
    """The hash of its content; None if that was not read."""
    offset: int | None = None
    """Where its text is stored, if it is a text."""
    target: bytes = b""
    """The target of a symlink."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def special(self) -> str | None:
        return special_kind(self.mode)

    def is_same(self, now: "FileState") -> bool:
        """Return whether the item is unchanged, as far as this can be checked without reading its current content."""
        if self.is_fresh and self.digest is not None:
            return False  # the digests have to be compared
        return self.stamp == now.stamp and self.mode == now.mode


class Content(NamedTuple):
    """The content of a file: its hash, and its text if it is a text."""

    digest: bytes
    text: bytes | None = None


class Snapshot:
    """The items that were in a folder, by path. Close it after use."""

    def __init__(self, root: bytes):
        self.root = root
        self.items: dict[bytes, FileState] = {}
        self.problems: list[tuple[bytes, str]] = []
        """The paths that could not be examined, and why."""
        self.unread: list[tuple[bytes, str]] = []
        """The files that could not be read, and why."""
        self.is_complete = True
        self._texts: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._kept_bytes = 0
        self._read_bytes = 0

    def close(self) -> None:
        self._texts.close()

    def text(self, item: FileState) -> bytes | None:
        """Return the text that a file had, or None if it was not a text or was not stored."""
        if item.offset is None:
            return None
        self._texts.seek(item.offset)
        return self._texts.read(item.size)

    def take(self) -> None:
        """Read the folder. This may take as long as reading all its files."""
        for path, status in walk_tree(self.root, self._skip):
            if stat.S_ISDIR(status.st_mode):
                continue
            if len(self.items) >= MAX_ENTRIES:
                self.is_complete = False
                return
            item = item_of(os.path.join(self.root, path), status)
            if item.is_file:
                item = self._with_content(path, item)
            self.items[path] = item
        fresh_since = time.time_ns() - FRESH_NS
        for path, item in self.items.items():
            modified_ns, changed_ns, _, _ = item.stamp
            if max(modified_ns, changed_ns) > fresh_since:
                self.items[path] = item._replace(is_fresh=True)

    def _skip(self, path: bytes, error: OSError) -> None:
        self.problems.append((path, error.strerror or str(error)))

    def _with_content(self, path: bytes, item: FileState) -> FileState:
        """Return the item with the hash of its content, and store its text if it is one."""
        if self._read_bytes + item.size > MAX_HASHED_BYTES:
            return item
        self._read_bytes += item.size
        try:
            content = read_content(os.path.join(self.root, path))
        except OSError as error:
            self.unread.append((path, error.strerror or str(error)))
            return item
        text = content.text
        if text is None or self._kept_bytes + len(text) > MAX_KEPT_BYTES:
            return item._replace(digest=content.digest)
        self._kept_bytes += len(text)
        offset = self._texts.seek(0, os.SEEK_END)
        self._texts.write(text)
        return item._replace(
            digest=content.digest,
            offset=offset,
            size=len(text),  # the file may have changed since its status was read
        )


def item_of(path: bytes, status: os.stat_result) -> FileState:
    """Return the item for a path from its status, without reading its content."""
    target = b""
    if stat.S_ISLNK(status.st_mode):
        try:
            target = os.readlink(path)
        except OSError:
            target = b"?"
    stamp = (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_size,
    )
    return FileState(status.st_mode, status.st_size, stamp, target=target)


def read_content(path: bytes) -> Content:
    """Return the content of a file. Raise `OSError` if it cannot be read. A large text is not held in memory."""
    digest = blake2b(digest_size=20)
    blocks: list[bytes] = []
    size = 0
    for block in read_file_blocks(path):
        digest.update(block)
        size += len(block)
        if size <= MAX_TEXT_BYTES:
            blocks.append(block)
    if size > MAX_TEXT_BYTES:
        return Content(digest.digest())
    text = b"".join(blocks)
    if not is_text(text):
        return Content(digest.digest())
    return Content(digest.digest(), text)


def is_text(data: bytes) -> bool:
    """Return whether the data is text: valid UTF-8 without NUL."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
