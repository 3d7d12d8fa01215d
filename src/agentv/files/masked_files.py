"""Masks secrets in files of any size, one chunk at a time."""

import codecs
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from agentv.log import info
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
                info(f"{path} removed, because it cannot be masked: {error.strerror}")
                with suppress(OSError):
                    path.unlink()


def _mask_file(path: Path, clean: Redactor) -> None:
    """Replace a file by a masked copy if it contains a secret. Hard links to the original are not changed."""
    # A symlink may point to a file outside the folder, which must not be changed.
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        return
    with path.open("rb") as file:
        if not _has_secret(file, clean):
            return
        file.seek(0)
        descriptor, copy = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as target:
                for _, masked in _masked_parts(file, clean):
                    content = masked.encode("utf-8", "surrogateescape")
                    target.write(content)
            os.replace(copy, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(copy)
            raise


def _has_secret(file: BinaryIO, clean: Redactor) -> bool:
    parts = _masked_parts(file, clean)
    return any(text != masked for text, masked in parts)


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
    first = max(0, last - longest)
    for cut in range(last, first, -1):
        start = max(0, cut - longest)
        before = text[start:cut]
        behind = text[cut : cut + longest]
        in_parts = clean(before) + clean(behind)
        if clean(before + behind) == in_parts:
            return cut
    return last
