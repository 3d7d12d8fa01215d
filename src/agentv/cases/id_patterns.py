"""The ids and globs of `--eval-id`. Matching a case takes the same time regardless of their number."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

_WILDCARD = re.compile(r"[*?\[]")
_CHARACTER_SET = re.compile(r"\[!?+\]?+[^\]]*\]")
"""A part of a glob that matches one character, such as `[0-9]`."""


class _Globs(NamedTuple):
    """Globs, indexed so that only a few are compared with an id."""

    of_any_length: tuple[str, ...]
    by_length: Mapping[int, Mapping[str, Sequence[str]]]
    """Globs by the length of the ids that they match, then by the text before their first wildcard."""


@dataclass(frozen=True)
class IdPatterns:
    """Ids and globs that select cases.

    The id of a member of a family, such as `ask[order=A1]`, is a glob as well. Without `*`, a glob matches ids of one
    length only; these globs are found by that length and by the text before their first wildcard.
    """

    patterns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def names(self, id_: str) -> bool:
        """Return whether one of the patterns is exactly this id."""
        return id_ in self._ids

    def matches(self, id_: str) -> bool:
        """Return whether a pattern matches this id."""
        return next(self.matching(id_), None) is not None

    def matching(self, id_: str) -> Iterator[str]:
        """Yield the patterns that match this id."""
        if id_ in self._ids:
            yield id_
        for pattern in self._candidates(id_):
            if pattern != id_ and fnmatchcase(id_, pattern):
                yield pattern

    @cached_property
    def _ids(self) -> frozenset[str]:
        return frozenset(self.patterns)

    @cached_property
    def _globs(self) -> _Globs:
        of_any_length = []
        by_length: dict[int, dict[str, list[str]]] = {}
        for pattern in dict.fromkeys(self.patterns):
            wildcard = _WILDCARD.search(pattern)
            if wildcard is None:
                continue
            if "*" in _CHARACTER_SET.sub("", pattern):
                of_any_length.append(pattern)
                continue
            length = len(_CHARACTER_SET.sub("?", pattern))
            start = pattern[: wildcard.start()]
            by_start = by_length.setdefault(length, {})
            by_start.setdefault(start, []).append(pattern)
        return _Globs(tuple(of_any_length), by_length)

    def _candidates(self, id_: str) -> Iterator[str]:
        """Yield the globs that may match this id."""
        globs = self._globs
        yield from globs.of_any_length
        by_start = globs.by_length.get(len(id_))
        if by_start is None:
            return
        for end in range(len(id_) + 1):
            yield from by_start.get(id_[:end], ())
