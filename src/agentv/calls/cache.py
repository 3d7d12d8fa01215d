"""The response cache: one file per response, in a folder of the project."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.errors import OutputError
from agentv.notices import warn
from agentv.records import Problem, ProviderResponse
from agentv.redact import Redactor
from agentv.system.atomic_files import write_atomically

CACHE = Path(".agentv/cache")
_DECODE = msgspec.json.Decoder(ProviderResponse).decode


class Cache:
    """Stores responses by key. Errors are not stored; an unreadable entry counts as missing."""

    def __init__(self, folder: Path, clean: Redactor):
        self._folder = folder.absolute()
        self._clean = clean
        self._has_warned = False

    def get(self, key: str) -> ProviderResponse | None:
        """Return the response stored under a key; None if there is none."""
        path = self._path(key)
        try:
            content = path.read_bytes()
            return _DECODE(content)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def put(self, key: str, response: ProviderResponse) -> None:
        """Store a response atomically. The last of several concurrent writers takes precedence.

        A response that contains a secret is not stored: masked, it would be a different response.
        """
        try:
            encoded = msgspec.json.encode(response, enc_hook=str)
            text = encoded.decode()
            if self._clean(text) == text:
                write_atomically(self._path(key), [encoded])
        except (OutputError, ValueError, TypeError, RecursionError) as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        """Warn, once per run, that responses cannot be stored. The run continues."""
        if self._has_warned:
            return
        self._has_warned = True
        reason = getattr(error, "message", error)
        problem = Problem(
            message=f"responses cannot be cached: {reason}",
            severity="warning",
            file=self._folder,
        )
        warn(problem)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


class Cleared(NamedTuple):
    """The number of removed responses, and their size in bytes."""

    responses: int
    size: int


def clear(folder: Path = CACHE) -> Cleared:
    """Remove all responses and return how many there were."""
    sizes = list(_sizes(folder))
    if folder.is_dir():
        for entry in folder.iterdir():
            shutil.rmtree(entry)
        if not folder.is_symlink():
            folder.rmdir()
    return Cleared(
        responses=len(sizes),
        size=sum(sizes),
    )


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the size of each response; skip files that another process removes meanwhile."""
    for path in folder.glob("*/*.json"):
        try:
            status = path.stat()
        except OSError:
            continue
        yield status.st_size
