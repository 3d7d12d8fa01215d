"""Writes prompts and traces for inspection, one JSON file per case."""

import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import OutputError
from agentv.files.encode import to_json
from agentv.redact import Redactor

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_HASHED = re.compile(r".*-[0-9a-f]{16}")


class Dumps:
    """Writes JSON files into one folder, named after the cases."""

    def __init__(self, folder: Path, clean: Redactor):
        """Create the folder; raise `OutputError` if it cannot be created."""
        self.replaced = 0
        """The number of files that were there before."""
        self.folder = folder
        self._folder = folder.absolute()  # a target may change the current folder
        self._clean = clean
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"the folder cannot be created: {error.strerror}",
                file=folder,
                hint="check for a file of the same name, and the permissions",
            ) from error

    def write(
        self,
        id_: str,
        content: dict[str, Any],
        suffix: str = "",
    ) -> None:
        """Write the JSON file of the case `id_`, with secrets masked."""
        # Encode and decode first, so that only plain values are left to mask.
        encoded = to_json(content)
        plain = msgspec.json.decode(encoded)
        masked = msgspec.json.encode(self._clean.values(plain))
        text = msgspec.json.format(masked, indent=2).decode()
        name = clean_name(id_, self._clean)
        path = self._folder / f"{name}{suffix}.json"
        if path.exists():
            self.replaced += 1
        try:
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise OutputError(
                f"cannot be written: {error.strerror}",
                file=path,
                hint="check the permissions and the free disk space",
            ) from error


def clean_name(id_: str, clean: Redactor) -> str:
    """Return a file name for an id, like `safe_name`, with secrets masked."""
    masked = clean(id_)
    if masked == id_:
        return safe_name(id_)
    return f"{safe_name(masked)}-{_hash(id_)}"


def safe_name(id_: str) -> str:
    """Return a file name for an id: the id itself if it is a safe name, else its safe characters and a hash.

    The file is always inside the folder, and different ids have different names.
    """
    # An id that looks like a name with a hash could collide with one.
    if _SAFE.fullmatch(id_) and not _HASHED.fullmatch(id_):
        return id_
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", id_)
    safe = safe[:80].strip("_") or "case"
    return f"{safe}-{_hash(id_)}"


def _hash(id_: str) -> str:
    encoded = id_.encode("utf-8", "surrogatepass")
    return blake2b(encoded, digest_size=8).hexdigest()
