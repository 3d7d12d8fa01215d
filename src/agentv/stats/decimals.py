"""Compute means and differences of scores as if done by hand with their decimal notation."""

import math
from array import array
from collections.abc import Sequence
from decimal import Decimal

SCALE = 1e12
"""A number with up to twelve decimals, times this, is an integer; dividing it again gives the nearest float."""
_ROUNDER = 1.5 * 2**52
"""Adding and subtracting this rounds a float below 2**51 to the nearest integer."""
_NOISE = 2.3e-16
"""Maximum rounding error of a difference or a mean of numbers between -1 and 1."""


def difference(before: float, after: float) -> float:
    """Return `after - before` without binary rounding noise: 0.9 - 0.8 is 0.1."""
    return differences([before], [after])[0]


def differences(
    before: Sequence[float],
    after: Sequence[float],
) -> "array[float]":
    """Return the difference of each pair of scores without binary rounding noise: 0.9 - 0.8 is 0.1."""
    # Local names and no helper: this loop runs once per case of a comparison.
    scale = SCALE
    rounder = _ROUNDER
    low = -_NOISE
    high = _NOISE
    exact = []
    for old, new in zip(before, after, strict=True):
        rough = new - old
        near = (rough * scale + rounder - rounder) / scale
        if low <= near - rough <= high:
            exact.append(near)
        else:  # more than twelve decimals
            decimal = Decimal(repr(new)) - Decimal(repr(old))
            exact.append(float(decimal))
    return array("d", exact)


def mean(values: Sequence[float]) -> float:
    """Return the mean without binary rounding noise: that of 0.1, 0.2 and -0.3 is 0. It does not drift."""
    return round_mean(math.fsum(values) / len(values))


def round_mean(rough: float) -> float:
    """Return the number with up to twelve decimals that differs from a mean only by rounding, or else the mean."""
    near = round(rough * SCALE) / SCALE
    if abs(near - rough) <= _NOISE:
        return near
    return rough
