"""Where the results of several files are, in order: a few bytes for each result, besides its own names.

Results come in any order, and there may be millions. So many of them at a time are sorted and packed into chunks. When
they are asked for, chunks are opened in the order of their first entries, some at a time: what sorts before all those
that are still closed is in its place.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

PIECE, CHUNK = 1 << 15, 1 << 10
"""How many entries are sorted at a time, and how many of them are packed together."""
OPENED = PIECE // CHUNK
"""How many chunks are opened at a time."""
_PLACE = struct.Struct(">HQI")
_END = struct.Struct(">IHQI")
"""What comes behind the names: the trial and the place."""
_unpack_chunk = msgspec.msgpack.Decoder(list[bytes]).decode

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
        self._chunks: list[tuple[bytes, bytes]] = []
        """The names in the first entry of each, and the entries."""
        self._new: list[bytes] = []

    def add(self, file: int, places: Iterable[tuple[HasPlace, int, int]]) -> None:
        """Add results of a file, each with where it begins there and how many bytes it has."""
        add, pack = self._new.append, _END.pack
        for view, offset, size in places:
            names = f"{view.dataset}\0\0{view.eval_id}\0\0{view.target}\0\0"
            if names.count("\0") > 6:  # a name has one
                names = "".join(map(_escaped, (view.dataset, view.eval_id, view.target)))
            add(names.encode("utf-8", "surrogatepass") + pack(view.trial or 1, file, offset, size))
        if len(self._new) >= PIECE:
            self._pack()

    def _pack(self) -> None:
        self._new.sort()
        for start in range(0, len(self._new), CHUNK):
            entries = self._new[start : start + CHUNK]
            self._chunks.append((_names(entries[0]), msgspec.msgpack.encode(entries)))
        self._new.clear()

    def groups(self) -> Iterator[list[Place]]:
        """Yield the places of each result in order; those that have the same names are together."""
        unpack, width = _PLACE.unpack_from, _PLACE.size
        last: bytes | None = None
        group: list[Place] = []
        for entries in self._in_order():
            for entry in entries:
                names = entry[:-width]
                if names != last:
                    if group:
                        yield group
                    last, group = names, []
                group.append(unpack(entry, -width))
        if group:
            yield group

    def _in_order(self) -> Iterator[list[bytes]]:
        """Yield all entries in order, many at a time."""
        self._pack()
        self._chunks.sort()
        opened: list[bytes] = []
        for start in range(0, len(self._chunks), OPENED):
            behind = start + OPENED
            for _, chunk in self._chunks[start:behind]:
                opened += _unpack_chunk(chunk)
            opened.sort()
            is_last = behind >= len(self._chunks)
            end = len(opened) if is_last else bisect_left(opened, self._chunks[behind][0])
            yield opened[:end]
            del opened[:end]


def _names(entry: bytes) -> bytes:
    return entry[: -_PLACE.size]


def _escaped(name: str) -> str:
    """Return a text that sorts as the name does, whatever comes behind it."""
    return name.replace("\0", "\0\1") + "\0\0"
