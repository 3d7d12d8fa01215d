"""Scores -> means and differences as a person would work them out from the decimal text."""

import math
from array import array
from collections.abc import Sequence
from decimal import Decimal

SCALE = 1e12
"""A number with up to twelve decimals is a whole number of these; divided by it, that is the float nearest to it."""
_ROUNDER = 1.5 * 2**52
"""Added to a float below 2**51 and taken away again, it leaves the nearest whole number."""
_NOISE = 2.3e-16
"""How far the float of a difference or a mean can be from the true one, for numbers between -1 and 1."""


def difference(before: float, after: float) -> float:
    """Return `after - before`, so that 0.9 - 0.8 is 0.1."""
    return differences([before], [after])[0]


def differences(before: Sequence[float], after: Sequence[float]) -> "array[float]":
    """Return the difference of each pair of scores, so that 0.9 - 0.8 is 0.1."""
    low, high, scale, rounder = -_NOISE, _NOISE, SCALE, _ROUNDER
    return array(
        "d",
        [
            near
            if low <= (near := ((rough := new - old) * scale + rounder - rounder) / scale) - rough <= high
            else float(Decimal(repr(new)) - Decimal(repr(old)))
            for old, new in zip(before, after, strict=True)
        ],
    )


def mean(values: Sequence[float]) -> float:
    """Return the mean, so that of 0.1, 0.2 and -0.3 it is 0; a million values do not drift."""
    return round_mean(math.fsum(values) / len(values))


def round_mean(rough: float) -> float:
    """Return the number with up to twelve decimals that a mean is, but for rounding; else the mean itself."""
    near = round(rough * SCALE) / SCALE
    return near if abs(near - rough) <= _NOISE else rough
