"""Who runs what: which numbers are to do, which worker has which, and what becomes of those of a lost worker.

Nothing here waits or sends. One byte is held for each run of a case, however many workers there are.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CHUNK_SECONDS = 60.0
"""How long a worker should be busy with a chunk."""
LEAST_SECONDS = 0.5
"""Chunks do not get smaller than this much work, as long as there is more."""
MOST_CASES = 50_000
CHUNKS = 2
"""How many chunks a worker has at most: the one it is on, and one that waits."""
STRIKES = 3
"""A run that was in flight when so many workers were lost is run apart from the others."""
LAST_STRIKES = 2
"""A run that so many workers were lost with while it was the only one in flight is not tried again."""
SHORT_SECONDS = 0.05
"""After a case that took longer, a worker starts the next when the driver has the result: then a kill costs no more
than what runs. To wait for that costs more than it saves when cases are shorter."""
UNASSIGNED, ASSIGNED, ARRIVED, SUSPECT = range(4)

Range = tuple[int, int]
"""The first number, and the one after the last."""


@dataclass(eq=False)
class Chunk:
    """Numbers that were sent to a worker together; `left` of them have no result yet."""

    ranges: list[Range]
    left: int
    is_alone: bool = False
    """Whether the worker gets nothing else before this is done."""

    def __contains__(self, number: int) -> bool:
        return any(first <= number < end for first, end in self.ranges)

    def numbers(self) -> Iterator[int]:
        return (number for first, end in self.ranges for number in range(first, end))


@dataclass(eq=False)
class Load:
    """What one worker has, and how fast it is."""

    chunks: list[Chunk] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    """What it said last that is in flight there."""
    waiting: int = 0
    """How many cases it said last that it has not started."""
    done: int = 0
    busy_seconds: float = 0.0

    @property
    def outstanding(self) -> int:
        return sum(chunk.left for chunk in self.chunks)

    @property
    def rate(self) -> float | None:
        """Cases a second; None if that is not known yet."""
        return self.done / self.busy_seconds if self.done and self.busy_seconds > 0 else None


class Dispatch:
    """Deals out the numbers from 0 to `total` that are not `done`; each is taken for done once."""

    def __init__(self, total: int, done: Iterable[int], slots: int):
        self._state = bytearray(total)
        self._slots = slots
        for number in done:
            self._state[number] = ARRIVED
        self.left = self.todo = total - self._state.count(ARRIVED)
        self._cursor = 0
        self._strikes: dict[int, int] = {}
        self._groups: deque[list[int]] = deque()
        """Suspects that are run apart, each group on a worker that does nothing else."""
        self.loads: list[Load] = []
        self.sent_again = 0
        self.condemned: list[int] = []
        """The runs that killed their workers, for which somebody has to write a result."""

    def next_chunk(self, load: Load, workers: int) -> Chunk | None:
        """Return what this worker, one of so many, is to do next; None if it has enough or there is nothing."""
        if any(chunk.is_alone for chunk in load.chunks):
            return None
        if self._groups and not load.chunks:
            group = self._groups.popleft()
            chunk = Chunk([(number, number + 1) for number in group], len(group), is_alone=True)
        elif self.todo and len(load.chunks) < CHUNKS:
            ranges = self._take(self._size(load, workers))
            chunk = Chunk(ranges, sum(end - first for first, end in ranges))
        else:
            return None
        for number in chunk.numbers():
            self._state[number] = ASSIGNED
        load.chunks.append(chunk)
        load.waiting += chunk.left
        return chunk

    def _size(self, load: Load, workers: int) -> int:
        """Return how many cases the next chunk has: about a minute's work, or a share of the little that is left."""
        rates = [rate for other in self.loads if (rate := other.rate) is not None]
        rate = load.rate or (sum(rates) / len(rates) if rates else None)
        share = math.ceil(self.todo / (CHUNKS * max(workers, 1)))
        if rate is None:
            return max(1, min(self._slots, share))
        return min(MOST_CASES, max(1, math.ceil(rate * LEAST_SECONDS), min(math.ceil(rate * CHUNK_SECONDS), share)))

    def _take(self, count: int) -> list[Range]:
        ranges: list[Range] = []
        state = self._state
        while count and (first := state.find(UNASSIGNED, self._cursor)) >= 0:
            end = first
            while end < len(state) and end - first < count and state[end] == UNASSIGNED:
                end += 1
            ranges.append((first, end))
            self._cursor = end
            self.todo -= end - first
            count -= end - first
        return ranges

    def arrive(self, load: Load, number: int) -> bool:
        """Take note of a result; return whether it is the first of its run."""
        if self._state[number] == ARRIVED:
            return False
        if self._state[number] == UNASSIGNED:
            self.todo -= 1
        elif self._state[number] == SUSPECT:
            self._groups = deque(group for each in self._groups if (group := [n for n in each if n != number]))
        else:
            self._remove(load, number)
        self._state[number] = ARRIVED
        self._strikes.pop(number, None)
        self.left -= 1
        load.done += 1
        return True

    def _remove(self, load: Load, number: int) -> None:
        """Count a number out of the chunk that it is in: that of this worker, else that of another."""
        for owner in (load, *self.loads):
            for chunk in owner.chunks:
                if number in chunk:
                    chunk.left -= 1
                    if not chunk.left:
                        owner.chunks.remove(chunk)
                    return

    def give_back(self, load: Load, ranges: Iterable[Range]) -> None:
        """Take numbers from a worker that it has not started."""
        for first, end in ranges:
            for number in range(first, end):
                if self._state[number] == ASSIGNED:
                    self._remove(load, number)
                    self._set_todo(number)

    def _set_todo(self, number: int) -> None:
        self._state[number] = UNASSIGNED
        self.todo += 1
        self._cursor = min(self._cursor, number)

    def lose(self, load: Load, *, died: bool) -> int:
        """Take all that a lost worker had, to be sent again; return how many cases may have been in flight there.

        If it `died`, one of those may be the reason: who is seen at three deaths is run apart from the others, and a
        group of such is divided until the one is found that does it.
        """
        chunks, load.chunks = load.chunks, []
        held = [number for chunk in chunks for number in chunk.numbers() if self._state[number] == ASSIGNED]
        self.sent_again += len([chunk for chunk in chunks if chunk.left])
        running, load.running, load.waiting = set(load.running), [], 0
        known = [number for number in held if number in running]
        later = [number for number in held if number not in running][: self._slots]  # those it may have started since
        if any(chunk.is_alone for chunk in chunks):
            self._divide(held, died=died)
        else:
            for number in held:
                self._set_todo(number)
            if died:
                self._strike(known + later)
        is_fast = load.rate is not None and self._slots / load.rate < SHORT_SECONDS
        return min(len(held), 2 * self._slots if is_fast else self._slots)  # results on their way are lost, too

    def _strike(self, numbers: list[int]) -> None:
        for number in numbers:
            self._strikes[number] = self._strikes.get(number, 0) + 1
        group = [number for number in numbers if self._strikes[number] >= STRIKES]
        if group:
            for number in group:
                self._state[number] = SUSPECT
                self.todo -= 1
            self._groups.append(group)

    def _divide(self, group: list[int], *, died: bool) -> None:
        for number in group:
            self._state[number] = SUSPECT
        if not died:
            self._groups.append(group)
        elif len(group) > 1:
            half = len(group) // 2
            self._groups.extend((group[:half], group[half:]))
        elif group:
            (number,) = group
            self._strikes[number] += 1
            if self._strikes[number] >= STRIKES + LAST_STRIKES:
                self.condemned.append(number)
            else:
                self._groups.append(group)

    def deaths(self, number: int) -> int:
        """Return how many workers were lost while this run was in flight, as far as was counted."""
        return self._strikes.get(number, 0)

    def victim(self, load: Load) -> Load | None:
        """Return the worker that has the most waiting when this one has nothing to do and there is nothing to deal."""
        if self.todo or self._groups or load.waiting or load.outstanding >= self._slots:
            return None
        others = [other for other in self.loads if other is not load and other.waiting > 0]
        others = [other for other in others if not any(chunk.is_alone for chunk in other.chunks)]
        others = [other for other in others if other.rate is None or other.waiting / other.rate > 2 * LEAST_SECONDS]
        return max(others, key=lambda other: other.waiting, default=None)
