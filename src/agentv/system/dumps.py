"""Prompts and traces, one JSON file a case, for a person to look at."""

import re
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import OutputError
from agentv.redact import Redactor

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_HASHED = re.compile(r".*-[0-9a-f]{16}")


class Dumps:
    """Writes JSON files into one folder, named after the cases."""

    def __init__(self, folder: Path, clean: Redactor):
        self._folder, self._clean = folder.absolute(), clean
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "see what is in its place, and who may write there"
            raise OutputError(f"this folder cannot be made: {error.strerror}", file=folder, hint=hint) from error

    def write(self, id_: str, content: dict[str, Any], suffix: str = "") -> None:
        """Write the JSON file of the case `id_`, without secrets."""
        plain = self._clean.values(msgspec.json.decode(msgspec.json.encode(content, enc_hook=str)))
        text = msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
        path = self._folder / f"{clean_name(id_, self._clean)}{suffix}.json"
        try:
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            hint = "see who may write there, and how much room is left"
            raise OutputError(f"cannot be written: {error.strerror}", file=path, hint=hint) from error


def clean_name(id_: str, clean: Redactor) -> str:
    """Return a file name for an id, like `safe_name`, without secrets."""
    shown = clean(id_)
    return safe_name(id_) if shown == id_ else f"{safe_name(shown)}-{_hash(id_)}"


def safe_name(id_: str) -> str:
    """Return a file name for an id: the id itself if it is plain, else its plain characters and a hash.

    No id leads out of the folder, and no two ids get the same name.
    """
    if _SAFE.fullmatch(id_) and not _HASHED.fullmatch(id_):
        return id_
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", id_)[:80].strip("_") or "case"
    return f"{plain}-{_hash(id_)}"


def _hash(id_: str) -> str:
    return blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
