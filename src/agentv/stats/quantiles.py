"""Quantiles of many numbers. A sorted list of a million numbers would take 32 MB."""

import math
from array import array
from collections.abc import Collection, Sequence
from heapq import merge

CHUNK = 65_536
"""How many numbers are sorted at a time."""


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return quantiles of at least one number, interpolated between the nearest two."""
    last = len(values) - 1
    positions = [last * share for share in shares]
    ranks: set[int] = set()
    for position in positions:
        ranks.update((math.floor(position), math.ceil(position)))
    found = _values_at(values, ranks)
    results = []
    for position in positions:
        below = math.floor(position)
        low = found[below]
        high = found[math.ceil(position)]
        results.append(low + (high - low) * (position - below))
    return results


def _values_at(values: Sequence[float], ranks: Collection[int]) -> dict[int, float]:
    """Return `sorted(values)[rank]` for each of the ranks. The numbers are sorted in chunks, which are then merged."""
    chunks = []
    for start in range(0, len(values), CHUNK):
        ordered = sorted(values[start : start + CHUNK])
        chunks.append(array("d", ordered))
    found = {}
    for rank, value in enumerate(merge(*chunks)):
        if rank in ranks:
            found[rank] = value
        if len(found) == len(ranks):
            break
    return found
