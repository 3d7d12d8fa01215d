"""Masks secrets in files of any size, one chunk at a time."""

import codecs
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from agentv.notices import say
from agentv.redact import Redactor

_CHUNK_BYTES = 1 << 20


def mask_files(folder: Path, clean: Redactor) -> None:
    """Mask the secrets in all files below a folder. A file that cannot be masked is removed."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            try:
                _mask_file(path, clean)
            except OSError as error:
                say(f"{path} cannot be masked, and is removed: {error.strerror}")
                with suppress(OSError):
                    path.unlink()


def _mask_file(path: Path, clean: Redactor) -> None:
    """Replace a file by a masked copy if it contains a secret. Hard links to the original are not changed."""
    # A symlink may point to a file outside the folder, which must not be changed.
    if not stat.S_ISREG(path.lstat().st_mode):
        return
    with path.open("rb") as file:
        if not _has_secret(file, clean):
            return
        file.seek(0)
        descriptor, copy = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as target:
                for _, masked in _masked_parts(file, clean):
                    target.write(masked.encode("utf-8", "surrogateescape"))
            os.replace(copy, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(copy)
            raise


def _has_secret(file: BinaryIO, clean: Redactor) -> bool:
    return any(text != masked for text, masked in _masked_parts(file, clean))


def _masked_parts(file: BinaryIO, clean: Redactor) -> Iterator[tuple[str, str]]:
    """Yield each part of a file, unchanged and masked."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    text = ""
    while chunk := file.read(_CHUNK_BYTES):
        text += decoder.decode(chunk)
        cut = _find_cut(text, clean)
        part = text[:cut]
        yield part, clean(part)
        text = text[cut:]
    text += decoder.decode(b"", final=True)
    yield text, clean(text)


def _find_cut(text: str, clean: Redactor) -> int:
    """Return a position at which to split a text, so that no secret is split.

    The rest after the position is long enough for a secret whose end is in the next chunk.
    """
    longest = clean.longest
    last = max(0, len(text) - longest)
    for cut in range(last, max(0, last - longest), -1):
        start = max(0, cut - longest)
        before = text[start:cut]
        behind = text[cut : cut + longest]
        if clean(before + behind) == clean(before) + clean(behind):
            return cut
    return last
