"""Temporary folders, which are removed even if this process is killed: then by the next run of the same user.

Beside each folder there is a file, in a folder of the user's own, that this process keeps locked as long as it lives.
A file that is not locked belongs to a process that is dead. Process ids prove nothing: they are used again.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_ATTEMPTS = 20
_PREFIX = "agentv-"
_SUFFIX = ".lock"
_folders: dict[Path, "_Lock | None"] = {}
"""The temporary folders of this process."""


class _Lock:
    """A locked file that proves that this process lives; it holds the path of the folder."""

    def __init__(self, path: str, descriptor: int):
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Remove the file: then the folder is nobody's, and nobody removes it."""
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)
        with suppress(OSError):  # others may have files there
            os.rmdir(os.path.dirname(self._path))

    def write(self, folder: Path) -> None:
        os.pwrite(self._descriptor, os.fsencode(folder), 0)


def make_folder(parent: Path | None = None, prefix: str = _PREFIX) -> Path:
    """Return a new folder that only this user may read; raise `OSError` if it cannot be made.

    It is made in `parent`, or where this user's temporary folders are. It exists until it is given to `remove_folder`
    or until this process is dead, unless it is given to `keep_folder`.
    """
    lock, place = None, parent
    with suppress(OSError):  # then at least `remove_all` knows the folder
        lock = _create_lock()
    try:
        if place is None:
            place = _user_folder() if lock else Path(tempfile.gettempdir())
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place)).absolute()
        if lock:
            lock.write(folder)
    except BaseException:
        if lock:
            lock.release()
        raise
    _folders[folder] = lock
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder that `make_folder` made, with all that is in it."""
    _remove_tree(folder)
    keep_folder(folder)


def keep_folder(folder: Path) -> None:
    """Let the folder outlive this process."""
    if (lock := _folders.pop(folder, None)) is not None:
        lock.release()


def remove_all() -> None:
    """Remove all temporary folders of this process: it is about to exit."""
    for folder in list(_folders):
        remove_folder(folder)


def remove_stale() -> None:
    """Remove the folders of processes of this user that are dead. Those of the living are left alone."""
    with suppress(OSError):  # no folder for temporary files, or no longer
        place = _user_folder()
        if not _is_safe(place):
            return
        for name in os.listdir(place):
            if name.endswith(_SUFFIX):
                with suppress(OSError):  # its process lives, or somebody else is removing it
                    _remove_if_dead(str(place / name))
        os.rmdir(place)


def _remove_if_dead(path: str) -> None:
    """Remove the folder of a lock file, and the file, if nobody holds the lock; else raise `OSError`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = os.fsdecode(os.read(descriptor, os.fstat(descriptor).st_size))
        if folder:
            _remove_tree(Path(folder))
        if not folder or not os.path.lexists(folder):  # else the next run tries again
            os.unlink(path)
    finally:
        os.close(descriptor)


def _user_folder() -> Path:
    return Path(tempfile.gettempdir(), f"{_PREFIX}{os.getuid()}")


def _is_safe(folder: Path) -> bool:
    """Return whether it is a folder of this user that nobody else may write to."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _create_lock() -> _Lock | None:
    """Return a new lock; None if the folder of this user is not safe, or files cannot be locked there."""
    for _ in range(_ATTEMPTS):
        place = _user_folder()
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)
        if not _is_safe(place):
            return None
        path = str(place / f"{os.getpid()}-{os.urandom(6).hex()}{_SUFFIX}")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # somebody has just removed the last lock, and the folder with it
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return _Lock(path, descriptor)
        except (BlockingIOError, FileNotFoundError):
            pass  # somebody took it for a dead one in the moment before it was locked
        except OSError:
            os.unlink(path)
            os.close(descriptor)
            return None
        os.close(descriptor)
    return None


def _remove_tree(folder: Path) -> None:
    """Remove a folder, and what is in it that may not be written to."""
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    for place, folders, _ in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in folders)):
            with suppress(OSError, NotImplementedError):
                os.chmod(path, 0o700, follow_symlinks=False)
    shutil.rmtree(folder, ignore_errors=True)
