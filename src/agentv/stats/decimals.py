"""Scores -> means and differences as a person would work them out from the decimal text."""

import math
from collections.abc import Sequence
from decimal import Decimal

SCALE = 10**12
"""What has up to twelve decimals is a whole number of these, divided by which it is the float that is nearest to it."""
_NOISE = 2.3e-16
"""How far the float of a difference or a mean can be from the true one, for numbers between -1 and 1."""


def difference(before: float, after: float) -> float:
    """`after - before`, so that 0.9 - 0.8 is 0.1."""
    rough = after - before
    near = round(rough * SCALE) / SCALE
    if -_NOISE <= near - rough <= _NOISE:
        return near
    return float(Decimal(repr(after)) - Decimal(repr(before)))


def mean(values: Sequence[float]) -> float:
    """The mean, so that of 0.1, 0.2 and -0.3 it is 0; a million of them do not drift."""
    rough = math.fsum(values) / len(values)
    near = round(rough * SCALE) / SCALE
    return near if abs(near - rough) <= _NOISE else rough
