"""Agreement statistics, checked against published examples, scipy and independent formulas."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from agentv.stats.agreement import Figure, alpha, effective_size, kappa, kappa_large_sample, rate, spearman
from agentv.stats.pass_rates import wilson

GRANTS = {("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15}
"""Two readers of fifty proposals: the textbook example, kappa 0.40."""
DIAGNOSES = {
    ("psychotic", "psychotic"): 75,
    ("psychotic", "neurotic"): 1,
    ("psychotic", "organic"): 4,
    ("neurotic", "psychotic"): 5,
    ("neurotic", "neurotic"): 4,
    ("neurotic", "organic"): 1,
    ("organic", "psychotic"): 0,
    ("organic", "neurotic"): 0,
    ("organic", "organic"): 10,
}
"""A hundred patients; Fleiss, Statistical Methods for Rates and Proportions, table 18.1: kappa 0.68, error 0.087."""
OBSERVERS: list[list[int | None]] = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
"""Four observers, twelve units, values missing; Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011."""
UNITS = [[value for value in column if value is not None] for column in zip(*OBSERVERS, strict=True)]


def one_by_one(table: dict[tuple[str, str], int]) -> list[dict[tuple[str, str], int]]:
    """Each case as a table of its own."""
    return [{pair: 1} for pair, count in table.items() for _ in range(count)]


def test_kappa_matches_a_textbook_example() -> None:
    found = kappa(one_by_one(GRANTS))
    assert found.value == pytest.approx(0.4)
    assert found.ci_lower is not None and found.ci_upper is not None
    assert found.ci_lower < 0.4 < found.ci_upper


def test_the_large_sample_error_of_kappa_is_that_of_fleiss() -> None:
    found = kappa_large_sample(DIAGNOSES)
    assert found.value == pytest.approx(0.676, abs=1e-3)
    assert found.ci_upper is not None and found.value is not None
    assert (found.ci_upper - found.value) / 1.96 == pytest.approx(0.087, abs=1e-3)


def test_the_large_sample_error_is_what_the_delta_method_gives() -> None:
    """The same variance from numeric derivatives of kappa by the shares of the cells."""

    def value(cells: dict[tuple[str, str], float]) -> float:
        whole = sum(cells.values())
        labels = {label for pair in cells for label in pair}
        agreed = sum(share for (a, b), share in cells.items() if a == b) / whole
        first = {label: sum(s for (a, _), s in cells.items() if a == label) / whole for label in labels}
        second = {label: sum(s for (_, b), s in cells.items() if b == label) / whole for label in labels}
        chance = sum(first[label] * second[label] for label in labels)
        return (agreed - chance) / (1 - chance)

    n = sum(DIAGNOSES.values())
    shares = {pair: count / n for pair, count in DIAGNOSES.items()}
    step = 1e-6
    slopes = {
        pair: (value(shares | {pair: s + step}) - value(shares | {pair: s - step})) / 2 / step
        for pair, s in shares.items()
    }
    mean = sum(shares[pair] * slope for pair, slope in slopes.items())
    error = math.sqrt(sum(shares[pair] * (slope - mean) ** 2 for pair, slope in slopes.items()) / n)
    found = kappa_large_sample(DIAGNOSES)
    assert found.value is not None and found.ci_lower is not None
    assert (found.value - found.ci_lower) / 1.959964 == pytest.approx(error, rel=1e-4)


def test_the_two_intervals_of_kappa_agree_for_many_cases() -> None:
    many = {pair: 20 * count for pair, count in GRANTS.items()}
    drawn, formula = kappa(one_by_one(many)), kappa_large_sample(many)
    assert [drawn.ci_lower, drawn.ci_upper] == pytest.approx([formula.ci_lower, formula.ci_upper], abs=0.01)


def test_kappa_is_the_same_every_time_and_in_any_order() -> None:
    cases = one_by_one(GRANTS)
    random.Random(3).shuffle(cases)
    assert kappa(cases).value == kappa(one_by_one(GRANTS)).value
    assert kappa(cases) == kappa(cases)


def test_clustered_cases_widen_the_interval() -> None:
    alone = kappa(one_by_one(GRANTS))
    together = kappa([{pair: 5} for pair, count in GRANTS.items() for _ in range(count // 5)])
    assert together.value == alone.value
    assert together.ci_lower is not None and alone.ci_lower is not None
    assert together.ci_lower < alone.ci_lower


@pytest.mark.parametrize(("truth", "judge", "kappa_there"), [(0.5, (0.9, 0.8), 0.7), (0.8, (0.9, 0.8), 0.6512)])
@pytest.mark.slow
def test_the_interval_of_kappa_covers_it(truth: float, judge: tuple[float, float], kappa_there: float) -> None:
    """A hundred labels; 2,000 runs must cover 0.92, and chance has its part in few."""
    dice, runs = random.Random(7), 100
    cells = [("pass", "pass"), ("fail", "pass"), ("pass", "fail"), ("fail", "fail")]
    shares = [truth * judge[0], truth * (1 - judge[0]), (1 - truth) * (1 - judge[1]), (1 - truth) * judge[1]]
    found = [kappa([{cell: 1} for cell in dice.choices(cells, shares, k=100)]) for _ in range(runs)]
    hits = sum(each.ci_lower <= kappa_there <= each.ci_upper for each in found)  # type: ignore[operator]
    assert hits / runs >= 0.92 - 2 * math.sqrt(0.92 * 0.08 / runs)


def test_a_constant_rater_has_a_wide_interval() -> None:
    """Resampling gives 0 each time, which proves nothing."""
    few = kappa(one_by_one({("pass", "pass"): 7, ("pass", "fail"): 1}))
    assert few.value == 0.0
    assert few.ci_lower == -1.0
    assert few.ci_upper == pytest.approx((wilson(7, 8)[1] - 7 / 8) / (1 / 8))
    assert few.method == "Wilson, at the chance agreement observed"
    many = kappa(one_by_one({("pass", "pass"): 100, ("fail", "pass"): 100}))
    assert many.ci_lower == pytest.approx(-0.138, abs=1e-3)
    assert many.ci_upper == pytest.approx(0.138, abs=1e-3)


@pytest.mark.parametrize("label", ["pass", "fail"])
def test_kappa_of_constant_raters_is_undefined_with_a_reason(label: str) -> None:
    words = f"undefined: both always say '{label}', so agreement by chance is certain"
    assert kappa([{(label, label): 1}] * 7) == Figure(note=words)
    assert kappa_large_sample({(label, label): 7}) == Figure(note=words)


def test_kappa_without_items_is_undefined_with_a_reason() -> None:
    assert kappa([]) == kappa_large_sample({}) == Figure(note="undefined: no item was rated by both")


def test_perfect_agreement_on_few_cases_is_not_certain() -> None:
    """Resampling five agreeing cases gives 1 each time; the Wilson interval does not."""
    few = kappa([{("pass", "pass"): 1}] * 3 + [{("fail", "fail"): 1}] * 2)
    many = kappa([{("pass", "pass"): 1}] * 300 + [{("fail", "fail"): 1}] * 200)
    assert (few.value, few.ci_upper, many.value) == (1.0, 1.0, 1.0)
    assert few.ci_lower == pytest.approx((wilson(5, 5)[0] - 0.52) / 0.48)
    assert many.ci_lower is not None and many.ci_lower > 0.98


@pytest.mark.parametrize("clusters", [1, 5])
def test_identical_clusters_have_no_interval(clusters: int) -> None:
    found = kappa([{("pass", "pass"): 2, ("pass", "fail"): 1, ("fail", "fail"): 1}] * clusters)
    assert found == Figure(value=0.5, note="no interval: all clusters are alike")


def test_raters_who_never_agree() -> None:
    found = kappa([{("pass", "fail"): 1}] * 4 + [{("fail", "pass"): 1}] * 4)
    assert (found.value, found.ci_lower) == (-1.0, -1.0)
    assert found.ci_upper is not None and found.ci_upper < 0


@pytest.mark.slow  # generated values take seconds, few or many
@given(st.dictionaries(st.tuples(st.sampled_from("ab"), st.sampled_from("ab")), st.integers(1, 9), max_size=4))
def test_kappa_is_a_number_with_an_interval_or_a_reason(table: dict[tuple[str, str], int]) -> None:
    for found in (kappa(one_by_one(table)), kappa_large_sample(table)):
        if found.value is None:
            assert found.note
        else:
            assert found.ci_lower is not None and found.ci_upper is not None
            assert -1 <= found.ci_lower <= found.ci_upper <= 1 + 1e-9


def test_krippendorffs_example_with_missing_values() -> None:
    nominal, interval = alpha(UNITS), alpha(UNITS, "interval")
    assert nominal.value == pytest.approx(0.743, abs=5e-4)
    assert interval.value == pytest.approx(0.849, abs=5e-4)
    for found in (nominal, interval):
        assert found.value is not None and found.ci_lower is not None and found.ci_upper is not None
        assert found.ci_lower < found.value < found.ci_upper


def test_krippendorffs_example_of_two_observers() -> None:
    first, second = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert alpha(list(zip(first, second, strict=True))).value == pytest.approx(0.095, abs=5e-4)


def test_alpha_of_verdicts_is_the_same_by_both_metrics() -> None:
    """Two values are as far apart as they are unequal."""
    units = [[1, 1, 0], [0, 0], [1, 0], [1, 1], [0, 0, 0]]
    assert alpha(units).value == pytest.approx(alpha(units, "interval").value)


def test_undefined_alpha_has_a_reason() -> None:
    assert alpha([]).note == alpha([["pass"]]).note == "undefined: no item was rated twice"
    assert alpha([["pass", "pass"], ["pass", "pass"]]).note == "undefined: all ratings are 'pass'"
    assert alpha([[0.5, 0.5], [0.5, 0.5]], "interval").note == "undefined: all ratings are equal"
    one = alpha([["pass", "fail"]])
    assert one.value == pytest.approx(0.0)
    assert (one.ci_lower, one.note) == (None, "no interval: only one unit")


def test_perfect_agreement_is_alpha_one() -> None:
    assert alpha([["pass"] * 3, ["fail"] * 3, ["pass"] * 2]).value == 1.0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=40))
def test_spearman_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    first, second = zip(*pairs, strict=True)
    found = spearman(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found == Figure(note="undefined: one of the two variables is constant")
        return
    assert found.value == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-9)
    if found.ci_lower is not None and found.ci_upper is not None and found.value is not None:
        assert -1 <= found.ci_lower <= found.value <= found.ci_upper <= 1


def test_the_interval_of_spearman_is_a_little_wider_than_fishers() -> None:
    first, second = list(range(20)), [0, 2, 1, 4, 3, 6, 5, 9, 7, 8, 12, 10, 11, 15, 13, 14, 18, 16, 17, 19]
    found = spearman(first, second)
    assert found.value is not None and found.ci_lower is not None
    fisher = math.tanh(math.atanh(found.value) - 1.959964 / math.sqrt(17))
    assert 0 < fisher - found.ci_lower < 0.05


def test_undefined_spearman_has_a_reason() -> None:
    assert spearman([], []).note == spearman([1.0], [2.0]).note == "undefined: at least two values are needed"
    assert spearman([1, 2, 3, 4, 5], [2, 4, 6, 8, 10]).note == "no interval: too few values, or a perfect correlation"


def test_a_rate_is_wilsons() -> None:
    found = rate(Counter({(1, 1.0): 19, (1, 0.0): 1}))
    assert found == Figure(value=0.95, ci_lower=wilson(19, 20)[0], ci_upper=wilson(19, 20)[1], method="Wilson")
    assert rate({}, "no label is 'fail'") == Figure(note="no label is 'fail'")


def test_clustered_answers_reduce_the_effective_sample_size() -> None:
    assert effective_size({(1, 1.0): 5, (1, 0.0): 5}) == 10
    assert effective_size({(5, 5.0): 10, (5, 0.0): 10}) == pytest.approx(19)
    assert effective_size({(5, 2.0): 10, (5, 3.0): 10}) == 100
    assert effective_size({(5, 5.0): 20}) == 20
    assert rate({(5, 5.0): 20}).ci_lower == wilson(20, 20)[0]
