"""Compute quantiles of very many numbers without sorting all of them."""

import math
from collections import Counter
from collections.abc import Sequence

BUCKETS = 1023
TINY = 1e-300


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Return quantiles of values that are 0 or more, interpolated between ranks."""
    last = len(values) - 1
    positions = [last * share for share in shares]
    ranks = set()
    for position in positions:
        ranks.add(math.floor(position))
        ranks.add(math.ceil(position))
    value_at = ranked(values, ranks)
    interpolated = []
    for position in positions:
        floor = math.floor(position)
        low = value_at[floor]
        high = value_at[math.ceil(position)]
        fraction = position - floor
        interpolated.append(low + (high - low) * fraction)
    return interpolated


def ranked(values: Sequence[float], ranks: set[int]) -> dict[int, float]:
    """Return the values at these ranks. Only the buckets that contain a rank are sorted."""
    largest = max(values)
    scale = 1.0
    if largest > TINY:  # dividing by a smaller number could overflow
        scale = BUCKETS / largest
    sizes = Counter(int(value * scale) for value in values)
    starts: dict[int, int] = {}
    before = 0
    for bucket in sorted(sizes):
        end = before + sizes[bucket]
        if any(before <= rank < end for rank in ranks):
            starts[bucket] = before
        before = end
    counts = {bucket: Counter[float]() for bucket in starts}
    for value in values:
        bucket = int(value * scale)
        if bucket in counts:
            counts[bucket][value] += 1
    value_at: dict[int, float] = {}
    for bucket, start in starts.items():
        value_at.update(_rank_bucket(counts[bucket], start, ranks))
    return value_at


def _rank_bucket(
    counts: Counter[float],
    start: int,
    ranks: set[int],
) -> dict[int, float]:
    """Return the values at the ranks inside one bucket; `start` is the rank of its smallest value."""
    value_at = {}
    for value in sorted(counts):
        end = start + counts[value]
        for rank in ranks:
            if start <= rank < end:
                value_at[rank] = value
        start = end
    return value_at
