"""Atomic file writes."""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from agentv.errors import OutputError
from agentv.processes.interrupts import cleanup


def write_atomically(path: Path, blocks: Iterable[bytes]) -> None:
    """Write a file atomically; raise `OutputError` on failure. Pipes and devices are written to directly."""
    # Replace the file that a symlink points to, not the symlink.
    real = Path(os.path.realpath(path))
    try:
        if real.is_dir():
            raise OutputError("this is a folder", file=path, hint="pass a file in it")
        real.parent.mkdir(parents=True, exist_ok=True)
        if real.exists() and not real.is_file():
            with real.open("wb") as file:
                file.writelines(blocks)
        else:
            _replace(real, blocks)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(
            f"cannot be written: {reason}",
            file=path,
            hint="check the permissions, or choose another file",
        ) from error


def sync_folder(folder: Path) -> None:
    """Synchronize a folder to disk, so that a new file in it survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, blocks: Iterable[bytes]) -> None:
    """Write a temporary file in the same folder, then rename it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file, cleanup(lambda: os.unlink(name)):
            file.writelines(blocks)
        # `mkstemp` creates files with mode 0600; use the mode that `open` would have used.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    """Return the umask. It can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def why_not_writable(path: Path) -> str:
    """Return why this file, with its missing folders, cannot be created; empty if it can be."""
    folder = path.absolute().parent
    while not os.path.exists(folder):  # unlike Path.exists, False in a folder that cannot be searched
        folder = folder.parent
    if not folder.is_dir():
        return f"{folder} is not a folder"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"no permission to write to {folder}"
    return ""
