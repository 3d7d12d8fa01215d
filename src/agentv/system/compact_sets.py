"""Ids as they come -> those that came more than once or before, or a number for each, in a few bytes an id."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable

_PARTS = 256
_FULL = 256
_BATCH = 8192
_LAST_BITS = _PARTS - 1


class Repeats:
    """Remembers the hash of every id. Hashes are kept apart by their last bits, so that each part
    can be searched for repeats in a set of its own, while the others stay as small as they are.
    """

    def __init__(self) -> None:
        self._parts = [array("q") for _ in range(_PARTS)]
        self._full: list[list[bytes]] = [[] for _ in range(_PARTS)]
        self._waiting: list[int] = []

    def add(self, ids: Iterable[Hashable]) -> None:
        self._waiting.extend(map(hash, ids))
        if len(self._waiting) >= _BATCH:
            self._sort_in()

    def _sort_in(self) -> None:
        adders = [part.append for part in self._parts]
        for number in self._waiting:
            adders[number & _LAST_BITS](number)
        self._waiting.clear()
        for part, full in zip(self._parts, self._full, strict=True):
            if len(part) >= _FULL:  # what grows on and on wastes memory in between
                full.append(part.tobytes())
                del part[:]

    def hashes(self) -> set[int]:
        """The hashes that came more than once; different ids may share one, though hardly ever do."""
        self._sort_in()
        found: set[int] = set()
        for part, full in zip(self._parts, self._full, strict=True):
            numbers = array("q", b"".join([*full, part.tobytes()]))
            if len(set(numbers)) != len(numbers):
                found.update(number for number, times in Counter(numbers).items() if times > 1)
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


class CompactMap:
    """A whole number for each of at most `most` things, of which only the hashes are kept: 32 bytes a thing."""

    def __init__(self, most: int):
        self._last = (1 << (2 * most + 8).bit_length()) - 1
        self._hashes = array("q", [0]) * (self._last + 1)
        self._numbers = array("q", [-1]) * (self._last + 1)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, thing: Hashable) -> int:
        """The number of the thing, -1 if it has none."""
        return self._numbers[self._place(hash(thing))]

    def add(self, thing: Hashable, number: int) -> None:
        """Give a new thing its number, which is not negative."""
        place = self._place(hash(thing))
        self._hashes[place], self._numbers[place] = hash(thing), number
        self._size += 1

    def _place(self, hashed: int) -> int:
        """Where the hash stands, or the empty place where it would."""
        place = hashed & self._last
        while self._numbers[place] >= 0 and self._hashes[place] != hashed:
            place = (place + 1) & self._last
        return place
