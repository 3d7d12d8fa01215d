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
    """A map from keys to whole numbers, 32 to 64 bytes a key; `capacity` is how many keys it has room for at first."""

    def __init__(self, capacity: int = 8):
        self._make_room(capacity)

    def _make_room(self, capacity: int) -> None:
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
        if 2 * self._size > self._last:
            known = zip(self._hashes, self._numbers, strict=True)
            self._make_room(2 * self._size)
            for hashed, other in known:
                if other >= 0:
                    self._put(hashed, other)
        self._put(hash(key), number)

    def _put(self, hashed: int, number: int) -> None:
        slot = self._slot(hashed)
        self._hashes[slot], self._numbers[slot] = hashed, number
        self._size += 1

    def _slot(self, hashed: int) -> int:
        """Return the slot of a hash, or the empty slot where it belongs."""
        slot = hashed & self._last
        while self._numbers[slot] >= 0 and self._hashes[slot] != hashed:
            slot = (slot + 1) & self._last
        return slot
