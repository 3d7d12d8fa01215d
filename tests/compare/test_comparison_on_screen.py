"""The text of `agentv compare`: missing cases, changes, durations and groups."""

import json
import os
import pty
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kits.comparisons import compared, line, save
from tests.kits.project import Write, agentv, flat
from tests.kits.terminal import read_terminal

MANY = {f"c{number}": 0.5 + number % 3 / 10 for number in range(20)}
BETTER = {name: score + 0.1 + (name == "c3") / 10 for name, score in MANY.items()}


def told(*args: str, code: int = 0) -> str:
    ran = agentv("compare", "a.jsonl", "b.jsonl", *args)
    assert ran.returncode == code, ran.stderr
    return ran.stderr


def test_the_verdict_mentions_missing_cases(write: Write) -> None:
    for missing, where in (("a", "b"), ("b", "a")):
        save(write, "a.jsonl", MANY if missing == "b" else dict(list(MANY.items())[2:]))
        save(write, "b.jsonl", BETTER if missing == "a" else dict(list(BETTER.items())[2:]))
        text = told()
        assert text.startswith("BETTER (for the cases in both runs): Δ ")
        only = f"2 cases are only in {where}.jsonl and not in {missing}.jsonl: the verdict covers the 18 in both"
        assert f"warning: {only}\n" in text
    assert (
        "verdict: BETTER (for the cases in both runs)   ("
        in agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout
    )
    found = compared("a.jsonl", "b.jsonl")
    assert found["warnings"] == [only]


def test_a_regression_stays_one_if_cases_are_missing(write: Write) -> None:
    save(write, "a.jsonl", BETTER)
    save(write, "b.jsonl", dict(list(MANY.items())[1:]))
    assert "1 case is only in a.jsonl and not in b.jsonl" in told("--gate", "ci", code=1)


def test_help_describes_gates_and_missing_cases() -> None:
    text = flat(agentv("compare", "--help").stdout)
    assert "Every gate except mean fails (1) if B lacks a case of A that is still in the eval files" in text
    assert "no-regressions 0: all cases that passed in A pass in B" in text


def on_terminal(*args: str, columns: int = 80) -> list[str]:
    """Run `agentv compare` with stdout on a terminal, and return the lines that it shows."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agentv", "compare", "a.jsonl", "b.jsonl", *args]
    subprocess.run(
        command,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": str(columns)},
        check=True,
        timeout=120,
    )
    os.close(theirs)
    return read_terminal(ours).replace("\r", "").splitlines()


def test_the_default_is_a_table_on_a_terminal_and_json_elsewhere(write: Write) -> None:
    save(write, "a.jsonl", MANY)
    save(write, "b.jsonl", BETTER)
    lines = on_terminal()
    assert lines[0] == "A = a.jsonl   B = b.jsonl"
    assert len(lines) < 20
    assert on_terminal("--format", "json")[0] == "{"
    assert compared("a.jsonl", "b.jsonl")["summary"]["matched"] == 20


@pytest.mark.parametrize(
    ("name", "options", "start"),
    [
        ("report.md", (), "### agentv: better"),
        ("report.MD", (), "### agentv: better"),
        ("report.json", (), "{"),
        ("report.txt", (), "{"),
        ("report.md", ("--format", "json"), "{"),
        ("report.json", ("--format", "table"), "A = a.jsonl"),
    ],
)
def test_the_format_of_a_file_follows_its_extension(
    write: Write, name: str, options: tuple[str, ...], start: str
) -> None:
    save(write, "a.jsonl", MANY)
    save(write, "b.jsonl", BETTER)
    assert told("--out", name, *options).startswith("BETTER: ")
    assert Path(name).read_text().startswith(start)


@pytest.mark.parametrize(("pairs", "share"), [(2, "78%"), (10, "26%"), (100, "3%"), (1000, "0.3%"), (30000, "0.01%")])
def test_identical_pairs_report_the_remaining_uncertainty(write: Write, pairs: int, share: str) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        save(write, name, {f"c{number}": 0.5 for number in range(pairs)})
    note = f"no pair differs: given {pairs} identical pairs, up to {share} of all cases could still differ"
    code = 0
    if pairs < 10:
        code = 3
    assert f"note: {note} (95% confidence)\n" in told("--gate", "noninferior", "--margin", "0.001", code=code)
    for form in ("table", "markdown"):
        ran = agentv("compare", "a.jsonl", "b.jsonl", "--format", form)
        assert f"note: {note}" in ran.stdout
        assert "no variation to estimate" not in ran.stdout


def test_verdicts_of_groups_need_a_corrected_p_value_below_5_percent(write: Write) -> None:
    """With many groups, some differences are significant by coincidence."""
    pick = random.Random(4)
    before = []
    after = []
    for group in range(12):
        for number in range(15):
            metadata = {"segment": f"s{group}"}
            before.append(line(f"c{group}-{number}", 0.5, metadata=metadata))
            shift = 0.02 if group == 0 else 0.0
            shift += 0.3 if group == 1 else 0.0
            score = round(0.5 + shift + pick.uniform(-0.06, 0.06), 3)
            after.append(line(f"c{group}-{number}", score, metadata=metadata))
    write("a.jsonl", "".join(before))
    write("b.jsonl", "".join(after))
    parts = compared("a.jsonl", "b.jsonl", "--by", "segment")["by"]["segment"]
    for part in parts:
        low, high = part["statistics"]["interval"]
        assert part["p_holm"] == part["p_adjusted"]
        is_significant = part["p_holm"] < 0.05
        expected = "cannot tell"
        if low > -0.02:
            expected = "not worse"
        if low > 0 and is_significant:
            expected = "better"
        if high < 0 and is_significant:
            expected = "worse"
        assert part["statistics"]["verdict"] == expected
    by_name = {part["name"]: part["statistics"] for part in parts}
    assert by_name["s1"]["verdict"] == "better"
    corrected = [part for part in parts if part["statistics"]["interval"][0] > 0 and part["p_holm"] >= 0.05]
    assert corrected, "no group shows the difference: choose another seed"


def test_results_of_a_dry_run_are_reported(write: Write) -> None:
    save(write, "a.jsonl", MANY)
    save(write, "b.jsonl", MANY, dry_run=True)
    assert "warning: b.jsonl: 20 results are from a dry run: a mock answered instead of the target\n" in told()
    assert compared("a.jsonl", "b.jsonl")["files"][1]["dry_run"] == 20


def test_a_changed_target_is_named(write: Write) -> None:
    def digests(target: str) -> dict[str, str]:
        return {"case": "c", "target": target, "evaluators": "e", "agentv": "1"}

    save(write, "a.jsonl", MANY, target="default", digests=digests("one"))
    save(write, "b.jsonl", MANY, target="default", digests=digests("two"))
    assert "\ntarget 'default' has changed between the runs\n" in told()
    assert (
        "\ntarget 'default' has changed between the runs\n"
        in agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout
    )
    assert compared("a.jsonl", "b.jsonl")["changed"]["targets"] == ["default"]
    save(write, "b.jsonl", MANY, target="default", digests=digests("one"))
    assert "another version" not in told()
    save(write, "b.jsonl", MANY, target="new", digests=digests("two"))
    assert "another version" not in told()


def test_duration_and_cost_per_answer_with_their_change(write: Write) -> None:
    def took(tokens: int, cost: float, duration: float) -> dict[str, Any]:
        usage = {"input": tokens, "output": 10}
        return {"token_usage": usage, "cost_usd": cost, "duration_ms": duration}

    save(write, "a.jsonl", MANY, execution_metrics=took(1000, 0.02, 1200))
    save(write, "b.jsonl", MANY, execution_metrics=took(1500, 0.03, 900), stop_reason="length")
    ran = agentv("compare", "a.jsonl", "b.jsonl", "--format", "table")
    assert (
        "per answer      A         B         change\n"
        "input tokens    1,000     1,500     +50%\n"
        "output tokens   10        10        ±0%\n"
        "cost            $0.0200   $0.0300   +50%\n"
        "duration p50    1.2 s     900 ms    −25%\n"
        "duration p95    1.2 s     900 ms    −25%\n"
    ) in ran.stdout
    assert "| cut off B 20\n" in ran.stdout
    assert "per answer: input tokens 1,000 -> 1,500 (+50%), " in told()
    assert compared("a.jsonl", "b.jsonl")["files"][1]["per_answer"]["cost_usd"] == pytest.approx(0.03)
    save(write, "b.jsonl", MANY)
    assert "cost $0.0200 -> unknown, duration" in told()


def test_groups_by_a_key_of_the_metadata(write: Write) -> None:
    """Runs without the key are grouped by the other run's values. Cases without a value are a group, too."""
    topics = {f"c{number}": "geo" if number < 12 else "math" for number in range(19)}
    save(write, "a.jsonl", MANY)
    text = [
        line(name, score, metadata={"topic": topics[name]} if name in topics else {}) for name, score in BETTER.items()
    ]
    write("b.jsonl", "".join(text))
    found = compared("a.jsonl", "b.jsonl", "--by", "topic")["by"]["topic"]
    assert [(part["name"], part["statistics"]["pairs"]) for part in found] == [
        ("geo", 12),
        ("math", 7),
        ("(no topic)", 1),
    ]
    raw = [part["statistics"]["tests"][0]["p_value"] for part in found]
    assert found[0]["p_adjusted"] == pytest.approx(3 * raw[0])
    table = agentv("compare", "a.jsonl", "b.jsonl", "--by", "topic", "--format", "table").stdout
    assert "Holm over 3 groups of topic: geo, math significant" in table
    assert "note: no result has 'topik' (did you mean 'topic'?)\n" in told("--by", "topik")
    for form in ("table", "markdown"):
        misspelt = agentv("compare", "a.jsonl", "b.jsonl", "--by", "topik", "--format", form).stdout
        assert "no result has 'topik'" in misspelt
        assert "p (Holm)" not in misspelt
        assert "Holm over" not in misspelt


def test_crossed_groups(write: Write) -> None:
    """A run from before the metadata was there is grouped by the other one."""

    def parts(score: float) -> list[dict[str, Any]]:
        return [{"name": "contains", "score": score}, {"name": "judge", "score": 1.0}]

    before = [line(name, score, evaluator_results=parts(score)) for name, score in MANY.items()]
    write("a.jsonl", "".join(before))
    after = []
    for number, (name, score) in enumerate(BETTER.items()):
        metadata = {"segment": "web"} if number < 12 else {}
        after.append(line(name, score, evaluator_results=parts(score), metadata=metadata))
    write("b.jsonl", "".join(after))
    found = compared("a.jsonl", "b.jsonl", "--by", "segment", "--by", "evaluator")["by"]["segment,evaluator"]
    assert [(part["name"], part["keys"], part["statistics"]["pairs"]) for part in found] == [
        ("web / contains", {"segment": "web", "evaluator": "contains"}, 12),
        ("(no segment) / contains", {"segment": None, "evaluator": "contains"}, 8),
        ("web / judge", {"segment": "web", "evaluator": "judge"}, 12),
        ("(no segment) / judge", {"segment": None, "evaluator": "judge"}, 8),
    ]
    found = compared("a.jsonl", "b.jsonl", "--by", "target", "--by", "segment")["by"]["target,segment"]
    assert [part["keys"]["segment"] for part in found] == ["web", None]
    table = agentv("compare", "a.jsonl", "b.jsonl", "--by", "evaluator", "--by", "segment", "--format", "table").stdout
    assert "Holm over 4 groups of evaluator,segment: " in table
    assert "keys" not in compared("a.jsonl", "b.jsonl", "--by", "segment")["by"]["segment"][0]
    assert "note: no result has 'segmet' (did you mean 'segment'?)\n" in told("--by", "evaluator", "--by", "segmet")


def test_groups_by_conversation_and_very_many_of_them(write: Write) -> None:
    cases = [json.dumps({"eval_id": f"c{n}", "score": 0.5, "conversation_id": str(n // 2)}) for n in range(120)]
    for name in ("a.jsonl", "b.jsonl"):
        write(name, "\n".join(cases) + "\n")
    assert len(compared("a.jsonl", "b.jsonl", "--by", "conversation_id")["by"]["conversation_id"]) == 50
    left_out = "by conversation_id: 10 smaller groups are not shown"
    assert f"note: {left_out}\n" in told("--by", "conversation_id")


def test_an_empty_key_is_refused(write: Write) -> None:
    save(write, "a.jsonl", MANY)
    ran = agentv("compare", "a.jsonl", "a.jsonl", "--by", "")
    assert ran.returncode == 2
    assert (
        "invalid value for '--by': empty: expected a metadata key, or evaluator, dataset, target or conversation_id"
        in ran.stderr
    )


def test_equal_differences_have_no_interval(write: Write) -> None:
    save(write, "a.jsonl", MANY)
    save(write, "b.jsonl", {name: score + 0.1 for name, score in MANY.items()})
    text = told()
    assert text.startswith("BETTER: Δ +0.100, 95% CI none (no variation), 20 pairs")
    assert "note: no confidence interval: all differences are equal\n" in text


def test_a_narrow_terminal_breaks_no_number(write: Write) -> None:
    save(write, "a.jsonl", MANY, dataset="one")
    save(write, "b.jsonl", BETTER, dataset="one")
    lines = on_terminal("--by", "dataset", columns=60)
    assert [text for text in lines if len(text) > 60] == []
    at = lines.index("dataset: one")
    assert lines[at + 1].startswith("  pairs 20, mean A ")


def test_reasoning_tokens_are_compared_where_there_are_any(write: Write) -> None:
    def took(reasoning: int) -> dict[str, Any]:
        return {"token_usage": {"input": 10, "output": 100, "reasoning": reasoning}}

    save(write, "a.jsonl", MANY, execution_metrics=took(50))
    save(write, "b.jsonl", MANY, execution_metrics=took(80))
    ran = agentv("compare", "a.jsonl", "b.jsonl", "--format", "table")
    assert re.search(r"^reasoning tokens +50 +80 +\+60%$", ran.stdout, re.MULTILINE)
    assert compared("a.jsonl", "b.jsonl")["files"][1]["per_answer"]["reasoning_tokens"] == 80
    save(write, "a.jsonl", MANY, execution_metrics=took(0))
    assert "reasoning" not in agentv("compare", "a.jsonl", "a.jsonl", "--format", "table").stdout


def digests_of(**fields: Any) -> dict[str, Any]:
    """Return digests of a result, with some of them replaced."""
    return {"case": "c", "target": "t", "evaluators": "e", "prompts": "p", "agentv": "1", "format": 2, **fields}


def test_another_build_of_agentv_is_not_a_change(write: Write) -> None:
    save(write, "a.jsonl", MANY, target="default", digests=digests_of(agentv="0.1"))
    save(write, "b.jsonl", MANY, target="default", digests=digests_of(agentv="0.2"))
    assert "changed besides the target" not in told()
    assert "agentv" not in compared("a.jsonl", "b.jsonl")["changed"]


def test_digests_of_another_format_are_compared_only_where_they_cover_the_same(write: Write) -> None:
    old = digests_of(format=1, target="t1", evaluators="e1", prompts="p1")
    save(write, "a.jsonl", MANY, target="default", digests=old)
    save(write, "b.jsonl", MANY, target="default", digests=digests_of(settings="s", files="f"))
    changed = compared("a.jsonl", "b.jsonl")["changed"]
    assert changed["formats"] == len(MANY)
    assert (changed["evaluators"], changed["prompts"], changed["target"], changed["targets"]) == (0, 0, 0, [])
    said = told()
    assert said.count("different digest formats") == 1
    assert "changed besides the target" not in said
    assert "another version" not in said

    # The digest of a case covers the same in all formats.
    save(write, "b.jsonl", MANY, target="default", digests=digests_of(case="other"))
    assert compared("a.jsonl", "b.jsonl")["changed"]["cases"] == len(MANY)


def test_settings_and_files_are_compared_across_formats_that_have_them(write: Write) -> None:
    save(write, "a.jsonl", MANY, target="default", digests=digests_of(target="t1", settings="s", files="f"))
    newer = digests_of(format=3, target="t2", settings="s", files="f")
    save(write, "b.jsonl", MANY, target="default", digests=newer)
    assert compared("a.jsonl", "b.jsonl")["changed"]["targets"] == []
    save(write, "b.jsonl", MANY, target="default", digests=newer | {"settings": "other"})
    assert compared("a.jsonl", "b.jsonl")["changed"]["targets"] == ["default"]


def test_trials_in_two_digest_formats_are_not_mixed(write: Write) -> None:
    old = digests_of(format=1, target="t1", evaluators="e1", prompts="p1")
    first = [line(eval_id, score, trial=1, digests=old) for eval_id, score in MANY.items()]
    second = [line(eval_id, score, trial=2, digests=digests_of()) for eval_id, score in MANY.items()]
    write("a.jsonl", "".join([*first, *second]))
    write("b.jsonl", "".join([*first, *second]))
    assert compared("a.jsonl", "b.jsonl")["changed"]["mixed"] == 0
