"""Corrected pass rates: formulas by hand, and the coverage of their intervals."""

import math

import pytest
from scipy import stats

from agentv.stats.agreement import Figure
from agentv.stats.correction import prediction_powered, rogan_gladen
from agentv.stats.pass_rates import wilson
from tests.kits.judging import Setting, corrected_by_other_labels, corrected_by_own_labels, coverage, labels_alone

USELESS, POOR, GOOD, EXCELLENT = (0.5, 0.5), (0.7, 0.7), (0.9, 0.8), (0.98, 0.95)
OWN_LABELS = [
    *(Setting(truth, *judge, 200, 50) for truth in (0.3, 0.7, 0.98) for judge in (USELESS, GOOD, EXCELLENT)),
    *(Setting(truth, *judge, 1000, 200) for truth in (0.5, 0.9) for judge in (USELESS, POOR, EXCELLENT)),
    Setting(0.9, *USELESS, 500, 100, cluster=5),
    Setting(0.7, *GOOD, 500, 100, cluster=5),
    Setting(0.98, *EXCELLENT, 500, 100, cluster=5),
    Setting(0.5, *POOR, 1000, 100, cluster=10),
    Setting(0.9, *GOOD, 1000, 100, cluster=10),
    Setting(0.5, *GOOD, 500, 100, cluster=5, told=True),
    Setting(0.9, *POOR, 1000, 200, cluster=10, told=True),
    Setting(0.5, *EXCELLENT, 500, 100, cluster=5, told=True, alike=True),
    Setting(0.9, *EXCELLENT, 500, 200, cluster=10, told=True, alike=True),
    Setting(0.9, *GOOD, 400, 200, cluster=20, told=True, alike=True),
    Setting(0.9, *GOOD, 400, 200, cluster=20, told=True, alike=True, whole=True),
    Setting(0.95, *EXCELLENT, 500, 100, cluster=5, told=True, alike=True, whole=True),
    Setting(0.5, *GOOD, 500, 100, cluster=5, told=True, whole=True),
    Setting(0.9, *POOR, 1000, 200, cluster=10, told=True, whole=True),
    Setting(0.9, *GOOD, 400, 200, cluster=20, told=True, whole=True),
    Setting(0.9, *GOOD, 400, 200, cluster=20, told=True, alike_in_part=0.3),
    Setting(0.9, *GOOD, 400, 200, cluster=20, told=True, alike_in_part=0.3, whole=True),
]
OTHER_LABELS = [
    *(Setting(truth, *judge, 200, 100) for truth in (0.3, 0.7, 0.98) for judge in (POOR, EXCELLENT)),
    *(Setting(truth, *GOOD, 1000, 200, truth_elsewhere=0.8) for truth in (0.5, 0.9)),
    Setting(0.7, *GOOD, 500, 150, cluster=5, told=True),
    Setting(0.9, *GOOD, 1000, 200, cluster=10, told=True, truth_elsewhere=0.7),
    Setting(0.7, *GOOD, 500, 150, cluster=5),
    Setting(0.98, *GOOD, 200, 200, cluster=10, truth_elsewhere=0.8),
    Setting(0.98, *POOR, 1000, 600, cluster=10, truth_elsewhere=0.8),
    Setting(0.9, *EXCELLENT, 1000, 200, cluster=10),
]
LEAST = 0.94
"""What coverage must reach."""


@pytest.mark.parametrize("setting", OWN_LABELS, ids=str)
@pytest.mark.slow
def test_labels_of_the_same_run_cover_the_truth(setting: Setting) -> None:
    found = coverage(corrected_by_own_labels, setting)
    assert found.share >= LEAST
    assert found.given == 1


@pytest.mark.parametrize("setting", OTHER_LABELS, ids=str)
@pytest.mark.slow
def test_labels_of_other_runs_cover_the_truth(setting: Setting) -> None:
    found = coverage(corrected_by_other_labels, setting)
    assert found.share >= LEAST
    assert found.given > 0.9


def test_a_good_judge_narrows_the_interval_and_a_useless_one_hardly_widens_it() -> None:
    alone = wilson(100, 200)
    good, useless = (coverage(corrected_by_own_labels, Setting(0.5, *j, 1000, 200)) for j in (EXCELLENT, USELESS))
    assert good.width < 0.65 * (alone[1] - alone[0])
    assert useless.width < 1.05 * (alone[1] - alone[0])


GROUPED = [
    Setting(0.9, *GOOD, 500, 100, cluster=5, told=True, whole=True),
    Setting(0.9, *POOR, 1000, 200, cluster=10, told=True, whole=True),
    Setting(0.9, *GOOD, 400, 200, cluster=20, told=True),
    Setting(0.5, *GOOD, 500, 100, cluster=5, told=True),
    Setting(0.9, *EXCELLENT, 500, 200, cluster=10, told=True, alike=True),
]


@pytest.mark.parametrize("setting", GROUPED, ids=str)
def test_grouped_answers_do_not_widen_the_interval(setting: Setting) -> None:
    corrected = coverage(corrected_by_own_labels, setting, runs=100)
    alone = coverage(labels_alone, setting, runs=100)
    assert corrected.width < 1.15 * alone.width


def test_groups_of_equal_answers_are_as_certain_as_single_answers() -> None:
    """Ten identical answers of a conversation contain as much information as one."""
    pairs = {(1.0, 1.0): 12, (1.0, 0.0): 2, (0.0, 1.0): 1, (0.0, 0.0): 9}
    rest = {1.0: 60, 0.0: 40}
    single = prediction_powered(
        {(1, y, f): times for (y, f), times in pairs.items()},
        {(1, f): times for f, times in rest.items()},
    )
    grouped = prediction_powered(
        {(10, 10 * y, 10 * f): times for (y, f), times in pairs.items()},
        {(10, 10 * f): times for f, times in rest.items()},
    )
    assert single.value is not None and grouped.value == pytest.approx(single.value, abs=0.002)
    assert _width(grouped) == pytest.approx(_width(single), rel=0.03)


def _width(found: Figure) -> float:
    assert found.ci_lower is not None and found.ci_upper is not None
    return found.ci_upper - found.ci_lower


def test_the_prediction_powered_rate_by_hand() -> None:
    """30 of 40 labelled answers pass, the judge passes 28 of these and 2 of the others; 100 of the rest pass of 160."""
    labelled = {(1, 1.0, 1.0): 28, (1, 1.0, 0.0): 2, (1, 0.0, 1.0): 2, (1, 0.0, 0.0): 8}
    y = [1.0] * 30 + [0.0] * 10 + [1, 1, 0, 0]
    f = [1.0] * 28 + [0.0] * 2 + [1.0] * 2 + [0.0] * 8 + [1, 0, 1, 0]
    mean_y, mean_f = sum(y) / 44, sum(f) / 44
    covariance = sum((a - mean_y) * (b - mean_f) for a, b in zip(y, f, strict=True)) / 43
    variance = sum((b - mean_f) ** 2 for b in f) / 43
    rest = 100 / 160
    of_rest = rest * (1 - rest) / 159
    weight = covariance / 40 / (variance / 40 + of_rest)
    residuals = [a - weight * b for a, b in zip(y, f, strict=True)]
    middle = sum(residuals) / 44
    value = weight * rest + middle
    error = math.sqrt(weight**2 * of_rest + sum((r - middle) ** 2 for r in residuals) / 43 / 40)
    half = stats.t.ppf(0.975, 43) * error
    found = prediction_powered(labelled, {(1, 1.0): 100, (1, 0.0): 60})
    assert found.value is not None and found.ci_lower is not None and found.ci_upper is not None
    assert [found.value, found.ci_lower, found.ci_upper] == pytest.approx([value, value - half, value + half])


def test_scores_are_corrected_as_verdicts_are() -> None:
    labelled = {(1, 0.25 * y, 0.25 * f): 3 for y in range(5) for f in range(5) if abs(y - f) < 2}
    found = prediction_powered(labelled, {(1, 0.1 * score): 10 for score in range(11)})
    assert found.value is not None and found.ci_lower is not None and found.ci_upper is not None
    assert 0 < found.ci_lower < found.value < found.ci_upper < 1


@pytest.mark.parametrize("verdict", [0.0, 1.0])
@pytest.mark.parametrize("labels", [1, 5, 50])
def test_identical_labels_still_have_an_interval(verdict: float, labels: int) -> None:
    found = prediction_powered({(1, verdict, verdict): labels}, {(1, verdict): 100})
    assert found.value is not None and found.ci_lower is not None and found.ci_upper is not None
    assert 0 <= found.ci_lower <= found.value <= found.ci_upper <= 1
    assert found.ci_upper - found.ci_lower > 0.02


def test_a_missing_corrected_rate_has_a_reason() -> None:
    rest = {(1, 1.0): 9}
    assert prediction_powered({}, rest) == Figure(
        note="no label is for an answer that was sampled at random from this run"
    )
    assert prediction_powered({(1, 1.0, 1.0): 9}, {}) == Figure(
        note="every answer has a label: the pass rate is that of the labels"
    )


def test_rogan_and_gladens_estimate() -> None:
    """70 of 100 pass; the judge is right in 90 of 100 passes and in 80 of 100 fails: (0.7 + 0.8 - 1) / 0.7.

    Nobody says which answers belong together: 100 of them count for 20.
    """
    known = {(1, 1.0): 90, (1, 0.0): 10}, {(1, 1.0): 80, (1, 0.0): 20}
    found = rogan_gladen({(1, 1.0): 70, (1, 0.0): 30}, *known)
    assert found.value == pytest.approx(0.5 / 0.7)
    t = stats.t.ppf(0.975, 99)
    n, q1, q0 = 20 + t * t, 19 / 22, 17 / 22
    p = (14 + t * t / 2) / n
    theta = (p + q0 - 1) / (q0 + q1 - 1)
    of_q0, of_q1 = q0 * (1 - q0) / 22, q1 * (1 - q1) / 22
    middle = theta + 2 * t * t * (-(1 - theta) * of_q0 + theta * of_q1)
    error = math.sqrt(p * (1 - p) / n + (1 - theta) ** 2 * of_q0 + theta**2 * of_q1) / (q0 + q1 - 1)
    assert found.ci_lower is not None and found.ci_upper is not None
    assert [found.ci_lower, found.ci_upper] == pytest.approx([middle - t * error, 1.0])
    assert middle + t * error > 1


def test_rogan_gladen_is_not_reported_where_it_would_mislead() -> None:
    judged, good = {(1, 1.0): 70, (1, 0.0): 30}, {(1, 1.0): 90, (1, 0.0): 10}
    assert "not better than chance" in rogan_gladen(judged, good, {(1, 1.0): 10, (1, 0.0): 90}).note
    assert rogan_gladen(judged, good, {}).note.startswith("too few: 100 labels 'pass' and 0 'fail' of other runs")
    assert rogan_gladen({(1, 1.0): 9}, good, good).note.startswith("too few: 9 judged answers")
