"""Very many numbers -> those at some ranks, without sorting all of them."""

import math
from collections import Counter
from collections.abc import Sequence

BUCKETS = 1023
TINY = 1e-300


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return quantiles of values from 0 on; between two ranks they are interpolated."""
    places = [(len(values) - 1) * share for share in shares]
    found = ranked(values, {rank for place in places for rank in (math.floor(place), math.ceil(place))})
    lows, highs = ([found[side(place)] for place in places] for side in (math.floor, math.ceil))
    return [
        low + (high - low) * (place - math.floor(place)) for low, high, place in zip(lows, highs, places, strict=True)
    ]


def ranked(values: Sequence[float], ranks: set[int]) -> dict[int, float]:
    """Return the values at these ranks. Only the distinct values of a few narrow buckets are sorted."""
    largest = max(values)
    scale = BUCKETS / largest if largest > TINY else 1.0  # which must not overflow
    sizes = Counter(int(value * scale) for value in values)
    starts: dict[int, int] = {}
    before = 0
    for number in sorted(sizes):
        if any(before <= rank < before + sizes[number] for rank in ranks):
            starts[number] = before
        before += sizes[number]
    inside: dict[int, Counter[float]] = {number: Counter() for number in starts}
    for value in values:
        if (number := int(value * scale)) in inside:
            inside[number][value] += 1
    return {rank: value for number, start in starts.items() for rank, value in _in_bucket(inside[number], start, ranks)}


def _in_bucket(counts: Counter[float], start: int, ranks: set[int]) -> list[tuple[int, float]]:
    """Return the ranks that fall into a bucket, with their values; `start` is the rank of its least value."""
    found = []
    for value in sorted(counts):
        found += [(rank, value) for rank in ranks if start <= rank < start + counts[value]]
        start += counts[value]
    return found
