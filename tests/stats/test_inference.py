"""Statistical formulas, checked against published examples, scipy and simulations."""

import math
import random
from collections.abc import Callable

import pytest
from scipy import stats

from agentv.stats.decimals import difference, mean
from agentv.stats.distributions import fair_coin_cdf, normal_two_sided, t_quantile
from agentv.stats.inference import (
    POWER_Z,
    ClusterSums,
    bootstrap_mean,
    cluster_sums,
    estimate_mean,
    holm,
    mcnemar,
    pass_difference,
    sign_flip,
)

MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
"""Darwin's plants, crossed less self-fertilised, in eighths of an inch; Fisher, The Design of Experiments, 1935."""
RUNS = 2000


def test_darwins_maize_by_students_t() -> None:
    found = estimate_mean(ClusterSums(MAIZE))
    assert [found.mean, found.df] == pytest.approx([20.933, 14], abs=1e-3)
    assert found.error is not None
    assert found.mean / found.error == pytest.approx(2.148, abs=1e-3)
    assert [found.low, found.high] == pytest.approx([0.03, 41.84], abs=0.01)


def test_darwins_maize_by_flipping_signs() -> None:
    """Fisher counted 1,726 of the 32,768 ways to choose signs."""
    found = sign_flip(ClusterSums(MAIZE))
    assert (found.method, found.resamples) == ("Monte Carlo", 10_000)
    assert found.p_value == pytest.approx(1726 / 32768, abs=0.006)


def test_a_sign_flip_test_of_few_pairs_goes_through_all_of_them() -> None:
    differences = [0.3, -0.1, 0.2, 0.2, 0.0, 0.1]
    total = sum(differences)
    flipped = [
        sum(value if number >> bit & 1 else -value for bit, value in enumerate(differences)) for number in range(64)
    ]
    count = sum(abs(value) >= total - 1e-9 for value in flipped)
    found = sign_flip(ClusterSums(differences))
    assert (found.p_value, found.method) == (count / 64, "exact")
    assert sign_flip(ClusterSums([1.0] * 10)).p_value == 2 / 2**10


def test_the_sign_flip_test_agrees_with_scipy() -> None:
    pick = random.Random(1)
    for count, tolerance in ((13, 1e-9), (60, 0.02), (2500, 0.02)):
        values = [pick.gauss(0.06, 0.4) for _ in range(count)]
        result = stats.permutation_test(
            (values,),
            lambda data, axis: data.sum(axis=axis),
            permutation_type="samples",
            n_resamples=8192,
            batch=512,
            rng=5,
        )
        assert sign_flip(ClusterSums(values)).p_value == pytest.approx(result.pvalue, abs=tolerance)


def test_unchanged_scores_are_not_evidence() -> None:
    assert sign_flip(ClusterSums([0.0] * 50)).p_value == 1
    assert sign_flip(ClusterSums([])).p_value == 1
    assert mcnemar(0, 0) == 1


@pytest.mark.parametrize(
    ("lost", "gained", "p_value"), [(5, 0, 0.0625), (6, 0, 0.03125), (0, 6, 0.03125), (5, 11, 0.21)]
)
def test_mcnemar_by_the_book(lost: int, gained: int, p_value: float) -> None:
    assert mcnemar(lost, gained) == pytest.approx(p_value, abs=0.0005)


@pytest.mark.parametrize(("lost", "gained"), [(1, 2), (86, 150), (400, 700), (5_000, 5_200), (480_000, 481_000)])
def test_mcnemar_agrees_with_the_binomial_test_of_scipy(lost: int, gained: int) -> None:
    assert mcnemar(lost, gained) == pytest.approx(stats.binomtest(lost, lost + gained).pvalue, rel=1e-6)


def test_distributions_agree_with_scipy() -> None:
    for df in (1, 2, 7, 30, 1000, 999_999):
        assert t_quantile(0.975, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-7)
    for value in (0.0, 0.5, 1.96, 5.0):
        assert normal_two_sided(value) == pytest.approx(2 * stats.norm.sf(value), rel=1e-9)
    for heads, coins in ((0, 1), (3, 10), (499, 1000), (500, 1001), (10, 5000)):
        assert fair_coin_cdf(heads, coins) == pytest.approx(stats.binom.cdf(heads, coins, 0.5), rel=1e-9)
    assert pytest.approx(stats.norm.ppf(0.975) + stats.norm.ppf(0.8), rel=1e-12) == POWER_Z


def test_the_interval_agrees_with_scipys_paired_t_test() -> None:
    pick = random.Random(2)
    before = [pick.random() for _ in range(40)]
    after = [min(1.0, value + pick.gauss(0.05, 0.2)) for value in before]
    theirs = stats.ttest_rel(after, before).confidence_interval(0.95)
    ours = estimate_mean(ClusterSums([new - old for new, old in zip(after, before, strict=True)]))
    assert [ours.low, ours.high] == pytest.approx([theirs.low, theirs.high])


def test_clusters_by_the_formula() -> None:
    values = [0.1, 0.4, -0.2, 0.3, 0.0, 0.2]
    keys = [7, 7, 9, 9, 9, 0]
    middle = sum(values) / 6
    groups = [[0.1, 0.4], [-0.2, 0.3, 0.0], [0.2]]
    squares = sum(sum(value - middle for value in group) ** 2 for group in groups)
    found = estimate_mean(cluster_sums(values, keys))
    assert found.error == pytest.approx(math.sqrt(3 / 2 * squares) / 6)
    assert [found.mean, found.df] == pytest.approx([middle, 2])


def test_clusters_of_one_case_change_nothing() -> None:
    values = [0.1, 0.4, -0.2, 0.3]
    assert estimate_mean(cluster_sums(values, [1, 2, 3, 4])) == pytest.approx(estimate_mean(ClusterSums(values)))
    assert estimate_mean(cluster_sums(values, [0, 0, 0, 0])) == pytest.approx(estimate_mean(ClusterSums(values)))
    assert estimate_mean(cluster_sums(values, [5, 5, 5, 5])).low is None


def test_a_single_pair_or_no_variance_does_not_divide_by_zero() -> None:
    assert estimate_mean(ClusterSums([0.3])) == (0.3, None, 0, None, None)
    same = estimate_mean(ClusterSums([0.1] * 5))
    assert (same.error, same.low, same.high) == (0.0, same.mean, same.mean)


def test_the_bootstrap_agrees_with_scipy() -> None:
    pick = random.Random(3)
    values = [pick.betavariate(1, 3) - 0.2 for _ in range(60)]
    theirs = stats.bootstrap((values,), lambda data, axis: data.mean(axis=axis), method="percentile", rng=4)
    low, high = bootstrap_mean(ClusterSums(values))
    assert low == pytest.approx(theirs.confidence_interval.low, abs=0.005)
    assert high == pytest.approx(theirs.confidence_interval.high, abs=0.005)
    assert bootstrap_mean(ClusterSums(values, [1] * 60)) == (low, high)


def test_holm_by_the_book() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_pass_rate_difference_by_the_formula() -> None:
    low, high = pass_difference(5, 11, 118)
    half = 1.96 * math.sqrt(17 - 36 / 120) / 120
    assert [low, high] == pytest.approx([0.05 - half, 0.05 + half], abs=1e-5)
    assert pass_difference(0, 0, 1)[0] >= -1


def test_the_95_percent_interval_covers_the_truth_in_93_to_97_percent() -> None:
    """Graded scores of five checks each, on cases of all difficulties; the truth is known by integration."""
    covered = simulated(lambda pick: graded(pick, 30, 0.8), 1 / 1.8 - 1 / 2)
    assert 0.93 <= covered / RUNS <= 0.97


def test_the_clustered_interval_covers_the_truth_in_93_to_97_percent() -> None:
    def conversations(pick: random.Random) -> ClusterSums:
        values, keys = [], []
        for key in range(1, 31):
            shared = pick.gauss(0, 0.2)
            for _ in range(pick.randint(1, 6)):
                values.append(0.03 + shared + pick.gauss(0, 0.1))
                keys.append(key)
        return cluster_sums(values, keys)

    covered = simulated(conversations, 0.03)
    assert 0.93 <= covered / RUNS <= 0.97


def test_the_sign_flip_test_rejects_a_true_null_in_at_most_6_percent() -> None:
    pick = random.Random(7)
    rejected = sum(sign_flip(graded(pick, 12, 1.0)).p_value <= 0.05 for _ in range(RUNS))
    assert 0.02 <= rejected / RUNS <= 0.06


def test_mcnemar_rejects_a_true_null_in_at_most_6_percent() -> None:
    pick = random.Random(8)
    rejected = 0
    for _ in range(RUNS):
        flips = [pick.random() < 0.5 for _ in range(pick.randint(10, 40))]
        rejected += mcnemar(sum(flips), len(flips) - sum(flips)) <= 0.05
    assert 0.01 <= rejected / RUNS <= 0.06


def simulated(draw: Callable[[random.Random], ClusterSums], truth: float) -> int:
    """In how many experiments the interval has the truth in it."""
    pick = random.Random(6)
    covered = 0
    for _ in range(RUNS):
        found = estimate_mean(draw(pick))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    return covered


def graded(pick: random.Random, cases: int, power: float) -> ClusterSums:
    """The differences of two agents; with a power of 1 they are equally good."""
    differences = []
    for _ in range(cases):
        easy = pick.random()
        before = sum(pick.random() < easy for _ in range(5)) / 5
        after = sum(pick.random() < easy**power for _ in range(5)) / 5
        differences.append(difference(before, after))
    return ClusterSums(differences)


def test_differences_and_means_are_exact_decimals() -> None:
    assert difference(0.8, 0.9) == 0.1
    assert difference(0.9, 0.8) == -0.1
    assert str(difference(0.5, 0.5)) == "0.0"
    assert mean([0.1, 0.2, -0.3]) == 0
    assert mean([0.1] * 3) == 0.1
    assert mean([0.1] * 1_000_000) == 0.1
    assert mean([1, 0, 0]) == 1 / 3
