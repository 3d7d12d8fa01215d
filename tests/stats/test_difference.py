"""The difference of two runs by labels: formulas by hand, and whether the intervals hold what they promise."""

import math

import pytest
from scipy import stats

from agentv.stats.agreement import Figure
from agentv.stats.correction import NOT_IN_BOTH, labelled_difference, powered_difference
from tests.kits.judged_pairs import PairSetting, pair_coverage

USELESS, POOR, GOOD, EXCELLENT, BLIND = (0.5, 0.5), (0.7, 0.7), (0.9, 0.8), (0.98, 0.95), (1.0, 0.0)
LENIENT = (0.98, 0.4)
SETTINGS = {
    "no difference at all": PairSetting(0, 0, 0.7, GOOD, 200, 50),
    "no difference, few flips": PairSetting(0.01, 0.01, 0.9, EXCELLENT, 200, 50),
    "no difference, many flips": PairSetting(0.1, 0.1, 0.6, POOR, 1000, 200, shared=False),
    "no difference, a judge that likes the second run": PairSetting(
        0.1, 0.1, 0.6, GOOD, 500, 100, judge_of_second=LENIENT
    ),
    "nearly all pass, a few gained": PairSetting(0, 0.02, 0.97, EXCELLENT, 200, 50),
    "nearly all pass, useless judge": PairSetting(0, 0.03, 0.95, USELESS, 1000, 200),
    "nearly all pass, a few lost": PairSetting(0.03, 0, 0.96, POOR, 1000, 200, cluster=10),
    "nearly all pass, judge passes all": PairSetting(0.005, 0.05, 0.94, BLIND, 200, 50),
    "gains only": PairSetting(0, 0.12, 0.8, USELESS, 1000, 100),
    "gains only, errors in clusters": PairSetting(0, 0.08, 0.83, POOR, 1000, 100, cluster=10),
    "half as many lost as gained": PairSetting(0.1, 0.2, 0.5, GOOD, 500, 100, shared=False),
    "the same, excellent judge": PairSetting(0.1, 0.2, 0.5, EXCELLENT, 500, 100),
    "the same, errors in clusters": PairSetting(0.1, 0.2, 0.5, GOOD, 500, 100, cluster=5),
    "a judge that likes the second run": PairSetting(0.02, 0.1, 0.7, GOOD, 500, 100, judge_of_second=LENIENT),
    "very different runs": PairSetting(0, 0.5, 0.3, POOR, 1000, 200, cluster=10),
    "twenty labels": PairSetting(0.02, 0.2, 0.6, GOOD, 100, 20),
    "six labels": PairSetting(0, 0.6, 0.3, POOR, 100, 6),
    "half of the answers are the same": PairSetting(0, 0.1, 0.8, POOR, 1000, 200, cluster=10, same=0.5),
    "most answers are the same": PairSetting(0.05, 0.3, 0.4, GOOD, 500, 200, same=0.8),
    "told of clusters": PairSetting(0.05, 0.2, 0.5, GOOD, 500, 100, cluster=5, told=True),
    "told of clusters, half the same": PairSetting(0.1, 0.1, 0.6, POOR, 500, 150, cluster=5, told=True, same=0.5),
}
LEAST = 0.94
"""What coverage must reach."""


@pytest.mark.parametrize("name", SETTINGS)
def test_the_intervals_cover_the_true_difference(name: str) -> None:
    found = pair_coverage(SETTINGS[name])
    print(name, found)
    assert found.corrected >= LEAST
    assert found.alone >= LEAST
