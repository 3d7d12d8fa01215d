"""Quantiles of many numbers."""

import random

import pytest

from agentv.stats.quantiles import CHUNK, quantiles


def test_quantiles_are_interpolated() -> None:
    assert quantiles([4.0, 1.0, 2.0], (0.0, 0.25, 0.5, 1.0)) == [1.0, 1.5, 2.0, 4.0]
    assert quantiles([7.0], (0.5, 0.95)) == [7.0, 7.0]
    assert quantiles([0.0, 5e-324], (0.0, 1.0)) == [0.0, 5e-324]


@pytest.mark.parametrize("count", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_quantiles_of_several_chunks_are_those_of_the_sorted_numbers(count: int) -> None:
    dice = random.Random(count)
    values = [round(dice.lognormvariate(0, 2), 3) for _ in range(count)]
    ordered = sorted(values)
    for share in (0.0, 0.05, 0.5, 0.95, 1.0):
        position = (count - 1) * share
        low, high = ordered[int(position)], ordered[min(count - 1, int(position) + 1)]
        (found,) = quantiles(values, (share,))
        assert low <= found <= high
        assert found == pytest.approx(low + (high - low) * (position % 1))
