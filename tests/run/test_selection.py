"""Which cases of the eval files run: tags, skip, filters and samples."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import agentv as package
from agentv.errors import AgentvError
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK, evaluate, results

CASES = [
    a_case("one", tags=["smoke", "de"], metadata={"level": 1}, vars={"tone": "polite"}, evaluators=[HELLO]),
    a_case("two", tags=["smoke"], metadata={"level": 3}, evaluators=[HELLO]),
    a_case("three", tags=["slow"], metadata={"level": 5}, skip="needs the new index", evaluators=[HELLO]),
    a_case("four", skip=True, evaluators=[HELLO]),
    a_case("five", execution={"target": "other"}, evaluators=[HELLO]),
]
TARGETS = MOCK + "  - {name: other, provider: mock, response: hello from other}\n"


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", TARGETS)
    write("a.jsonl", CASES)
    return write


def ran_ids(*args: str) -> list[str]:
    """Run the cases with these options, and return the ids of those that ran."""
    evaluate("a.jsonl", "--out", "out.jsonl", *args)
    return [result["eval_id"] for result in results("out.jsonl")]


def refused(*args: str, command: str = "eval") -> str:
    ran = agentv(command, "a.jsonl", *args)
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


def record() -> dict[str, Any]:
    """Return the newest run record."""
    newest = max(Path(".agentv/runs").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    found: dict[str, Any] = json.loads(newest.read_text())
    return found


# ---- filters ----


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (["tag:smoke"], ["one", "two"]),
        (["tag:smoke -tag:de"], ["two"]),
        (["-tag:smoke"], ["five"]),
        (["tag:smoke", "metadata.level>=3"], ["two"]),
        (["metadata.level<3"], ["one"]),
        (["-metadata.level>=3"], ["one", "five"]),
        (["vars.tone:pol*"], ["one"]),
        (["id:t*"], ["two"]),
        (["target:other"], ["five"]),
        (["dataset:a"], ["one", "two", "five"]),
    ],
)
def test_a_filter_selects_cases(project: Write, filters: list[str], ids: list[str]) -> None:
    options = [part for text in filters for part in ("--filter", text)]
    assert ran_ids(*options) == ids


def test_the_target_of_a_filter_is_the_one_that_answers(project: Write) -> None:
    assert ran_ids("--filter", "target:other", "--target", "other") == ["one", "two", "five"]
    assert "no case matches the filter 'target:default'" in refused("--filter", "target:default", "--target", "other")


def test_results_carry_tags_and_variables(project: Write) -> None:
    ran_ids("--filter", "id:one")
    (result,) = results("out.jsonl")
    assert (result["tags"], result["vars"]) == (["smoke", "de"], {"tone": "polite"})


def test_selecting_nothing_is_an_error(project: Write) -> None:
    assert refused("--filter", "tag:smok") == (
        "error: no case matches the filter 'tag:smok'\n"
        "hint: matching is case-sensitive; a field that is absent matches nothing\n"
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("tgs:smoke", "unknown key 'tgs'", "did you mean 'tag'?"),
        ("smoke", "'smoke' is not a term (expected KEY:VALUE)", "for example tag:smoke or metadata.level>=3"),
        ("verdict:fail", "cases have no verdict", "keys of cases: id, tag, dataset, target, metadata.KEY, vars.KEY"),
        ("", "no term", "for example tag:smoke or metadata.level>=3"),
    ],
)
@pytest.mark.parametrize("option", ["--filter", "--require"])
def test_an_invalid_filter_is_an_error(project: Write, option: str, text: str, message: str, hint: str) -> None:
    assert refused(option, text) == f"error: invalid filter {text!r}: {message}\nhint: {hint}\n"


def test_problems_of_other_cases_do_not_matter(project: Write) -> None:
    project("a.jsonl", [*CASES, a_case("bad", tags=["bad"], evaluators=[HELLO], execution={"target": "gone"})])
    assert ran_ids("--filter", "-tag:bad") == ["one", "two", "five"]
    assert "'gone'" in refused("--filter", "tag:bad")


# ---- skip ----


def test_skipped_cases_are_counted_and_not_planned(project: Write) -> None:
    ran = evaluate("a.jsonl", "--out", "out.jsonl")
    assert [result["eval_id"] for result in results("out.jsonl")] == ["one", "two", "five"]
    assert "  3 planned = 3 scored\n  2 cases skipped (--verbose shows why)\n" in ran.stdout
    ledger = record()["ledger"]
    assert (ledger["planned"], ledger["scored"], ledger["skipped"], ledger["invalid"]) == (3, 3, 2, 0)


def test_verbose_shows_why_cases_are_skipped(project: Write) -> None:
    ran = evaluate("a.jsonl", "--verbose")
    assert "a.jsonl:3: case 'three' is skipped: needs the new index\n" in ran.stderr
    assert "a.jsonl:4: case 'four' is skipped: skip: true\n" in ran.stderr


def test_invalid_cases_are_counted_apart_from_skipped_ones(project: Write) -> None:
    project("a.jsonl", [*CASES, {"id": "six", "input": "Query"}])
    evaluate("a.jsonl")
    ledger = record()["ledger"]
    assert (ledger["planned"], ledger["scored"], ledger["skipped"], ledger["invalid"]) == (4, 3, 2, 1)


def test_only_the_exact_id_runs_a_skipped_case(project: Write) -> None:
    assert ran_ids("--eval-id", "three") == ["three"]
    assert ran_ids("--eval-id", "t*") == ["two"]
    assert ran_ids("--eval-id", "t*", "--eval-id", "four") == ["two", "four"]
    assert refused("--eval-id", "thre*") == (
        "error: no case to run: 1 selected case is skipped\n"
        "hint: --verbose shows why; --eval-id with the exact id runs a skipped case\n"
    )


def test_a_filter_does_not_run_a_skipped_case(project: Write) -> None:
    assert "no case to run: 1 selected case is skipped" in refused("--filter", "tag:slow")
    assert ran_ids("--filter", "tag:slow", "--eval-id", "three") == ["three"]


def test_skipped_cases_count_only_if_they_are_selected(project: Write) -> None:
    ran = evaluate("a.jsonl", "--filter", "tag:smoke")
    assert "skipped" not in ran.stdout


def test_skipped_cases_do_not_use_up_the_limit(project: Write) -> None:
    assert ran_ids("--limit", "3") == ["one", "two", "five"]


def test_resume_keeps_the_result_of_a_case_that_is_skipped_now(project: Write) -> None:
    project("a.jsonl", [a_case("one", evaluators=[HELLO]), a_case("two", evaluators=[HELLO])])
    evaluate("a.jsonl", "--out", "out.jsonl")
    project("a.jsonl", [a_case("one", evaluators=[HELLO]), a_case("two", skip="flaky", evaluators=[HELLO])])
    ran = evaluate("a.jsonl", "--out", "out.jsonl", "--resume")
    assert "  1 planned = 1 already done\n  1 case skipped" in ran.stdout
    assert "not in these eval files" not in ran.stderr
    assert len(results("out.jsonl")) == 2


@pytest.mark.parametrize(("skip", "found"), [("[1]", "an array"), ("3", "an integer")])
def test_skip_is_a_text_or_true(project: Write, skip: str, found: str) -> None:
    project("a.yaml", f"evalcases:\n- {{id: a, input: Q, expected_outcome: x, skip: {skip}}}\n")
    ran = agentv("eval", "a.yaml")
    assert ran.returncode == 2
    assert f"a.yaml:2:42: skip: expected a boolean or a string, got {found}\n" in ran.stderr


# ---- samples ----


def many(write: Write, count: int = 40) -> None:
    write("targets.yaml", MOCK)
    cases = []
    for number in range(count):
        tag = "even"
        if number % 2:
            tag = "odd"
        cases.append(a_case(str(number), tags=[tag], skip=number == 6, evaluators=[HELLO]))
    write("a.jsonl", cases)


def test_a_sample_is_drawn_after_filter_and_skip(write: Write) -> None:
    many(write)
    odd = ran_ids("--sample", "5", "--filter", "tag:odd")
    assert len(odd) == 5
    assert all(int(id_) % 2 for id_ in odd)
    everything = ran_ids("--sample", "39")
    assert len(everything) == 39
    assert "6" not in everything


def test_the_seed_decides_the_sample(write: Write) -> None:
    many(write)
    first = ran_ids("--sample", "5")
    assert ran_ids("--sample", "5", "--seed", "0") == first
    other = ran_ids("--sample", "5", "--seed", "1")
    assert len(other) == 5
    assert other != first


def test_limit_and_shards_are_parts_of_the_sample(write: Write) -> None:
    many(write)
    sample = ran_ids("--sample", "8")
    assert ran_ids("--sample", "8", "--limit", "3") == sample[:3]
    first = ran_ids("--sample", "8", "--shard", "1/2")
    second = ran_ids("--sample", "8", "--shard", "2/2")
    assert sorted(first + second) == sorted(sample)


def test_a_sample_spans_all_eval_files(write: Write) -> None:
    many(write)
    write("b.jsonl", [a_case(f"b{number}", evaluators=[HELLO]) for number in range(40)])
    evaluate("a.jsonl", "b.jsonl", "--out", "out.jsonl", "--sample", "10")
    found = [(result["dataset"], result["eval_id"]) for result in results("out.jsonl")]
    assert len(found) == 10
    assert {dataset for dataset, _ in found} == {"a", "b"}


def test_a_sample_is_resumed(write: Write) -> None:
    many(write)
    sample = ran_ids("--sample", "5")
    evaluate("a.jsonl", "--out", "out.jsonl", "--sample", "8", "--resume")
    found = [result["eval_id"] for result in results("out.jsonl")]
    assert found[:5] == sample
    assert len(found) == 8


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--seed", "1"), "error: --seed needs --sample\n"),
        (("--sample", "0"), "--sample"),
        (("--sample", "x"), "--sample"),
        (("--sample", "2", "--seed", "-1"), "--seed"),
        (("--sample", "2", "--sample", "3"), "--sample"),
    ],
)
def test_invalid_samples_are_errors(project: Write, args: tuple[str, ...], message: str) -> None:
    assert message in refused(*args)


# ---- where the selection is seen ----


def test_a_plan_and_a_dry_run_see_the_selection(project: Write) -> None:
    ran = agentv("eval", "a.jsonl", "--plan", "--filter", "tag:smoke", "--format", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["cases"] == 2
    assert ran_ids("--dry-run", "--filter", "tag:de") == ["one"]


def test_the_python_api_has_the_same_options(project: Write) -> None:
    report = asyncio.run(package.evaluate("a.jsonl", filter="tag:smoke", sample=1, seed=3))
    assert len(report.results) == 1
    report = asyncio.run(package.evaluate("a.jsonl", filter=["tag:smoke", "id:two"]))
    assert [result.eval_id for result in report.results] == ["two"]
    with pytest.raises(AgentvError, match="seed needs sample"):
        asyncio.run(package.evaluate("a.jsonl", seed=3))
    with pytest.raises(AgentvError, match="unknown key 'tgs'"):
        asyncio.run(package.evaluate("a.jsonl", filter="tgs:x"))


def test_shards_of_a_filtered_run_are_merged(project: Write) -> None:
    project("a.jsonl", [a_case(str(number), tags=["x"], evaluators=[HELLO]) for number in range(12)])
    for shard in ("1/2", "2/2"):
        evaluate("a.jsonl", "--filter", "tag:x -id:1?", "--shard", shard, "--out", f"{shard[0]}.jsonl")
    ran = agentv("merge", "1.jsonl", "2.jsonl", "--out", "all.jsonl")
    assert ran.returncode == 0, ran.stderr
    assert len(results("all.jsonl")) == 10
