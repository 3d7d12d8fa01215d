"""`agentv compare` with the cases that a filter selects."""

from typing import Any

import pytest

from tests.kits.comparisons import compared, line, refused
from tests.kits.project import Write, a_case, agentv

SAME = {"dataset": "d", "target": "t"}


def rows(write: Write, name: str, *entries: dict[str, Any]) -> None:
    write(name, "".join(line(**{**SAME, **entry}) for entry in entries))


def ids(*args: str) -> list[str]:
    return [pair["eval_id"] for pair in compared("a.jsonl", "b.jsonl", *args, "--undecided", "pass")["matched"]]


@pytest.fixture
def two_runs(write: Write) -> Write:
    rows(
        write,
        "a.jsonl",
        {"eval_id": "one", "score": 1, "tags": ["old"], "metadata": {"level": 1}},
        {"eval_id": "two", "score": 1, "tags": ["old"]},
        {"eval_id": "gone", "score": 1, "tags": ["new"]},
        {"eval_id": "other", "score": 1, "tags": ["old"]},
    )
    rows(
        write,
        "b.jsonl",
        {"eval_id": "one", "score": 1, "tags": ["new"], "metadata": {"level": 3}},
        {"eval_id": "two", "score": 1, "tags": ["old"]},
        {"eval_id": "added", "score": 1, "tags": ["new"]},
    )
    return write


def test_the_fields_of_b_decide(two_runs: Write) -> None:
    assert ids("--filter", "tag:new") == ["one"]
    assert ids("--filter", "tag:old") == ["two"]
    assert ids("--filter", "metadata.level>=3") == ["one"]
    assert ids("--filter", "-metadata.level>=3") == ["two"]
    assert ids("--filter", "tag:*", "--filter", "id:o*") == ["one"]


def test_the_fields_of_a_decide_for_cases_that_only_a_has(two_runs: Write) -> None:
    found = compared("a.jsonl", "b.jsonl", "--filter", "tag:new")
    assert found["unmatched"] == {"file1": 1, "file2": 1}
    assert [file["results"] for file in found["files"]] == [2, 2]


def test_each_run_has_its_own_selection(two_runs: Write) -> None:
    rows(two_runs, "c.jsonl", {"eval_id": "two", "score": 1, "tags": ["new"]})
    found = compared("a.jsonl", "b.jsonl", "c.jsonl", "--filter", "tag:new")
    matched = [[pair["eval_id"] for pair in comparison["matched"]] for comparison in found["comparisons"]]
    assert matched == [["one"], ["two"]]


def test_a_case_is_selected_by_any_of_its_results(write: Write) -> None:
    trials = [
        {"eval_id": "x", "trial": number, "score": score, "verdict": "fail"} for number, score in ((1, 0), (2, 1))
    ]
    trials[1]["verdict"] = "pass"
    rows(write, "a.jsonl", *trials)
    rows(write, "b.jsonl", *trials)
    for condition in ("verdict:pass", "verdict:fail"):
        assert compared("a.jsonl", "b.jsonl", "--filter", condition)["files"][1]["results"] == 2


def test_cases_with_the_same_id_are_distinguished_by_dataset(write: Write) -> None:
    entries = [
        {"eval_id": "x", "dataset": "one", "score": 1, "tags": ["a"]},
        {"eval_id": "x", "dataset": "two", "score": 0, "tags": ["b"]},
    ]
    rows(write, "a.jsonl", *entries)
    rows(write, "b.jsonl", *entries)
    (pair,) = compared("a.jsonl", "b.jsonl", "--filter", "tag:b")["matched"]
    assert pair["score1"] == 0


def test_a_renamed_dataset_does_not_matter(write: Write) -> None:
    rows(write, "a.jsonl", {"eval_id": "x", "dataset": "before", "score": 1})
    rows(write, "b.jsonl", {"eval_id": "x", "dataset": "after", "score": 1, "tags": ["a"]})
    assert ids("--filter", "tag:a") == ["x"]


def test_selecting_nothing_is_an_error(two_runs: Write) -> None:
    assert refused("a.jsonl", "b.jsonl", "--filter", "tag:none") == (
        "error: no result matches the filter 'tag:none'\n"
        "hint: matching is case-sensitive; a field that is absent matches nothing\n"
    )
    assert "unknown key 'tagg'" in refused("a.jsonl", "b.jsonl", "--filter", "tagg:none")


def test_results_of_other_tools_can_be_filtered(write: Write) -> None:
    write("a.jsonl", line("x", 1) + line("y", 1))
    write("b.jsonl", line("x", 1) + line("y", 0))
    assert ids("--filter", "score>0.5") == ["x"]


# ---- required cases ----


@pytest.fixture
def regressions(write: Write) -> Write:
    rows(write, "a.jsonl", *({"eval_id": name, "score": 1, "tags": ["x"]} for name in ("p", "q", "r")))
    rows(
        write,
        "b.jsonl",
        {"eval_id": "p", "score": 1, "tags": ["safe"]},
        {"eval_id": "q", "score": 0, "tags": ["risky"]},
        {"eval_id": "r", "score": 0, "tags": ["broken"], "error": "no"},
    )
    return write


def gate(*args: str, code: int) -> str:
    ran = agentv("compare", "a.jsonl", "b.jsonl", "--gate", "no-regressions", *args)
    assert ran.returncode == code, ran.stderr
    return ran.stderr.splitlines()[-1]


def test_only_required_cases_count(regressions: Write) -> None:
    assert gate("--require", "tag:safe", code=0) == "exit 0: --require does not select 1 case that no longer passes"
    assert gate("--require", "tag:risky", code=1) == "exit 1: 1 case no longer passes: q"
    assert gate("--require", "tag:safe", "--require", "tag:risky", code=1) == "exit 1: 1 case no longer passes: q"
    assert "could not be scored in B: r" in gate("--require", "tag:broken", code=3)


def test_a_missing_case_fails_the_gate_only_if_it_is_required(regressions: Write) -> None:
    rows(regressions, "a.jsonl", *({"eval_id": name, "score": 1, "tags": ["x"]} for name in ("p", "gone")))
    assert "B has no result for 1 case of A: gone" in gate("--require", "tag:x", code=1)
    gate("--require", "tag:safe", code=0)


def test_requirements_need_the_gate_and_a_case(regressions: Write) -> None:
    assert "error: --require needs --gate no-regressions\n" in refused("a.jsonl", "b.jsonl", "--require", "id:p")
    error = refused("a.jsonl", "b.jsonl", "--gate", "no-regressions", "--require", "tag:none")
    assert error.startswith("error: no result matches the filter 'tag:none'\n")


def test_a_case_that_is_skipped_now_is_not_missing(write: Write) -> None:
    rows(write, "a.jsonl", *({"eval_id": name, "score": 1} for name in ("kept", "later")))
    rows(write, "b.jsonl", {"eval_id": "kept", "score": 1, "file": "evals.jsonl"})
    write("evals.jsonl", [a_case("kept"), a_case("later")])
    assert agentv("compare", "a.jsonl", "b.jsonl", "--gate", "no-regressions").returncode == 1
    write("evals.jsonl", [a_case("kept"), a_case("later", skip="flaky")])
    assert agentv("compare", "a.jsonl", "b.jsonl", "--gate", "no-regressions").returncode == 0
