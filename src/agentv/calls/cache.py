"""The response cache: one file per response, in a folder of the project."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.errors import OutputError
from agentv.files.atomic_files import write_atomically
from agentv.files.encode import to_json
from agentv.log import info, warn
from agentv.records import Problem, ProviderResponse
from agentv.redact import Redactor

_DECODE = msgspec.json.Decoder(ProviderResponse).decode


class Cache:
    """Stores responses by key. Errors are not stored; an unreadable entry counts as missing."""

    def __init__(self, folder: Path, clean: Redactor):
        self._folder = folder.absolute()
        self._clean = clean
        self._has_warned = False
        self._has_reported_secret = False

    def get(self, key: str) -> ProviderResponse | None:
        """Return the response stored under a key; None if there is none."""
        path = self._path(key)
        try:
            response = _DECODE(path.read_bytes())
            with contextlib.suppress(OSError):
                os.utime(path)  # the time of the last use, which `agentv clean` checks
            return response
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def put(self, key: str, response: ProviderResponse) -> None:
        """Store a response atomically. The last of several concurrent writers takes precedence.

        A response that contains a secret is not stored: masked, it would be a different response.
        """
        try:
            encoded = to_json(response)
            text = encoded.decode()
            if self._clean(text) == text:
                write_atomically(self._path(key), [encoded])
            else:
                self._report_secret(text)
        except (OutputError, ValueError, TypeError, RecursionError) as error:
            self._warn(error)

    def remove(self, key: str) -> None:
        """Remove the response stored under a key, if possible."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _report_secret(self, text: str) -> None:
        """Log, once per run, that a response is not stored because of a secret."""
        if self._has_reported_secret:
            return
        self._has_reported_secret = True
        names = ", ".join(sorted(self._clean.names_in(text)))
        info(f"an answer contains the value of {names} and is not cached: the next run will request it again")

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


def clear(folder: Path) -> Cleared:
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
    """Yield the size of each response. Files that another process removes during the iteration are skipped."""
    for path in folder.glob("*/*.json"):
        try:
            status = path.stat()
        except OSError:
            continue
        yield status.st_size
