"""A request -> the response it had before: a file for each, under a name that stands for all that was sent."""

import contextlib
import shutil
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.errors import OutputError
from agentv.notices import warn
from agentv.records import Problem, ProviderRequest, ProviderResponse
from agentv.redact import Redactor
from agentv.system.atomic_files import write_atomically

CACHE = Path(".agentv/cache")
_ENCODE = msgspec.json.Encoder(enc_hook=str, order="sorted").encode
_DECODE = msgspec.json.Decoder(ProviderResponse).decode
FILES = ("input_files", "guideline_files")


class Cache:
    """Keeps responses. Errors are not kept, and what cannot be read is not there."""

    def __init__(self, folder: Path, clean: Redactor):
        self._folder, self._clean = folder.absolute(), clean
        self._is_broken = False

    def name(self, target: Any, request: ProviderRequest) -> str:
        """Stands for all that is sent to a target: how it is set up, the prompt, what is in the files.

        A judge that is asked once more, and another trial of a case, want another answer.
        """
        sent = {field: getattr(request, field) for field in request.__struct_fields__ if field not in FILES}
        files = [(path.name, _content(path)) for path in (*request.input_files, *request.guideline_files)]
        return blake2b(_ENCODE([target, sent, files]), digest_size=20).hexdigest()

    def get(self, name: str) -> ProviderResponse | None:
        """What was answered before."""
        try:
            return _DECODE(self._path(name).read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def put(self, name: str, response: ProviderResponse) -> None:
        """Keep a response. A reader sees all of it or nothing, and of two writers the last one wins."""
        try:
            said = msgspec.json.encode(response, enc_hook=str)
            if self._clean(said.decode()) == said.decode():  # with a secret taken out it would be another answer
                write_atomically(self._path(name), [said])
        except (OutputError, ValueError, TypeError, RecursionError) as error:
            if not self._is_broken:
                self._is_broken = True
                warn(
                    Problem(
                        message=f"responses cannot be cached: {getattr(error, 'message', error)}",
                        severity="warning",
                        file=self._folder,
                    )
                )

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / f"{name}.json"


def _content(path: Path) -> str:
    try:
        return blake2b(path.read_bytes(), digest_size=20).hexdigest()
    except OSError:
        return ""


class Cleared(NamedTuple):
    """How much was taken away."""

    responses: int
    size: int


def clear(folder: Path = CACHE) -> Cleared:
    """Forget all responses."""
    sizes = list(_sizes(folder))
    for inside in folder.iterdir() if folder.is_dir() else ():
        shutil.rmtree(inside)
    if folder.is_dir() and not folder.is_symlink():
        folder.rmdir()
    return Cleared(len(sizes), sum(sizes))


def _sizes(folder: Path) -> Iterator[int]:
    for path in folder.glob("*/*.json"):
        with contextlib.suppress(OSError):
            yield path.stat().st_size
