"""What `agentv compare` says besides the figures: what is missing, what changed, what answers took, and groups."""

import json
import os
import pty
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.kits.comparisons import compared, line, save
from tests.kits.project import Write, agentv
from tests.kits.terminal import read_terminal

MANY = {f"c{number}": 0.5 + number % 3 / 10 for number in range(20)}
BETTER = {name: score + 0.1 + (name == "c3") / 10 for name, score in MANY.items()}


def told(*args: str, code: int = 0) -> str:
    ran = agentv("compare", "a.jsonl", "b.jsonl", *args)
    assert ran.returncode == code, ran.stderr
    return ran.stderr


@pytest.mark.parametrize(("gate", "full"), [("ci", 0), ("noninferior", 0), ("mean", 0)])
def test_a_gate_by_interval_does_not_pass_if_cases_are_missing(write: Write, gate: str, full: int) -> None:
    save(write, "a.jsonl", MANY)
    save(write, "b.jsonl", BETTER)
    assert told("--gate", gate, code=full).startswith("BETTER: Δ ")
    for missing, where in (("a", "b"), ("b", "a")):
        save(write, "a.jsonl", MANY if missing == "b" else dict(list(MANY.items())[2:]))
        save(write, "b.jsonl", BETTER if missing == "a" else dict(list(BETTER.items())[2:]))
        text = told("--gate", gate, code=0 if gate == "mean" else 3)
        assert text.startswith("BETTER, of the cases in both: Δ ")
        only = f"2 cases are only in {where}.jsonl and not in {missing}.jsonl: the verdict is about the 18 in both"
        assert f"warning: {only}\n" in text
        why = f"gate {gate}: cannot tell for b.jsonl, as not all cases are in both files\n"
        assert (why in text) == (gate != "mean")
    assert (
        "verdict: BETTER, of the cases in both   ("
        in agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout
    )
    found = compared("a.jsonl", "b.jsonl")
    assert found["warnings"] == [only]


def test_a_regression_stays_one_if_cases_are_missing(write: Write) -> None:
    save(write, "a.jsonl", BETTER)
    save(write, "b.jsonl", dict(list(MANY.items())[1:]))
    assert "1 case is only in a.jsonl and not in b.jsonl" in told("--gate", "ci", code=1)


def test_help_tells_of_missing_cases() -> None:
    assert (
        "If one file lacks cases of the other, ci and noninferior do not pass: 3." in agentv("compare", "--help").stdout
    )


def test_results_of_a_dry_run_are_said(write: Write) -> None:
    save(write, "a.jsonl", MANY)
    save(write, "b.jsonl", MANY, dry_run=True)
    assert "warning: b.jsonl: 20 results are of a dry run: a mock answered, not the target\n" in told()
    assert compared("a.jsonl", "b.jsonl")["files"][1]["dry_run"] == 20


def test_a_target_that_is_another_version_is_named(write: Write) -> None:
    def digests(target: str) -> dict[str, str]:
        return {"case": "c", "target": target, "evaluators": "e", "agentv": "1"}

    save(write, "a.jsonl", MANY, target="default", digests=digests("one"))
    save(write, "b.jsonl", MANY, target="default", digests=digests("two"))
    assert "\ntarget default is another version\n" in told()
    assert (
        "\ntarget default is another version\n" in agentv("compare", "a.jsonl", "b.jsonl", "--format", "table").stdout
    )
    assert compared("a.jsonl", "b.jsonl")["changed"]["targets"] == ["default"]
    save(write, "b.jsonl", MANY, target="default", digests=digests("one"))
    assert "another version" not in told()
    save(write, "b.jsonl", MANY, target="new", digests=digests("two"))
    assert "another version" not in told()


def test_what_answers_took_and_the_change(write: Write) -> None:
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
    """A run from before the key was there is grouped by the other; what nobody has it for is a group too."""
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


def test_groups_by_conversation_and_very_many_of_them(write: Write) -> None:
    cases = [json.dumps({"eval_id": f"c{n}", "score": 0.5, "conversation_id": str(n // 2)}) for n in range(120)]
    for name in ("a.jsonl", "b.jsonl"):
        write(name, "\n".join(cases) + "\n")
    assert len(compared("a.jsonl", "b.jsonl", "--by", "conversation_id")["by"]["conversation_id"]) == 50
    left_out = "by conversation_id: 10 more groups, each as large as the last or smaller, are left out"
    assert f"note: {left_out}\n" in told("--by", "conversation_id")


def test_an_empty_key_is_refused(write: Write) -> None:
    save(write, "a.jsonl", MANY)
    ran = agentv("compare", "a.jsonl", "a.jsonl", "--by", "")
    assert ran.returncode == 2
    assert "it is empty: name a key of metadata, or evaluator, dataset, target, conversation_id" in ran.stderr


def test_equal_differences_have_no_interval(write: Write) -> None:
    save(write, "a.jsonl", MANY)
    save(write, "b.jsonl", {name: score + 0.1 for name, score in MANY.items()})
    text = told()
    assert text.startswith("BETTER: Δ +0.100, 95% CI none (no variation), 20 pairs")
    assert "note: all the differences are the same: there is no variation to estimate an interval from\n" in text


def test_a_narrow_terminal_breaks_no_number(write: Write) -> None:
    save(write, "a.jsonl", MANY, dataset="one")
    save(write, "b.jsonl", BETTER, dataset="one")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agentv", "compare", "a.jsonl", "b.jsonl", "--format", "table", "--by", "dataset"]
    subprocess.run(command, stdout=theirs, env={**os.environ, "COLUMNS": "60"}, check=True, timeout=120)
    os.close(theirs)
    lines = read_terminal(ours).replace("\r", "").splitlines()
    assert [text for text in lines if len(text) > 60] == []
    at = lines.index("one")
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
