"""The rows of a table of results."""

from typing import Any

from agentv.results.table import FIRST_COLUMNS, table_rows


def a_result(eval_id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"eval_id": eval_id, "score": 1.0, "candidate_answer": "hi", **fields}


def part(name: str, score: float | None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "score": score, **fields}


def test_all_rows_have_the_same_columns() -> None:
    rows = table_rows([a_result("a", metadata={"level": 1}), a_result("b", vars={"tone": "rude"}), a_result("c")])

    assert [list(row) for row in rows] == [[*FIRST_COLUMNS, "metadata.level", "vars.tone"]] * 3
    assert [row["metadata.level"] for row in rows] == [1, None, None]
    assert [row["vars.tone"] for row in rows] == [None, "rude", None]


def test_values_keep_their_types() -> None:
    metrics = {"token_usage": {"input": 10}, "cost_usd": 0.5, "duration_ms": 12.5}
    (row,) = table_rows([a_result(execution_metrics=metrics, trial=2, metadata={"gold": ["x"], "known": True})])

    assert (row["cost_usd"], row["duration_ms"], row["input_tokens"], row["output_tokens"]) == (0.5, 12.5, 10, None)
    assert isinstance(row["input_tokens"], int)
    assert (row["trial"], row["metadata.gold"], row["metadata.known"]) == (2, ["x"], True)


def test_an_evaluator_that_could_not_judge_or_does_not_apply_has_no_score() -> None:
    parts = [part("judge", 0.0, failed=True), part("rank", None, applicable=False), part("contains", 0.0)]
    (row,) = table_rows([a_result(evaluator_results=parts)])

    assert (row["evaluator.judge"], row["evaluator.rank"], row["evaluator.contains"]) == (None, None, 0.0)


def test_repeated_names_of_evaluators_are_numbered_apart_from_names_that_look_numbered() -> None:
    parts = [part("x (2)", 0.1), part("x", 0.2), part("x", 0.3)]
    (row,) = table_rows([a_result(evaluator_results=parts)])

    scores = {name: value for name, value in row.items() if name.startswith("evaluator.")}
    assert scores == {"evaluator.x (2)": 0.1, "evaluator.x": 0.2, "evaluator.x (3)": 0.3}


def test_a_machine_failure_has_no_score_and_no_verdict() -> None:
    (row,) = table_rows([a_result(score=0.0, error="no room", failure="machine")])

    assert (row["score"], row["verdict"], row["error"], row["failure"]) == (None, None, "no room", "machine")


def test_without_results_there_are_no_rows() -> None:
    assert table_rows([]) == []
