"""Where the results of several files are, in order: a few bytes for each result, besides its own names.

Results come in any order, and there may be millions. So many of them at a time are sorted and then held as one piece
of bytes, and these pieces are merged when they are asked for.
"""

import heapq
import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

PIECE = 1 << 15
_PLACE = struct.Struct(">HQI")
_LENGTH = struct.Struct(">I")
_TRIAL = struct.Struct(">I")

Place = tuple[int, int, int]
"""Where a result is: in which file, from which byte on, and how many bytes."""


class HasPlace(Protocol):
    """What says where a result comes among others."""

    @property
    def dataset(self) -> str: ...
    @property
    def eval_id(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def trial(self) -> int | None: ...


class MergeIndex:
    """The places of results, in the order of dataset, id, target and trial."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._new: list[bytes] = []

    def add(self, file: int, places: Iterable[tuple[HasPlace, int, int]]) -> None:
        """Add results of a file, each with where it begins there and how many bytes it has."""
        add, pack, ordered = self._new.append, _PLACE.pack, _ordered
        dataset, target, trial = None, None, 0
        before = behind = b""
        for view, offset, size in places:
            if view.dataset != dataset:
                dataset = view.dataset
                before = ordered(dataset)
            if view.target != target or (view.trial or 1) != trial:
                target, trial = view.target, view.trial or 1
                behind = ordered(target) + _TRIAL.pack(trial)
            add(before + ordered(view.eval_id) + behind + pack(file, offset, size))
        if len(self._new) >= PIECE:
            self._close_piece()

    def _close_piece(self) -> None:
        self._new.sort()
        self._pieces.append(b"".join([_LENGTH.pack(len(entry)) + entry for entry in self._new]))
        self._new.clear()

    def groups(self) -> Iterator[list[Place]]:
        """Yield the places of each result in order; those that have the same names are together."""
        self._close_piece()
        size, unpack = _PLACE.size, _PLACE.unpack_from
        last = b""
        group: list[Place] = []
        for entry in heapq.merge(*map(_entries, self._pieces)):
            at = len(entry) - size
            key = entry[:at]
            if key == last:
                group.append(unpack(entry, at))
                continue
            if group:
                yield group
            last, group = key, [unpack(entry, at)]
        if group:
            yield group


def _ordered(name: str) -> bytes:
    """Return bytes that sort as the name does, whatever comes behind them."""
    data = name.encode("utf-8", "surrogatepass")
    return (data.replace(b"\0", b"\0\xff") if b"\0" in data else data) + b"\0\0"


def _entries(piece: bytes) -> Iterator[bytes]:
    at, end, width, unpack = 0, len(piece), _LENGTH.size, _LENGTH.unpack_from
    while at < end:
        start = at + width
        at = start + unpack(piece, at)[0]
        yield piece[start:at]
