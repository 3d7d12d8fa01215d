"""Cases of different datasets that share an id are different cases."""

from typing import Any

import pytest

from agentv import compare_results
from agentv.compare.pairs import pairs_of
from tests.kits.comparisons import compared, line
from tests.kits.project import Write, agentv

Entry = tuple[str, str, float]
"""A dataset, an id and a score."""


def save_entries(write: Write, name: str, entries: list[Entry], **more: Any) -> None:
    text = [line(eval_id, score, dataset=dataset, **more) for dataset, eval_id, score in entries]
    write(name, "".join(text))


def pairs_in(*args: str, code: int = 0) -> list[tuple[str, str, float, float]]:
    found = compared(*args, code=code)["matched"]
    return [(pair.get("dataset", ""), pair["eval_id"], pair["score1"], pair["score2"]) for pair in found]


def test_ten_broken_cases_are_not_hidden_by_ten_fixed_ones_of_another_dataset(write: Write) -> None:
    ids = [f"c{number}" for number in range(10)]
    broken = [("geo", eval_id, 1.0) for eval_id in ids]
    fixed = [("math", eval_id, 0.0) for eval_id in ids]
    save_entries(write, "a.jsonl", [*broken, *fixed])
    save_entries(write, "b.jsonl", [(dataset, eval_id, 1.0 - score) for dataset, eval_id, score in [*broken, *fixed]])
    found = compared("a.jsonl", "b.jsonl", "--gate", "no-regressions", code=1)
    assert found["summary"]["matched"] == 20
    assert found["summary"]["repeats"] == {"file1": 0, "file2": 0}
    assert (found["statistics"]["passes"]["lost"], found["statistics"]["passes"]["gained"]) == (10, 10)
    assert found["statistics"]["verdict"] == "cannot tell"
    table = agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout
    assert "largest regressions: geo/c0 −1.00, geo/c1 −1.00" in table
    markdown = agentv("compare", "a.jsonl", "b.jsonl", "--format", "markdown").stdout
    assert "**10 broke (pass → fail)**: `geo/c0`, `geo/c1`" in markdown


@pytest.mark.parametrize("order", [("d", "e", "f"), ("f", "e", "d"), ("e", "f", "d")])
def test_the_order_of_datasets_may_differ_between_the_files(write: Write, order: tuple[str, ...]) -> None:
    before = {"d": 0.1, "e": 0.2, "f": 0.3}
    after = {"d": 0.4, "e": 0.5, "f": 0.6}
    save_entries(write, "a.jsonl", [(dataset, "c", score) for dataset, score in before.items()])
    save_entries(write, "b.jsonl", [(dataset, "c", after[dataset]) for dataset in order])
    assert pairs_in("a.jsonl", "b.jsonl") == [("d", "c", 0.1, 0.4), ("e", "c", 0.2, 0.5), ("f", "c", 0.3, 0.6)]


def test_an_id_in_several_datasets_of_one_file_is_matched_by_dataset_in_both(write: Write) -> None:
    save_entries(write, "a.jsonl", [("d", "c", 0.5), ("old", "x", 0.5)])
    save_entries(write, "b.jsonl", [("e", "c", 0.1), ("d", "c", 0.9), ("new", "x", 0.5)])
    assert pairs_in("a.jsonl", "b.jsonl") == [("d", "c", 0.5, 0.9), ("", "x", 0.5, 0.5)]
    found = compared("a.jsonl", "b.jsonl")
    assert found["unmatched"] == {"file1": 0, "file2": 1}
    assert found["summary"]["total"] == 3


def test_an_id_in_one_dataset_of_each_file_is_matched_by_id(write: Write) -> None:
    """A dataset may be renamed."""
    save_entries(write, "a.jsonl", [("old", "c", 0.5)])
    save_entries(write, "b.jsonl", [("new", "c", 0.5)])
    assert pairs_in("a.jsonl", "b.jsonl") == [("", "c", 0.5, 0.5)]


def test_trials_clusters_labels_and_evaluators_follow_their_dataset(write: Write) -> None:
    for name, shift in (("a.jsonl", 0.0), ("b.jsonl", 0.2)):
        rows = []
        datasets = ["d", "e"]
        if shift:
            datasets.reverse()
        for dataset in datasets:
            score = {"d": 0.2, "e": 0.6}[dataset] + shift * (dataset == "e")
            part = {"name": "part", "type": "contains", "score": score}
            for trial in (1, 2):
                for number in range(12):
                    more = {"dataset": dataset, "trial": trial, "metadata": {"of": dataset}}
                    talk = f"{dataset}-{number % 3}"
                    rows.append(line(f"c{number}", score, evaluator_results=[part], conversation_id=talk, **more))
        write(name, "".join(rows))
    found = compared("a.jsonl", "b.jsonl", "--by", "of")
    assert found["summary"]["repeats"] == {"file1": 24, "file2": 24}
    assert found["statistics"]["delta"]["clusters"] == 6
    deltas = {part["name"]: part["statistics"]["delta"]["mean"] for part in found["by"]["of"]}
    assert deltas == {"d": 0.0, "e": 0.2}
    by_evaluator = compared("a.jsonl", "b.jsonl", "--by", "evaluator")["by"]["evaluator"]
    assert [(part["statistics"]["pairs"], part["statistics"]["delta"]["mean"]) for part in by_evaluator] == [(24, 0.1)]
    by_dataset = compared("a.jsonl", "b.jsonl", "--by", "dataset")["by"]["dataset"]
    assert {part["name"]: part["statistics"]["pairs"] for part in by_dataset} == {"d": 12, "e": 12}


def test_python_callers_see_the_dataset_of_a_shared_id(write: Write) -> None:
    save_entries(write, "a.jsonl", [("d", "c", 0.5), ("e", "c", 0.5)])
    comparison = compare_results("a.jsonl", "a.jsonl")
    assert [(pair.dataset, pair.eval_id) for pair in comparison.matched] == [("d", "c"), ("e", "c")]
    assert pairs_of(comparison).shared_ids == {"c"}
