"""Collections that store the hashes of their members instead of the members: a few bytes each.

Hash collisions are possible, but very unlikely.
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

    Hashes are partitioned by their last bits. The search builds a set of one part at a time, so that the other parts
    stay compact.
    """

    def __init__(self) -> None:
        self._parts = [array("q") for _ in range(_PARTS)]
        self._full: list[list[bytes]] = [[] for _ in range(_PARTS)]
        """Blocks of hashes of each part, as bytes."""
        self._waiting: list[int] = []

    def add(self, members: Iterable[Hashable]) -> None:
        self._waiting.extend(map(hash, members))
        if len(self._waiting) >= _BATCH:
            self._partition()

    def add_one(self, member: Hashable) -> None:
        self._waiting.append(hash(member))
        if len(self._waiting) >= _BATCH:
            self._partition()

    def _partition(self) -> None:
        """Move the waiting hashes to their parts."""
        # Runs for every result of a large file: bound methods are looked up once per batch.
        adders = [part.append for part in self._parts]
        for number in self._waiting:
            adders[number & _LAST_BITS](number)
        self._waiting.clear()
        for part, full in zip(self._parts, self._full, strict=True):
            # An array that grows without limit over-allocates; fixed blocks do not.
            if len(part) >= _FULL:
                full.append(part.tobytes())
                del part[:]

    def duplicate_hashes(self) -> set[int]:
        """Return the hashes that were added more than once."""
        self._partition()
        found: set[int] = set()
        for part, full in zip(self._parts, self._full, strict=True):
            content = b"".join([*full, part.tobytes()])
            numbers = array("q", content)
            if len(set(numbers)) == len(numbers):
                continue
            for number, times in Counter(numbers).items():
                if times > 1:
                    found.add(number)
        return found


class HashSet:
    """A set of hashes. Add all members before the first lookup, which sorts the set."""

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
    """A map from keys to non-negative integers, with 32 to 64 bytes per key.

    It is a hash table with open addressing. `capacity` is the number of keys that it initially has room for.
    """

    def __init__(self, capacity: int = 8):
        self._allocate(capacity)

    def _allocate(self, capacity: int) -> None:
        # A power of two that is at least twice the capacity, so that a bit mask finds the slot of a hash.
        slots = 1 << (2 * capacity + 8).bit_length()
        self._last = slots - 1
        self._hashes = array("q", [0]) * slots
        self._numbers = array("q", [-1]) * slots
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, key: Hashable) -> int:
        """Return the number of a key; -1 if there is none."""
        slot = self._slot(hash(key))
        return self._numbers[slot]

    def add(self, key: Hashable, number: int) -> None:
        """Set the number of a new key. The number must not be negative."""
        if 2 * self._size > self._last:
            self._grow()
        self._put(hash(key), number)

    def _grow(self) -> None:
        """Double the capacity and insert all keys again."""
        entries = zip(self._hashes, self._numbers, strict=True)
        self._allocate(2 * self._size)
        for hashed, number in entries:
            if number >= 0:
                self._put(hashed, number)

    def _put(self, hashed: int, number: int) -> None:
        slot = self._slot(hashed)
        self._hashes[slot] = hashed
        self._numbers[slot] = number
        self._size += 1

    def _slot(self, hashed: int) -> int:
        """Return the slot of a hash, or the empty slot in which to insert it."""
        slot = hashed & self._last
        while self._numbers[slot] >= 0 and self._hashes[slot] != hashed:
            slot = (slot + 1) & self._last
        return slot
