"""Values of a promptfoo config with their locations, and access to the files that it refers to."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.files.table import not_utf8
from agentv.files.yaml import Document, Steps, parse_yaml, read_bytes, read_yaml
from agentv.importers.importer import ImportFailure, Tally

FILE = "file://"
DATA = (".yaml", ".yml", ".json")
PROGRAMS = (
    ".js",
    ".cjs",
    ".mjs",
    ".ts",
    ".cts",
    ".mts",
    ".py",
    ".rb",
    ".sh",
    ".exe",
)


@dataclass(frozen=True)
class Node:
    """A value in a file, and its location."""

    value: Any
    file: Path
    document: Document | None = None
    steps: Steps = ()
    first_line: int = 1
    """The line of a value that is not part of a YAML document, such as a row of a table."""

    @property
    def line(self) -> int:
        if self.document is None:
            return self.first_line
        return self.document.place(self.steps).line

    def at(self, step: str | int) -> "Node":
        """Return the node of a field or an item. Its value is None if it is missing."""
        try:
            value = self.value[step]
        except (LookupError, TypeError):
            value = None
        return Node(
            value=value,
            file=self.file,
            document=self.document,
            steps=(*self.steps, step),
            first_line=self.first_line,
        )

    def items(self) -> Iterator["Node"]:
        """Yield the items of a list. Any other value, except None, is yielded as the only item."""
        if isinstance(self.value, list):
            for index in range(len(self.value)):
                yield self.at(index)
        elif self.value is not None:
            yield self

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a mapping. Empty for any other value."""
        if not isinstance(self.value, dict):
            return {}
        return self.value

    def path(self) -> Path | None:
        """Return the file that a `file://` text refers to, relative to this file. Return None for other values."""
        if isinstance(self.value, str) and self.value.startswith(FILE):
            return self.file.parent / self.value.removeprefix(FILE)
        return None


def report(tally: Tally, node: Node, message: str) -> None:
    """Record that a part of the source is lost, with the location of its node."""
    tally.remark(message, node.file, node.line)


def read_node(path: Path) -> Node:
    """Return the value of a YAML or JSON file. Raise `ImportFailure` if it cannot be read."""
    document = read_yaml(path, ImportFailure)
    return Node(value=document.value, file=path, document=document)


def read_text(path: Path) -> str:
    """Return the text of a file. Raise `AgentvError` if it cannot be read."""
    try:
        return read_bytes(path, ImportFailure).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise not_utf8(path, 1) from None


def referenced_suffix(path: Path) -> str:
    """Return the lower-case suffix of a referenced file, which may name a function: `prompt.js:build`."""
    file_name = path.name.partition(":")[0]
    return Path(file_name).suffix.lower()


def parse_messages(text: str, path: Path) -> list[dict[str, Any]] | None:
    """Return the messages of a prompt that is written as JSON or YAML. Return None for plain text."""
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
    if not isinstance(found, list) or not found:
        return None
    if not all(_is_message(item) for item in found):
        return None
    return found


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and "role" in item
