"""Ids as they come -> those that came more than once, or that came before, at eight bytes an id."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable

_PARTS = 256
_LAST_BITS = _PARTS - 1


class Repeats:
    """Remembers the hash of every id. Hashes are kept apart by their last bits, so that each part
    can be searched for repeats in a set of its own, while the others stay as small as they are.
    """

    def __init__(self) -> None:
        self._parts = [array("q") for _ in range(_PARTS)]
        self._adders = [part.append for part in self._parts]

    def add(self, ids: Iterable[str]) -> None:
        adders = self._adders
        for number in map(hash, ids):
            adders[number & _LAST_BITS](number)

    def hashes(self) -> set[int]:
        """The hashes that came more than once; different ids may share one, though hardly ever do."""
        found: set[int] = set()
        for part in self._parts:
            if len(set(part)) != len(part):
                found.update(number for number, times in Counter(part).items() if times > 1)
        return found


class CompactSet:
    """A set of hashable things that only remembers their hashes. Fill it first, ask it afterwards."""

    def __init__(self, things: Iterable[Hashable]) -> None:
        parts = [array("q") for _ in range(_PARTS)]
        for number in map(hash, things):
            parts[number & _LAST_BITS].append(number)
        self._parts = [array("q", sorted(part)) for part in parts]

    def __contains__(self, thing: Hashable) -> bool:
        number = hash(thing)
        part = self._parts[number & _LAST_BITS]
        at = bisect_left(part, number)
        return at < len(part) and part[at] == number
