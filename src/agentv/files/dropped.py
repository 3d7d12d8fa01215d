"""Count the parts of an answer that cannot be read, so that nothing is lost silently."""

from collections.abc import Sequence
from typing import Any

from agentv.files.encode import to_json
from agentv.records import Dropped, DroppedKind
from agentv.redact import clean
from agentv.text import truncate

MAX_EXAMPLE = 120


class DroppedParts:
    """The parts of one answer that cannot be read: how many of each kind, and the first of them as an example."""

    def __init__(self) -> None:
        self._counts: dict[DroppedKind, int] = {}
        self._examples: dict[DroppedKind, str] = {}

    def add(self, kind: DroppedKind, part: Any) -> None:
        """Count a part that cannot be read."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if kind not in self._examples:
            self._examples[kind] = _excerpt(part)

    def add_keys(self, keys: Sequence[str]) -> None:
        """Count the unknown keys of an answer."""
        names = ", ".join(map(repr, keys))
        self._counts["fields"] = len(keys)
        self._examples["fields"] = truncate(clean(names), MAX_EXAMPLE)

    def has(self, kind: DroppedKind) -> bool:
        """Return whether a part of this kind was dropped."""
        return kind in self._counts

    def records(self) -> tuple[Dropped, ...] | None:
        """Return what was dropped, one record per kind, or None if everything could be read."""
        found = []
        for kind, count in self._counts.items():
            dropped = Dropped(kind=kind, count=count, example=self._examples[kind])
            found.append(dropped)
        return tuple(found) or None


def _excerpt(part: Any) -> str:
    """Return the start of a part as JSON. Secrets are masked before truncation: half of one is not recognised."""
    try:
        text = to_json(part).decode()
    except (TypeError, ValueError, RecursionError):
        text = type(part).__name__
    return truncate(clean(text), MAX_EXAMPLE)
