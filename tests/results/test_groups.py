"""The figures of groups of results."""

from typing import Any

import pytest

from agentv.errors import ConfigError
from agentv.results.groups import group_rows


def a_result(eval_id: str, score: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"eval_id": eval_id, "score": score, **fields}


def part(name: str, score: float | None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "score": score, **fields}


def test_a_row_per_group_with_the_keys_and_figures() -> None:
    results = [
        a_result("a", 1.0, metadata={"topic": "geo"}),
        a_result("b", 0.0, metadata={"topic": "geo"}),
        a_result("c", 1.0, metadata={"topic": "art"}),
    ]
    first, second = group_rows(results, ["topic"])

    assert list(first) == [
        "topic",
        "n",
        "mean",
        "mean_ci_lower",
        "mean_ci_upper",
        "pass_rate",
        "pass_rate_ci_lower",
        "pass_rate_ci_upper",
    ]
    assert (first["topic"], first["n"], first["mean"], first["pass_rate"]) == ("geo", 2, 0.5, 0.5)
    assert (first["mean_ci_lower"], first["mean_ci_upper"]) == (0.0, 1.0)
    assert (second["topic"], second["n"], second["mean_ci_lower"]) == ("art", 1, None)
    assert second["pass_rate_ci_lower"] == pytest.approx(0.2065, abs=1e-4)


def test_the_trials_of_a_case_count_as_one_case() -> None:
    trials = [(1, 1.0), (2, 0.0)]
    results = [a_result(name, score, trial=trial, dataset="d") for name in "ab" for trial, score in trials]
    (row,) = group_rows([*results, a_result("c", 1.0, trial=1, dataset="d")], ["dataset"])

    assert (row["n"], row["mean"], row["pass_rate"]) == (3, pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert row["pass_rate_ci_lower"] < 2 / 3 < row["pass_rate_ci_upper"]


def test_keys_are_crossed_with_evaluators() -> None:
    parts = [part("contains", 1.0), part("judge", 0.0, failed=True), part("rank", None)]
    results = [
        a_result("a", vars={"tone": "rude"}, evaluator_results=parts),
        a_result("b", vars={"tone": "polite"}, evaluator_results=[part("contains", 0.5), part("judge", 1.0)]),
    ]
    rows = group_rows(results, ["vars.tone", "evaluator"])

    assert [(row["vars.tone"], row["evaluator"], row["mean"]) for row in rows] == [
        ("polite", "contains", 0.5),
        ("polite", "judge", 1.0),
        ("rude", "contains", 1.0),
    ]


def test_machine_failures_are_in_no_group() -> None:
    results = [a_result("a", dataset="d"), a_result("b", 0.0, dataset="d", error="no room", failure="machine")]
    (row,) = group_rows(results, ["dataset"])

    assert (row["n"], row["mean"]) == (1, 1.0)


def test_a_key_that_no_result_has_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        group_rows([a_result("a", metadata={"topic": "geo"}, vars={"tone": "rude"})], ["color"])

    known = "conversation_id, dataset, evaluator, target, topic, vars.tone"
    assert caught.value.message == f"by: no result has 'color'; known keys: {known}"
    assert caught.value.hint == ""
