"""Values of a promptfoo config with their places, and the files that it refers to."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.formats.table import not_utf8
from agentv.formats.yaml import Document, Steps, parse_yaml, read_bytes, read_yaml
from agentv.importers.importer import ImportFailure

FILE = "file://"
DATA = (".yaml", ".yml", ".json")
PROGRAMS = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".py", ".rb", ".sh", ".exe")


@dataclass(frozen=True)
class Node:
    """A value in a file, and where it is."""

    value: Any
    file: Path
    document: Document | None = None
    steps: Steps = ()
    first_line: int = 1

    @property
    def line(self) -> int:
        return self.document.place(self.steps).line if self.document is not None else self.first_line

    def at(self, step: str | int) -> "Node":
        """Return the value of a field or an item; None stands for one that is missing."""
        try:
            found = self.value[step]
        except (LookupError, TypeError):
            found = None
        return Node(found, self.file, self.document, (*self.steps, step), self.first_line)

    def items(self) -> Iterator["Node"]:
        """Yield the items of a list; a value that is no list is the only item."""
        if isinstance(self.value, list):
            yield from (self.at(index) for index in range(len(self.value)))
        elif self.value is not None:
            yield self

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a mapping; none for anything else."""
        return self.value if isinstance(self.value, dict) else {}

    def path(self) -> Path | None:
        """Return the file that a text refers to, by its path from this file's folder; None if it refers to none."""
        if isinstance(self.value, str) and self.value.startswith(FILE):
            return self.file.parent / self.value.removeprefix(FILE)
        return None


def read_node(path: Path) -> Node:
    """Return the value of a YAML or JSON file; raise `ImportFailure` if it cannot be read."""
    document = read_yaml(path, ImportFailure)
    return Node(document.value, path, document)


def read_text(path: Path) -> str:
    """Return the text of a file; raise `AgentvError` if it cannot be read."""
    try:
        return read_bytes(path, ImportFailure).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise not_utf8(path, 1) from None


def parse_messages(text: str, path: Path) -> list[dict[str, Any]] | None:
    """Return the messages that a prompt is, as JSON or as YAML; None if it is a plain text."""
    stripped = text.lstrip()
    try:
        if stripped.startswith("["):
            found = json.loads(stripped)
        elif stripped.startswith("- "):
            found = parse_yaml(text, path, AgentvError).value
        else:
            return None
    except (ValueError, RecursionError, AgentvError):
        return None
    is_chat = isinstance(found, list) and all(isinstance(each, dict) and "role" in each for each in found)
    return found if is_chat and found else None
