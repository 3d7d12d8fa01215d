"""Very many numbers -> those at some ranks, without sorting all of them."""

import math
from collections import Counter
from collections.abc import Sequence

BUCKETS = 1023


def ranked(values: Sequence[float], rank: int) -> float:
    """Return the value at this rank, of values from 0 on. Only the distinct ones of a narrow bucket are sorted."""
    scale = BUCKETS / (max(values) or 1.0)
    buckets = Counter(int(value * scale) for value in values)
    for number in sorted(buckets):
        if rank < buckets[number]:
            break
        rank -= buckets[number]
    inside = Counter(value for value in values if int(value * scale) == number)
    for value in sorted(inside):
        if rank < inside[value]:
            break
        rank -= inside[value]
    return value


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of values from 0 on; between two ranks it is interpolated."""
    place = (len(values) - 1) * share
    low = ranked(values, math.floor(place))
    if place == math.floor(place):
        return low
    return low + (ranked(values, math.ceil(place)) - low) * (place - math.floor(place))
