"""Number the cases of a comparison.

Ids are numbered in the order in which they first appear. If an id occurs in more than one dataset of a file, the case
of each dataset has a number of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agentv.records import CaseKey

_SEPARATOR = "\x1f"
Moves = Mapping[int, int]
"""The new numbers of cases, by their old ones."""


def move_entries(column: Any, moves: Moves) -> None:
    """Move entries of a column, and leave zeros where they were."""
    entries = [column[number] for number in moves]
    for number in moves:
        column[number] = 0
    for number, entry in zip(moves.values(), entries, strict=True):
        column[number] = entry


class Index(dict[str, int]):
    """The number of each id, in the order in which ids were added."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: dict[int, CaseKey] = {}
        """The cases that were numbered in addition to the first dataset of their id."""

    def number_apart(self, dataset: str, eval_id: str) -> int:
        """Return the number of a case whose id has the number of a case in another dataset."""
        key = f"{_SEPARATOR}{dataset}{_SEPARATOR}{eval_id}"
        number = self.setdefault(key, len(self))
        self.apart[number] = CaseKey(dataset, eval_id)
        return number

    def ids(self) -> list[str]:
        """Return the id of each number."""
        ids = list(self)
        for number, case in self.apart.items():
            ids[number] = case.eval_id
        return ids

    def add(self, ids: Sequence[str]) -> list[int]:
        """Number the ids that are new, and return the numbers of all."""
        # Most blocks contain only known ids or only new ones: both cases run without a loop in Python.
        try:
            return list(map(self.__getitem__, ids))
        except KeyError:
            before = len(self)
        end = before + len(ids)
        following = range(before, end)
        numbers = list(map(self.setdefault, ids, following))
        if len(self) == end:
            return numbers
        # Some ids were known or repeated, which leaves gaps between the numbers.
        while len(self) > before:
            self.popitem()
        return [self.setdefault(each, len(self)) for each in ids]
