"""Walks, hashes and copies folder trees without following symlinks."""

import os
import re
import shutil
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from agentv.files.folders import WRITTEN_BY_RUNS

GIT = b".git"
MAX_DIGEST_BYTES = 1 << 30
"""How much of a folder is read for its digest. Files beyond that count by size and modification time."""
_BLOCK_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SPECIAL_KINDS = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}


class TreeEntry(NamedTuple):
    """A file, folder or other entry of a tree."""

    path: bytes
    """Relative to the root of the tree."""
    status: os.stat_result
    """For a symlink, the status of the link itself, not of its target."""


def special_kind(mode: int) -> str | None:
    """Return the name of a special kind, such as "socket"; None for files, folders and symlinks."""
    return _SPECIAL_KINDS.get(stat.S_IFMT(mode))


def walk_tree(
    root: bytes,
    on_error: Callable[[bytes, OSError], None],
) -> Iterator[TreeEntry]:
    """Yield the entries of a tree breadth-first, without `.git`. Folders come before their content.

    Call `on_error` with the path of each entry that cannot be read.
    """
    folders = deque([b""])
    while folders:
        folder = folders.popleft()
        try:
            with os.scandir(os.path.join(root, folder)) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
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


def read_file_blocks(path: bytes) -> Iterator[bytes]:
    """Yield the content of a file; raise `OSError` if it is not a regular file, or not readable. Never blocks."""
    descriptor = os.open(path, _READ)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("no longer a file")
        while block := os.read(descriptor, _BLOCK_BYTES):
            yield block
    finally:
        os.close(descriptor)


def tree_digest(folder: Path) -> str:
    """Return a digest of a folder: names, executable bits, contents and the targets of symlinks.

    `.git` and the files that runs of agentv write are excluded.
    """
    root = os.fsencode(folder)
    digest = blake2b(digest_size=20)
    bytes_left = MAX_DIGEST_BYTES
    for path, status in walk_tree(root, _ignore_error):
        if is_written_by_runs(path):
            continue
        mode = status.st_mode
        executable = mode & 0o100
        kind = stat.S_IFMT(mode) | executable
        digest.update(b"%d:%b:%o" % (len(path), path, kind))
        full_path = os.path.join(root, path)
        if stat.S_ISLNK(mode):
            digest.update(_link_target(full_path))
        elif stat.S_ISREG(mode):
            digest.update(b"%d:" % status.st_size)
            bytes_left -= status.st_size
            if bytes_left < 0:
                digest.update(b"%d" % status.st_mtime_ns)
            else:
                _add_content(digest, full_path)
    return digest.hexdigest()


def _ignore_error(_path: bytes, _error: OSError) -> None:
    """Do nothing: an entry that cannot be read is not part of a digest."""


def _add_content(digest: "blake2b", path: bytes) -> None:
    try:
        for block in read_file_blocks(path):
            digest.update(block)
    except OSError:
        digest.update(b"cannot be read")


def _link_target(path: bytes) -> bytes:
    try:
        return os.readlink(path)
    except OSError:
        return b""


def is_written_by_runs(path: bytes) -> bool:
    """Return whether a path, relative to the root of a project, is `.agentv` itself or output of runs in it."""
    first, _, rest = path.partition(b"/")
    if first != b".agentv":
        return False
    if not rest:
        return True
    name, _, _ = rest.partition(b"/")
    return os.fsdecode(name) in WRITTEN_BY_RUNS


def copy_tree(
    source: Path,
    folder: Path,
    copy_file: Callable[[str, str], object] | None = None,
) -> None:
    """Copy the content of a folder into another, symlinks as symlinks, without the output of agentv's runs.

    Raise `OSError` with the path of the first entry that cannot be copied: an unreadable file, a pipe or a device.
    """

    def ignore(parent: str, names: list[str]) -> Collection[str]:
        above, name = os.path.split(parent)
        if name == ".agentv" and above == str(source):
            return WRITTEN_BY_RUNS.intersection(names)
        return ()

    try:
        shutil.copytree(
            source,
            folder,
            symlinks=True,
            ignore=ignore,
            copy_function=copy_file or copy_plain_file,
            dirs_exist_ok=True,
        )
    except shutil.Error as error:
        raise _first_of(error) from error


def _first_of(error: shutil.Error) -> OSError:
    """Return the first of several errors, of which only texts are left, with its path and number."""
    path, _, text = error.args[0][0]
    numbered = re.match(r"\[Errno (\d+)\] ", text)
    reason = text
    if numbered is not None:
        reason = text[numbered.end() :]
    reason = reason.removesuffix(f": {path!r}")  # some reasons repeat the path
    first = OSError(f"{path}: {reason}")
    if numbered is not None:
        first.errno = int(numbered[1])
    return first


def copy_plain_file(source: str, target: str) -> object:
    """Copy a file; raise `OSError` if it is a pipe, a socket or a device."""
    kind = special_kind(os.lstat(source).st_mode)
    if kind is not None:
        raise shutil.SpecialFileError(f"`{source}` is a {kind}")
    return shutil.copy2(source, target)


def copy_if_plain(source: str, target: str) -> object:
    """Copy a file; skip pipes, sockets and devices."""
    if special_kind(os.lstat(source).st_mode):
        return None
    return shutil.copy2(source, target)
