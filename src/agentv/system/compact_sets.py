"""Collections that keep the hashes of their members and not the members: a few bytes each.

Two members may share a hash, though hardly ever do.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable

_PARTS = 256
_FULL = 256
_BATCH = 8192
_LAST_BITS = _PARTS - 1


class DuplicateFinder:
    """Finds members that were added more than once.

    Hashes are kept apart by their last bits, so that each part can be searched in a set of its own, while the others
    stay as small as they are.
    """

    def __init__(self) -> None:
        self._parts = [array("q") for _ in range(_PARTS)]
        self._full: list[list[bytes]] = [[] for _ in range(_PARTS)]
        self._waiting: list[int] = []

    def add(self, members: Iterable[Hashable]) -> None:
        self._waiting.extend(map(hash, members))
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

    def duplicate_hashes(self) -> set[int]:
        """Return the hashes that were added more than once."""
        self._sort_in()
        found: set[int] = set()
        for part, full in zip(self._parts, self._full, strict=True):
            numbers = array("q", b"".join([*full, part.tobytes()]))
            if len(set(numbers)) != len(numbers):
                found.update(number for number, times in Counter(numbers).items() if times > 1)
        return found


class HashSet:
    """A set of hashes. Add all members first: looking one up sorts the set."""

    def __init__(self) -> None:
        self._parts = [array("q") for _ in range(_PARTS)]
        self._is_sorted = True

    def add(self, member: Hashable) -> None:
        number = hash(member)
        self._parts[number & _LAST_BITS].append(number)
        self._is_sorted = False

    def __contains__(self, member: Hashable) -> bool:
        if not self._is_sorted:
            self._parts = [array("q", sorted(part)) for part in self._parts]
            self._is_sorted = True
        number = hash(member)
        part = self._parts[number & _LAST_BITS]
        at = bisect_left(part, number)
        return at < len(part) and part[at] == number


class HashIndex:
    """A map from at most `capacity` keys to whole numbers, 32 bytes a key."""

    def __init__(self, capacity: int):
        self._last = (1 << (2 * capacity + 8).bit_length()) - 1
        self._hashes = array("q", [0]) * (self._last + 1)
        self._numbers = array("q", [-1]) * (self._last + 1)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, key: Hashable) -> int:
        """Return the number of a key, -1 if there is none."""
        return self._numbers[self._slot(hash(key))]

    def add(self, key: Hashable, number: int) -> None:
        """Set the number of a new key; the number is not negative."""
        slot = self._slot(hash(key))
        self._hashes[slot], self._numbers[slot] = hash(key), number
        self._size += 1

    def _slot(self, hashed: int) -> int:
        """Return the slot of a hash, or the empty slot where it belongs."""
        slot = hashed & self._last
        while self._numbers[slot] >= 0 and self._hashes[slot] != hashed:
            slot = (slot + 1) & self._last
        return slot
