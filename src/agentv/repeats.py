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

    def add(self, ids: Iterable[Hashable]) -> None:
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
    """A set that only remembers the hashes of what is in it. Fill it first, ask it afterwards."""

    def __init__(self) -> None:
        self._parts = [array("q") for _ in range(_PARTS)]
        self._is_sorted = True

    def add(self, thing: Hashable) -> None:
        number = hash(thing)
        self._parts[number & _LAST_BITS].append(number)
        self._is_sorted = False

    def __contains__(self, thing: Hashable) -> bool:
        if not self._is_sorted:
            self._parts = [array("q", sorted(part)) for part in self._parts]
            self._is_sorted = True
        number = hash(thing)
        part = self._parts[number & _LAST_BITS]
        at = bisect_left(part, number)
        return at < len(part) and part[at] == number
