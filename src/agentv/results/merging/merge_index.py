"""An index of the positions of results in several files, in sort order. It takes a few bytes per result plus its names.

Results arrive in any order, and there may be millions of them. Entries are sorted in batches and packed into chunks.
To iterate, chunks are unpacked some at a time, in the order of their first entries: every entry that sorts before the
first entry of the next packed chunk is then in its final place.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from agentv.results.views import ResultRow

BATCH = 1 << 15
"""The number of entries that are sorted at a time."""
CHUNK = 1 << 10
"""The number of entries that are packed together."""
OPENED = BATCH // CHUNK
"""The number of chunks that are unpacked at a time."""
_PLACE = struct.Struct(">HQI")
"""File, offset and size."""
_END = struct.Struct(">IHQI")
"""Trial, file, offset and size, which follow the names in an entry."""
_unpack_chunk = msgspec.msgpack.Decoder(list[bytes]).decode

Place = tuple[int, int, int]
"""The position of a result: the number of its file, its offset and its size."""


class MergeIndex:
    """The positions of results, sorted by dataset, id, target and trial."""

    def __init__(self) -> None:
        self._chunks: list[tuple[bytes, bytes]] = []
        """Packed chunks, each with the names of its first entry."""
        self._new: list[bytes] = []

    def add(self, file: int, places: Iterable[tuple[ResultRow, int, int]]) -> None:
        """Add results of a file, each with its offset and size."""
        # this loop runs once per result of a merge
        append = self._new.append
        pack = _END.pack
        for view, offset, size in places:
            names = f"{view.dataset}\0\0{view.eval_id}\0\0{view.target}\0\0"
            if names.count("\0") > 6:  # one of the names contains a NUL itself
                names = _escaped_names(view)
            encoded = names.encode("utf-8", "surrogatepass")
            end = pack(view.trial or 1, file, offset, size)
            append(encoded + end)
        if len(self._new) >= BATCH:
            self._pack()

    def _pack(self) -> None:
        self._new.sort()
        for start in range(0, len(self._new), CHUNK):
            entries = self._new[start : start + CHUNK]
            first_names = entries[0][: -_PLACE.size]
            packed = msgspec.msgpack.encode(entries)
            self._chunks.append((first_names, packed))
        self._new.clear()

    def groups(self) -> Iterator[list[Place]]:
        """Yield the positions of the results in order, grouped by equal names and trial."""
        unpack = _PLACE.unpack_from
        width = _PLACE.size
        last: bytes | None = None
        group: list[Place] = []
        for entries in self._in_order():
            for entry in entries:
                names = entry[:-width]
                if names != last:
                    if group:
                        yield group
                    last = names
                    group = []
                place = unpack(entry, -width)
                group.append(place)
        if group:
            yield group

    def _in_order(self) -> Iterator[list[bytes]]:
        """Yield all entries in order, in lists."""
        self._pack()
        self._chunks.sort()
        opened: list[bytes] = []
        for start in range(0, len(self._chunks), OPENED):
            next_start = start + OPENED
            for _, chunk in self._chunks[start:next_start]:
                opened += _unpack_chunk(chunk)
            opened.sort()
            end = len(opened)
            if next_start < len(self._chunks):
                first_packed, _ = self._chunks[next_start]
                end = bisect_left(opened, first_packed)
            yield opened[:end]
            del opened[:end]


def _escaped_names(view: ResultRow) -> str:
    """Return the names of a result, joined, in the order of their sort keys."""
    dataset = _escaped(view.dataset)
    eval_id = _escaped(view.eval_id)
    target = _escaped(view.target)
    return dataset + eval_id + target


def _escaped(name: str) -> str:
    """Return a text that sorts like the name, regardless of what is appended to it."""
    escaped = name.replace("\0", "\0\1")
    return escaped + "\0\0"
