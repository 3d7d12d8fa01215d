"""Decide which worker runs which case, and what happens to the cases of a lost worker.

A case run (one trial of a case) is identified by its number. Nothing here waits or sends messages. The state of a
case run takes one byte, regardless of the number of workers.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CHUNK_SECONDS = 60.0
"""How long a worker should be busy with a chunk."""
MIN_CHUNK_SECONDS = 0.5
"""Chunks do not get smaller than this much work while there are enough cases."""
MAX_CHUNK_CASES = 50_000
MAX_CHUNKS = 2
"""The maximum number of chunks per worker: one running and one waiting."""
SUSPECT_DEATHS = 3
"""A case run is isolated from the others after it was in flight on this many workers that died."""
ISOLATED_DEATHS = 2
"""A case run is not repeated after it was the only one in flight on this many workers that died."""
SHORT_CASE_SECONDS = 0.05
"""After a case that took longer, a worker starts the next one only when the driver has the result, so that a killed
worker loses no finished cases. For shorter cases, waiting would cost more than it saves."""
UNASSIGNED = 0
ASSIGNED = 1
FINISHED = 2
SUSPECT = 3

Range = tuple[int, int]
"""The first number, and the number after the last one."""


@dataclass(eq=False)
class Chunk:
    """Numbers that were sent to a worker in one message."""

    ranges: list[Range]
    unfinished: int
    """How many of the numbers have no result yet."""
    is_isolated: bool = False
    """Whether the worker gets nothing else before this chunk is finished."""

    def __contains__(self, number: int) -> bool:
        return any(first <= number < end for first, end in self.ranges)

    def numbers(self) -> Iterator[int]:
        """Yield all numbers, with or without a result."""
        for first, end in self.ranges:
            yield from range(first, end)


@dataclass(eq=False)
class Load:
    """The cases of one worker, and how fast it runs them."""

    chunks: list[Chunk] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    """The numbers in flight, from its last report."""
    waiting: int = 0
    """How many cases it has not started, from its last report."""
    done: int = 0
    busy_seconds: float = 0.0

    @property
    def outstanding(self) -> int:
        """The number of cases that it has and that have no result yet."""
        return sum(chunk.unfinished for chunk in self.chunks)

    @property
    def rate(self) -> float | None:
        """Cases per second, or None if it is not known yet."""
        if not self.done or self.busy_seconds <= 0:
            return None
        return self.done / self.busy_seconds

    @property
    def is_isolated(self) -> bool:
        """Whether it has a chunk that must be finished before it gets another one."""
        return any(chunk.is_isolated for chunk in self.chunks)

    @property
    def can_share(self) -> bool:
        """Whether it has waiting cases that are worth moving to another worker."""
        if self.waiting <= 0 or self.is_isolated:
            return False
        rate = self.rate
        return rate is None or self.waiting / rate > 2 * MIN_CHUNK_SECONDS


class Dispatch:
    """Assigns the numbers from 0 to `total` that are not `done` to workers. The first result of a number counts."""

    def __init__(self, total: int, done: Iterable[int], slots: int):
        """`slots` is the number of cases that a worker runs at once."""
        self._state = bytearray(total)
        self._slots = slots
        for number in done:
            self._state[number] = FINISHED
        self.unfinished = total - self._state.count(FINISHED)
        self.unassigned = self.unfinished
        self._cursor = 0
        """No number below it is unassigned."""
        self._deaths: dict[int, int] = {}
        """How many workers died while a number was in flight there."""
        self._suspects: deque[list[int]] = deque()
        """Groups of suspects. Each group runs on a worker that runs nothing else."""
        self.loads: list[Load] = []
        self.sent_again = 0
        """The number of chunks that were sent a second time."""
        self.deadly: list[int] = []
        """Case runs that killed their workers. The caller reports them as errors."""

    def next_chunk(self, load: Load, workers: int) -> Chunk | None:
        """Assign the next chunk to a worker, which is one of `workers`.

        Return None if the worker has enough to do, or if there is nothing to assign.
        """
        if load.is_isolated:
            return None
        if self._suspects and not load.chunks:
            group = self._suspects.popleft()
            chunk = Chunk(
                ranges=[(number, number + 1) for number in group],
                unfinished=len(group),
                is_isolated=True,
            )
        elif self.unassigned and len(load.chunks) < MAX_CHUNKS:
            ranges = self._take_unassigned(self._chunk_size(load, workers))
            chunk = Chunk(ranges, unfinished=sum(end - first for first, end in ranges))
        else:
            return None
        for number in chunk.numbers():
            self._state[number] = ASSIGNED
        load.chunks.append(chunk)
        load.waiting += chunk.unfinished
        return chunk

    def _chunk_size(self, load: Load, workers: int) -> int:
        """Return the number of cases in the next chunk: a minute's work, or less towards the end of the run."""
        rate = load.rate or self._mean_rate()
        share = math.ceil(self.unassigned / (MAX_CHUNKS * max(workers, 1)))
        if rate is None:
            return max(1, min(self._slots, share))
        least = max(1, math.ceil(rate * MIN_CHUNK_SECONDS))
        wanted = min(math.ceil(rate * CHUNK_SECONDS), share)
        return min(MAX_CHUNK_CASES, max(least, wanted))

    def _mean_rate(self) -> float | None:
        """Return the mean rate of the workers whose rate is known."""
        rates = []
        for load in self.loads:
            rate = load.rate
            if rate is not None:
                rates.append(rate)
        if not rates:
            return None
        return sum(rates) / len(rates)

    def _take_unassigned(self, count: int) -> list[Range]:
        """Return ranges with the first `count` unassigned numbers, or with all if there are fewer."""
        ranges: list[Range] = []
        state = self._state
        while count:
            first = state.find(UNASSIGNED, self._cursor)
            if first < 0:
                break
            end = first
            while end < len(state) and end - first < count and state[end] == UNASSIGNED:
                end += 1
            ranges.append((first, end))
            self._cursor = end
            self.unassigned -= end - first
            count -= end - first
        return ranges

    def record_result(self, load: Load, number: int) -> bool:
        """Record a result from a worker; return whether it is the first one for this number."""
        state = self._state[number]
        if state == FINISHED:
            return False
        if state == UNASSIGNED:
            self.unassigned -= 1
        elif state == SUSPECT:
            self._remove_suspect(number)
        else:
            self._remove_from_chunk(load, number)
        self._state[number] = FINISHED
        self._deaths.pop(number, None)
        self.unfinished -= 1
        load.done += 1
        return True

    def _remove_suspect(self, number: int) -> None:
        groups: deque[list[int]] = deque()
        for group in self._suspects:
            others = [suspect for suspect in group if suspect != number]
            if others:
                groups.append(others)
        self._suspects = groups

    def _remove_from_chunk(self, load: Load, number: int) -> None:
        """Count a number out of its chunk. Search the chunks of this worker first, then those of the others."""
        for owner in (load, *self.loads):
            for chunk in owner.chunks:
                if number in chunk:
                    chunk.unfinished -= 1
                    if not chunk.unfinished:
                        owner.chunks.remove(chunk)
                    return

    def take_back(self, load: Load, ranges: Iterable[Range]) -> None:
        """Unassign the numbers that a worker has not started."""
        for first, end in ranges:
            for number in range(first, end):
                if self._state[number] == ASSIGNED:
                    self._remove_from_chunk(load, number)
                    self._unassign(number)

    def _unassign(self, number: int) -> None:
        self._state[number] = UNASSIGNED
        self.unassigned += 1
        self._cursor = min(self._cursor, number)

    def lose(self, load: Load, *, died: bool) -> int:
        """Unassign all cases of a lost worker; return an upper bound for the number that was in flight there.

        If the worker `died`, one of those cases may be the cause. A case that was in flight on three workers that
        died is isolated: it runs on a worker that has only such suspects. If that worker dies as well, its suspects
        are divided into two groups, until the case that is the cause runs alone.
        """
        chunks = load.chunks
        was_isolated = load.is_isolated
        held = self._unfinished_numbers(chunks)
        in_flight = self._possibly_in_flight(load, held)
        load.chunks = []
        load.running = []
        load.waiting = 0
        for chunk in chunks:
            if chunk.unfinished:
                self.sent_again += 1
        if was_isolated:
            self._divide_suspects(held, died=died)
        else:
            for number in held:
                self._unassign(number)
            if died:
                self._count_deaths(in_flight)
        limit = self._slots
        if load.rate is not None and self._slots / load.rate < SHORT_CASE_SECONDS:
            # A worker does not wait for the driver after short cases: results that were not sent yet are lost, too.
            limit = 2 * self._slots
        return min(len(held), limit)

    def _unfinished_numbers(self, chunks: Iterable[Chunk]) -> list[int]:
        numbers = []
        for chunk in chunks:
            for number in chunk.numbers():
                if self._state[number] == ASSIGNED:
                    numbers.append(number)
        return numbers

    def _possibly_in_flight(self, load: Load, held: list[int]) -> list[int]:
        """Return the numbers that ran at a worker's last report, and those that it may have started since."""
        running = set(load.running)
        reported = [number for number in held if number in running]
        others = [number for number in held if number not in running]
        return reported + others[: self._slots]

    def _count_deaths(self, numbers: list[int]) -> None:
        """Count the death of a worker for each number that may have been in flight; isolate suspects."""
        group = []
        for number in numbers:
            self._deaths[number] = self._deaths.get(number, 0) + 1
            if self._deaths[number] >= SUSPECT_DEATHS:
                group.append(number)
        if not group:
            return
        for number in group:
            self._state[number] = SUSPECT
            self.unassigned -= 1
        self._suspects.append(group)

    def _divide_suspects(self, group: list[int], *, died: bool) -> None:
        """Queue the suspects of a lost worker again, in two groups if it died."""
        for number in group:
            self._state[number] = SUSPECT
        if not died:
            self._suspects.append(group)
        elif len(group) > 1:
            half = len(group) // 2
            self._suspects.append(group[:half])
            self._suspects.append(group[half:])
        elif group:
            number = group[0]
            self._deaths[number] += 1
            if self._deaths[number] >= SUSPECT_DEATHS + ISOLATED_DEATHS:
                self.deadly.append(number)
            else:
                self._suspects.append(group)

    def deaths(self, number: int) -> int:
        """Return how many counted workers died while this case was in flight."""
        return self._deaths.get(number, 0)

    def busiest_other(self, load: Load) -> Load | None:
        """Return the worker with the most waiting cases, from which an idle worker may take some.

        Return None if this worker is not idle, if there are cases to assign, or if no other worker has enough.
        """
        if self.unassigned or self._suspects:
            return None
        if load.waiting or load.outstanding >= self._slots:
            return None
        busiest = None
        for other in self.loads:
            if other is load or not other.can_share:
                continue
            if busiest is None or other.waiting > busiest.waiting:
                busiest = other
        return busiest
