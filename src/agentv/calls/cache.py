"""A cache key -> the response that was given before: a file for each, in a folder of the project."""

import contextlib
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
    """Stores responses. Errors are not stored; an entry that cannot be read counts as missing."""

    def __init__(self, folder: Path, clean: Redactor):
        self._folder, self._clean = folder.absolute(), clean
        self._has_warned = False

    def get(self, key: str) -> ProviderResponse | None:
        """Return the response that is stored under a key, if there is one."""
        try:
            return _DECODE(self._path(key).read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def put(self, key: str, response: ProviderResponse) -> None:
        """Store a response. A reader sees all of it or nothing; of two writers the last one wins."""
        try:
            encoded = msgspec.json.encode(response, enc_hook=str)
            if self._clean(encoded.decode()) == encoded.decode():  # masked, it would be another answer
                write_atomically(self._path(key), [encoded])
        except (OutputError, ValueError, TypeError, RecursionError) as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        """Warn once that responses cannot be stored; the run goes on."""
        if not self._has_warned:
            self._has_warned = True
            message = f"responses cannot be cached: {getattr(error, 'message', error)}"
            warn(Problem(message=message, severity="warning", file=self._folder))

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


class Cleared(NamedTuple):
    """How many responses were removed, and their size in bytes."""

    responses: int
    size: int


def clear(folder: Path = CACHE) -> Cleared:
    """Remove all responses and return how many they were."""
    sizes = list(_sizes(folder))
    for entry in folder.iterdir() if folder.is_dir() else ():
        shutil.rmtree(entry)
    if folder.is_dir() and not folder.is_symlink():
        folder.rmdir()
    return Cleared(len(sizes), sum(sizes))


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.glob("*/*.json"):
        with contextlib.suppress(OSError):
            yield path.stat().st_size
