"""All that is in a folder, without following links: to compare it, to fingerprint it, to copy it."""

import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from agentv.system.folders import WRITTEN_BY_RUNS

GIT = b".git"
MAX_DIGEST_BYTES = 1 << 30
"""How much of a folder is read for its digest; of what is beyond that, size and time count."""
_BLOCK_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket", stat.S_IFBLK: "device", stat.S_IFCHR: "device"}


class TreeEntry(NamedTuple):
    """Something in a folder: its path from there, and its status, which is a link's own."""

    path: bytes
    status: os.stat_result


def special_kind(mode: int) -> str | None:
    """Return what something is called that is no file, folder or link."""
    return _KINDS.get(stat.S_IFMT(mode))


def walk_tree(root: bytes, on_error: Callable[[bytes, OSError], None]) -> Iterator[TreeEntry]:
    """Yield all that is in a folder but for Git's own files, what is on top first; folders come before their content.

    `on_error` is told what cannot be looked at, with its path.
    """
    folders = deque([b""])
    while folders:
        folder = folders.popleft()
        try:
            with os.scandir(os.path.join(root, folder)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            on_error(folder, error)
            continue
        for entry in entries:
            if entry.name == GIT:
                continue
            path = os.path.join(folder, entry.name)
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                on_error(path, error)
                continue
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)
            yield TreeEntry(path, status)


def read_blocks(path: bytes) -> Iterator[bytes]:
    """Yield the content of a file; raise `OSError` if it is no plain file, or may not be read. It never waits."""
    descriptor = os.open(path, _READ)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no file any more")
        while block := os.read(descriptor, _BLOCK_BYTES):
            yield block
    finally:
        os.close(descriptor)


def tree_digest(folder: Path) -> str:
    """Return a fingerprint of a folder: names, what may be executed, contents, and where links lead.

    Git's own files and what runs of agentv write are no part of it.
    """
    root, left, whole = os.fsencode(folder), MAX_DIGEST_BYTES, blake2b(digest_size=20)
    for path, status in walk_tree(root, lambda _path, _error: None):
        if is_written_by_runs(path):
            continue
        whole.update(b"%d:%b:%o" % (len(path), path, stat.S_IFMT(status.st_mode) | status.st_mode & 0o100))
        if stat.S_ISLNK(status.st_mode):
            whole.update(_link_target(os.path.join(root, path)))
        elif stat.S_ISREG(status.st_mode):
            whole.update(b"%d:" % status.st_size)
            left -= status.st_size
            if left < 0:
                whole.update(b"%d" % status.st_mtime_ns)
            else:
                _add_content(whole, os.path.join(root, path))
    return whole.hexdigest()


def _add_content(whole: "blake2b", path: bytes) -> None:
    try:
        for block in read_blocks(path):
            whole.update(block)
    except OSError:
        whole.update(b"cannot be read")


def _link_target(path: bytes) -> bytes:
    try:
        return os.readlink(path)
    except OSError:
        return b""


def is_written_by_runs(path: bytes) -> bool:
    """Return whether a path from the root of a project is its `.agentv` folder, or of what runs leave in there."""
    first, _, rest = path.partition(b"/")
    return first == b".agentv" and (not rest or os.fsdecode(rest.partition(b"/")[0]) in WRITTEN_BY_RUNS)


def copy_tree(source: Path, folder: Path, copy_file: Callable[[str, str], object] | None = None) -> None:
    """Copy all that is in a folder into another, links as links; what runs of agentv wrote is left out.

    Raise `OSError` with the path of what cannot be copied: a file that may not be read, a pipe, a device.
    """

    def left_out(place: str, names: list[str]) -> Collection[str]:
        is_runs = os.path.basename(place) == ".agentv" and os.path.dirname(place) == str(source)
        return WRITTEN_BY_RUNS.intersection(names) if is_runs else ()

    copy = copy_file or copy_plain_file
    try:
        shutil.copytree(source, folder, symlinks=True, ignore=left_out, copy_function=copy, dirs_exist_ok=True)
    except shutil.Error as error:
        path, _, reason = error.args[0][0]
        words = re.sub(r"^\[Errno \d+\] ", "", reason).removesuffix(f": {path!r}")  # the path is named already
        raise OSError(f"{path}: {words}") from error


def copy_plain_file(source: str, target: str) -> object:
    """Copy a file; raise `OSError` if it is a pipe, a socket or a device."""
    kind = special_kind(os.lstat(source).st_mode)
    if kind is not None:
        raise shutil.SpecialFileError(f"`{source}` is a {kind}")
    return shutil.copy2(source, target)


def copy_if_plain(source: str, target: str) -> object:
    """Copy a file; leave out what is a pipe, a socket or a device."""
    return None if special_kind(os.lstat(source).st_mode) else shutil.copy2(source, target)
