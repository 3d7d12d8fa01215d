"""Whether an estimate reaches a threshold, and how many cases would decide it."""

import pytest

from agentv.stats.decisions import decide
from agentv.stats.pass_rates import wilson


@pytest.mark.parametrize(
    ("estimate", "interval", "bar", "verdict"),
    [
        (0.9, (0.85, 0.95), 0.8, "reached"),
        (0.9, (0.8, 0.95), 0.8, "reached"),  # the bar itself is enough
        (0.6, (0.5, 0.79), 0.8, "missed"),
        (0.85, (0.79, 0.9), 0.8, "undecided"),
        (0.75, (0.7, 0.8), 0.8, "undecided"),
    ],
)
def test_the_interval_decides(estimate: float, interval: tuple[float, float], bar: float, verdict: str) -> None:
    decision = decide(estimate, interval, 50, bar)
    assert decision.verdict == verdict
    assert decision.interval == interval
    assert (decision.needed is None) == (verdict != "undecided")


@pytest.mark.parametrize("interval", [None, (1.0, 1.0)])
def test_equal_cases_decide_only_a_share(interval: tuple[float, float] | None) -> None:
    few = decide(1.0, interval, 5, 0.8)
    assert few.verdict == "undecided"
    assert few.interval == wilson(5, 5)
    assert decide(1.0, interval, 100, 0.8).verdict == "reached"


@pytest.mark.parametrize(("estimate", "bar"), [(1.0, 0.8), (0.9, 0.8), (0.7, 0.8), (0.0, 0.1)])
def test_the_needed_number_of_cases_is_the_first_that_decides_a_share(estimate: float, bar: float) -> None:
    needed = decide(estimate, None, 5, bar).needed
    assert needed is not None
    assert decide(estimate, None, needed, bar).verdict != "undecided"
    assert decide(estimate, None, needed - 1, bar).verdict == "undecided"


def test_the_needed_number_of_cases_for_a_mean_grows_with_the_square_of_its_distance() -> None:
    near = decide(0.81, (0.71, 0.91), 40, 0.8)
    far = decide(0.85, (0.75, 0.95), 40, 0.8)
    assert near.needed == pytest.approx(4000, abs=1)
    assert far.needed == pytest.approx(160, abs=1)
    assert decide(0.7999, (0.7, 0.8), 40, 0.8).needed == 41  # one more, at least


def test_an_estimate_equal_to_the_threshold_needs_an_unknown_number_of_cases() -> None:
    assert decide(0.8, (0.7, 0.9), 40, 0.8).needed is None
