"""The figures of a summary, against the standard library and SciPy's published values."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.records import EvalResult
from agentv.report.summary import summary_lines
from agentv.results.summary import Summary
from agentv.stats.distributions import t_quantile


def a_result(eval_id: str, score: float, error: str | None = None) -> EvalResult:
    return EvalResult(
        timestamp="t", eval_id=eval_id, dataset="d", target="t", attempt=1, score=score, verdict="fail",
        candidate_answer="", error=error, failure="target" if error else None,
    )  # fmt: skip


def a_summary(scores: list[float]) -> Summary:
    summary = Summary(len(scores))
    for number, score in enumerate(scores):
        summary.add(a_result(f"case-{number:03}", score))
    return summary


@given(st.lists(st.floats(0, 1), min_size=2, max_size=60))
def test_figures_agree_with_the_standard_library(scores: list[float]) -> None:
    summary = a_summary(scores)
    assert summary.mean == pytest.approx(statistics.fmean(scores))
    assert summary.median == pytest.approx(statistics.median(scores))
    assert summary.deviation == pytest.approx(statistics.stdev(scores), abs=1e-9)
    assert sum(summary.histogram) == len(scores)
    assert [score for _, score in summary.top] == sorted(scores, reverse=True)[:3]
    assert [score for _, score in summary.bottom] == sorted(scores)[:3]


def test_the_edges_of_the_bins() -> None:
    assert a_summary([0, 0.2, 0.4, 0.6, 0.8, 1.0]).histogram == (1, 1, 1, 1, 2)
    assert a_summary([0.19999, 0.6000000000000001, 0.1 + 0.7]).histogram == (1, 0, 0, 2, 0)


def test_ties_are_sorted_by_id() -> None:
    names = [f"case-{n}" for n in range(9)]
    for seed in range(5):
        random.Random(seed).shuffle(names)
        summary = Summary(9)
        for name in names:
            summary.add(a_result(name, 0.5))
        assert [name for name, _ in summary.top] == ["case-0", "case-1", "case-2"]
        assert [name for name, _ in summary.bottom] == ["case-3", "case-4", "case-5"]


def test_top_and_bottom_are_different_cases() -> None:
    summary = a_summary([1, 0, 0, 0, 0, 0, 0])
    names = [name for name, _ in [*summary.top, *summary.bottom]]
    assert sorted(names) == [f"case-00{n}" for n in range(6)]
    assert [score for _, score in summary.bottom] == [0, 0, 0]
    assert summary.ranking is None


def test_ranks_all_of_up_to_six_cases() -> None:
    summary = a_summary([0, 1, 0.5, 0.5, 1, 0.25])
    expected = [
        ("case-001", 1.0),
        ("case-004", 1.0),
        ("case-002", 0.5),
        ("case-003", 0.5),
        ("case-005", 0.25),
        ("case-000", 0.0),
    ]
    assert summary.ranking == expected


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (30, 2.0423), (120, 1.9799), (100_000, 1.9600)],
)
def test_t_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(expected, abs=5e-5)


def test_the_interval_of_a_worked_example() -> None:
    # 20 scores, 16 of them 1: mean 0.8, s = 0.4104, t(19) = 2.0930, half width 0.1921
    assert a_summary([1.0] * 16 + [0.0] * 4).interval == pytest.approx((0.6079, 0.9921), abs=1e-4)


def test_a_single_result_has_no_interval() -> None:
    assert a_summary([1.0]).interval is None
    assert Summary(0).mean is None


def test_the_ledger_adds_up() -> None:
    summary = Summary(10, invalid=2)
    summary.add(a_result("a", 1))
    summary.add(a_result("b", 0, error="broken"))
    summary.add_earlier(a_result("c", 0.5))
    assert sum(summary.ledger.values()) == summary.planned == 12
    assert summary.ledger["not run"] == 7


def test_a_long_list_of_errors_is_shortened() -> None:
    summary = Summary(1000)
    for number in range(1000):
        summary.add(a_result(str(number), 0, error=f"broken\nbadly by {number}"))
    lines = list(summary_lines(summary))
    assert lines[0] == "ERRORS (1000)"
    assert lines[1] == "  0: broken badly by 0"
    assert "  and 950 more, see the results file" in lines
