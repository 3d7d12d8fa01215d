"""Temporary folders. If this process is killed, the next run of the same user removes them.

For each folder there is a lock file, in a folder that belongs to the user. The process holds the lock while it runs.
A lock file without a lock belongs to a process that has ended. Process ids are not enough: they are reused.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ATTEMPTS = 20
_PREFIX = "agentv-"
_SUFFIX = ".lock"
_folders: dict[Path, "_Lock | None"] = {}
"""The temporary folders of this process, each with its lock."""


@dataclass(frozen=True)
class _Lock:
    """A locked file that shows that this process is alive. Its content is the path of the folder."""

    path: str
    descriptor: int

    def release(self) -> None:
        """Remove the lock file, so that no other process removes the folder."""
        with suppress(OSError):
            os.unlink(self.path)
        os.close(self.descriptor)
        # Fails as long as there are lock files of other processes.
        with suppress(OSError):
            os.rmdir(os.path.dirname(self.path))

    def write(self, folder: Path) -> None:
        os.pwrite(self.descriptor, os.fsencode(folder), 0)


def make_folder(parent: Path | None = None, prefix: str = _PREFIX) -> Path:
    """Create a folder that only this user can read and return it; raise `OSError` if it cannot be created.

    The folder is in `parent`, which defaults to the user's folder for temporary files. It exists until `remove_folder`
    is called or this process ends, unless `keep_folder` is called.
    """
    lock = None
    # Without a lock, the folder is still removed by `remove_all`.
    with suppress(OSError):
        lock = _create_lock()
    try:
        if parent is None:
            parent = _default_parent(lock)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).absolute()
        if lock:
            lock.write(folder)
    except BaseException:
        if lock:
            lock.release()
        raise
    _folders[folder] = lock
    return folder


def _default_parent(lock: _Lock | None) -> Path:
    if lock:
        return _user_folder()
    return Path(tempfile.gettempdir())


def remove_folder(folder: Path) -> None:
    """Remove a folder that `make_folder` created, with its content.

    If that fails, for example because too many files are open, the folder keeps its lock: `remove_all` tries again, and
    after a kill the next run does.
    """
    _remove_tree(folder)
    if not os.path.lexists(folder):
        keep_folder(folder)


def keep_folder(folder: Path) -> None:
    """Keep a folder after this process has ended."""
    lock = _folders.pop(folder, None)
    if lock is not None:
        lock.release()


def remove_all() -> None:
    """Remove all temporary folders of this process, before it exits."""
    for folder in list(_folders):
        remove_folder(folder)


def remove_stale() -> None:
    """Remove the temporary folders of this user whose processes have ended."""
    # The user's folder may not exist, and another process may remove it meanwhile.
    with suppress(OSError):
        user_folder = _user_folder()
        if not _is_safe(user_folder):
            return
        for name in os.listdir(user_folder):
            if name.endswith(_SUFFIX):
                # The lock is held: the process is alive, or another one is removing its folder.
                with suppress(OSError):
                    _remove_if_dead(str(user_folder / name))
        os.rmdir(user_folder)


def _remove_if_dead(path: str) -> None:
    """Remove a lock file and its folder if no process holds the lock; otherwise raise `OSError`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(descriptor).st_size
        folder = os.fsdecode(os.read(descriptor, size))
        if folder:
            _remove_tree(Path(folder))
        # If the folder could not be removed, keep the lock file so that the next run tries again.
        if not folder or not os.path.lexists(folder):
            os.unlink(path)
    finally:
        os.close(descriptor)


def _user_folder() -> Path:
    return Path(tempfile.gettempdir(), f"{_PREFIX}{os.getuid()}")


def _is_safe(folder: Path) -> bool:
    """Return whether this is a folder that belongs to this user, and to which no other user can write."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    if status.st_uid != os.getuid():
        return False
    return not status.st_mode & 0o022


def _create_lock() -> _Lock | None:
    """Return a new lock; None if the user's folder is not safe, or files cannot be locked there."""
    for _ in range(_ATTEMPTS):
        user_folder = _user_folder()
        with suppress(FileExistsError):
            os.mkdir(user_folder, 0o700)
        if not _is_safe(user_folder):
            return None
        random_part = os.urandom(6).hex()
        path = str(user_folder / f"{os.getpid()}-{random_part}{_SUFFIX}")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            # Another process has just removed the last lock file, and the folder with it.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return _Lock(path, descriptor)
        except (BlockingIOError, FileNotFoundError):
            # Another process considered the file stale between its creation and the lock. Try again.
            pass
        except OSError:
            os.unlink(path)
            os.close(descriptor)
            return None
        os.close(descriptor)
    return None


def _remove_tree(folder: Path) -> None:
    """Remove a folder with its content, including read-only folders."""
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    for parent, names, _ in os.walk(folder):
        _make_writable(parent)
        for name in names:
            _make_writable(os.path.join(parent, name))
    shutil.rmtree(folder, ignore_errors=True)


def _make_writable(folder: str) -> None:
    with suppress(OSError, NotImplementedError):
        os.chmod(folder, 0o700, follow_symlinks=False)
