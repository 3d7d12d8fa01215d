"""The difference of two runs by labels: formulas by hand, and the coverage of the intervals."""

import math

import pytest
from scipy import stats

from agentv.stats.agreement import Figure
from agentv.stats.correction import PairedCases, labelled_difference, powered_difference
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
    "told of clusters, few gained": PairSetting(0, 0.08, 0.9, GOOD, 500, 100, cluster=5, told=True),
    "told of clusters": PairSetting(0.05, 0.2, 0.5, GOOD, 500, 100, cluster=5, told=True),
    "told of clusters, half the same": PairSetting(0.1, 0.1, 0.6, POOR, 500, 150, cluster=5, told=True, same=0.5),
}
LEAST = 0.94
"""What coverage must reach."""


FEW = "no case has randomly sampled labels in both runs for answers that differ"


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.slow
def test_the_intervals_cover_the_true_difference(name: str) -> None:
    found = pair_coverage(SETTINGS[name])
    assert found.corrected >= LEAST
    assert found.alone >= LEAST


def test_a_good_judge_narrows_the_interval_and_a_useless_one_hardly_widens_it() -> None:
    good, useless = (pair_coverage(PairSetting(0.1, 0.2, 0.5, j, 1000, 100), 200) for j in (EXCELLENT, USELESS))
    assert good.width_corrected < 0.65 * good.width_alone
    assert useless.width_corrected < 1.02 * useless.width_alone


def test_the_difference_by_hand() -> None:
    """Of 250 cases 200 have different answers; 40 of these have labels: 10 gained, 4 lost, the judge sees 9 and 2.

    It also sees 1 of 26 that did not change as lost, and of the other 160 it sees 30 gained and 20 lost.
    """
    kinds = {(1.0, 1.0): 9, (1.0, 0.0): 1, (-1.0, -1.0): 2, (-1.0, 0.0): 2, (0.0, -1.0): 1, (0.0, 0.0): 25}
    groups = {PairedCases(1, 1, 1, d, f, 0): times for (d, f), times in kinds.items()}
    groups |= {PairedCases(1, 1, 0, 0, 0, f): times for f, times in {1.0: 30, -1.0: 20, 0.0: 110}.items()}
    groups[PairedCases(1, 0, 0, 0, 0, 0)] = 50
    pairs = [pair for pair, times in kinds.items() for _ in range(times)]
    known = [*pairs, (1, 1), (1, -1), (-1, 1), (-1, -1)]
    d, f = [one for one, _ in known], [other for _, other in known]
    mean_d, mean_f = sum(d) / 44, sum(f) / 44
    covariance = sum((a - mean_d) * (b - mean_f) for a, b in known) / 43 / 40
    of_label, of_judge = (sum((a - m) ** 2 for a in x) / 43 / 40 for x, m in ((d, mean_d), (f, mean_f)))
    rest = 10 / 160
    of_rest = (50 - 160 * rest**2) / 159 / 160
    weight = covariance / (of_judge + of_rest)
    share, of_share, t = 0.8, 0.8 * 0.2 / 249, stats.t.ppf(0.975, 43)

    alone = 6 / 40
    half = t * math.sqrt(share**2 * of_label + alone**2 * of_share)
    found = labelled_difference(groups)
    assert [found.value, found.ci_lower, found.ci_upper] == pytest.approx(
        [share * alone, share * alone - half, share * alone + half]
    )
    assert found.method == "paired, with four pseudo-labels"

    value = alone + weight * (rest - 6 / 40)  # the judge sees 9 gained and 3 lost of 40
    variance = of_label - 2 * weight * covariance + weight**2 * (of_judge + of_rest)
    half = t * math.sqrt(share**2 * variance + value**2 * of_share)
    found = powered_difference(groups)
    assert 0.5 < weight < 1
    assert [found.value, found.ci_lower, found.ci_upper] == pytest.approx(
        [share * value, share * value - half, share * value + half]
    )
    assert found.method == "prediction-powered on paired differences (PPI++ with four pseudo-labels)"


def test_identical_cases_of_a_cluster_count_as_one() -> None:
    """Five identical trials contain as much information as one."""
    once = {PairedCases(1, 1, 1, d, d, 0): times for d, times in {1.0: 12, -1.0: 4, 0.0: 24}.items()}
    once |= {PairedCases(1, 1, 0, 0, 0, f): times for f, times in {1.0: 30, -1.0: 20, 0.0: 110}.items()}
    many = {
        PairedCases(5 * g.cases, 5 * g.changed, 5 * g.labelled, 5 * g.label, 5 * g.judge, 5 * g.rest): times
        for g, times in once.items()
    }
    for method in (labelled_difference, powered_difference):
        one, five = method(once), method(many)
        assert one.value == pytest.approx(five.value)
        assert _width(five) == pytest.approx(_width(one))


def test_labels_of_a_part_of_a_cluster_do_not_narrow_the_interval() -> None:
    """The judge is always right and both answers of a cluster agree: one has a label, the other only a verdict."""
    kinds = {1.0: 12, -1.0: 4, 0.0: 24}
    together = {PairedCases(2, 2, 1, d, d, d): times for d, times in kinds.items()}
    apart = {PairedCases(1, 1, 1, d, d, 0): times for d, times in kinds.items()}
    apart |= {PairedCases(1, 1, 0, 0, 0, d): times for d, times in kinds.items()}
    assert _width(powered_difference(together)) > 0.95 * _width(labelled_difference(together))
    assert _width(powered_difference(apart)) < 0.85 * _width(labelled_difference(apart))


@pytest.mark.parametrize("difference", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("labels", [1, 5, 50])
def test_identical_differences_still_have_an_interval(difference: float, labels: int) -> None:
    groups = {PairedCases(1, 1, 1, difference, difference, 0): labels, PairedCases(1, 1, 0, 0, 0, difference): 100}
    for found in (labelled_difference(groups), powered_difference(groups)):
        assert found.value is not None and found.ci_lower is not None and found.ci_upper is not None
        assert -1 <= found.ci_lower <= found.value <= found.ci_upper <= 1
        assert found.ci_upper - found.ci_lower > 0.04


def test_a_missing_difference_has_a_reason() -> None:
    unlabelled = {PairedCases(1, 1, 0, 0, 0, 1.0): 9, PairedCases(1, 0, 0, 0, 0, 0): 3}
    assert labelled_difference(unlabelled) == powered_difference(unlabelled) == Figure(note=FEW)
    all_labelled = {PairedCases(1, 1, 1, 1.0, 1.0, 0): 9, PairedCases(1, 0, 0, 0, 0, 0): 3}
    note = "every case that can differ has labels: the difference is that of the labels"
    assert powered_difference(all_labelled) == Figure(note=note)
    assert labelled_difference(all_labelled).value == 0.75


def _width(found: Figure) -> float:
    assert found.ci_lower is not None and found.ci_upper is not None
    return found.ci_upper - found.ci_lower
