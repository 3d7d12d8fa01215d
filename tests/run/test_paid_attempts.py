"""The cost of failed attempts and of cases cancelled by a time limit counts as spent."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents import Agents
from tests.kits.claude_events import assistant, result
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import ANY, evaluate, results

OVERLOADED = result("Overloaded", is_error=True)


@pytest.fixture
def claude(write: Write) -> Agents:
    return Agents(write, "claude-code")


def record() -> dict[str, Any]:
    """The record of the newest run."""
    newest = max(Path(".agentv/runs").glob("*.json"))
    found: dict[str, Any] = json.loads(newest.read_text())
    return found


def test_failed_attempts_are_kept_in_the_result_and_counted_as_spent(claude: Agents) -> None:
    claude.write("answer", json.dumps(result("Paris", total_cost_usd=0.5)) + "\n")
    claude.does("replay('events' if number < 3 else 'answer')", OVERLOADED)
    (found,) = claude.run("--max-retries", "2")
    metrics = found["execution_metrics"]
    assert metrics["cost_usd"] == 0.5
    assert metrics["retries"]["attempts"] == 2
    assert metrics["retries"]["cost_usd"] == 0.5
    # two times the usage of a result: fresh, cached and written tokens are all input
    tokens = {"input": 2 * 17_204, "output": 2 * 32, "cached": 2 * 17_004, "cache_write": 2 * 192}
    assert metrics["retries"]["token_usage"] == tokens
    assert record()["summary"]["spent_usd"] == 1.0
    assert "$1.0000 spent" in claude.ran.stdout
    assert "2 failed attempts cost $0.5000" in claude.ran.stdout
    shown = agentv("show", "out.jsonl").stdout
    assert "2 failed attempts, $0.5" in shown


def test_a_case_without_an_answer_keeps_its_earlier_attempts_apart_from_the_last(claude: Agents) -> None:
    claude.does("replay()", OVERLOADED)
    (found,) = claude.run("--max-retries", "2", expect=1)
    metrics = found["execution_metrics"]
    assert metrics["cost_usd"] == 0.25
    assert metrics["retries"]["attempts"] == 2
    assert metrics["retries"]["cost_usd"] == 0.5
    assert record()["summary"]["spent_usd"] == 0.75


def test_a_single_attempt_has_no_retries(claude: Agents) -> None:
    found = claude.answer(result("Paris"))
    assert "retries" not in found["execution_metrics"]


def test_attempts_of_unknown_cost_are_counted_without_one(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: http, url: 'http://127.0.0.1:9/', max_retries: 1}]")
    write("a.jsonl", [a_case(evaluators=[ANY])])
    evaluate("a.jsonl", "--max-retries", "1", "--out", "out.jsonl", expect=1)
    (found,) = results("out.jsonl")
    assert found["execution_metrics"] == {"retries": {"attempts": 1}}
    assert "spent_usd" not in record()["summary"]


def test_failed_attempts_count_against_the_budget(claude: Agents) -> None:
    claude.write("answer", json.dumps(result("Paris")) + "\n")
    # The first four answers cost $0.25. Later cases cost $0.50: a failed attempt, and the answer.
    claude.does("replay('answer' if number <= 4 or number % 2 == 0 else 'events')", OVERLOADED)
    ids = ("a", "b", "c", "d")
    claude.run("--workers", "1", ids=ids)
    found = claude.run("--workers", "1", "--max-retries", "1", "--max-cost", "1.2", ids=ids, expect=1)
    assert len(found) == 2
    assert record()["summary"]["spent_usd"] == 1.0


def test_report_counts_failed_attempts(claude: Agents) -> None:
    claude.write("answer", json.dumps(result("Paris", total_cost_usd=0.5)) + "\n")
    claude.does("replay('events' if number < 3 else 'answer')", OVERLOADED)
    claude.run("--max-retries", "2", "--report", "report.html")
    assert "$1.00" in Path("report.html").read_text()


def test_max_duration_cancels_cases_in_flight(claude: Agents, reached: str) -> None:
    claude.does("replay()\nhang()", assistant({"type": "text", "text": "On it."}))
    limits = ("--max-duration", "5", "--agent-timeout", "100000000", "--max-retries", "3")
    found = claude.run(*limits, ids=("a", "b", "c"), expect=1)
    assert found == []
    calls = Path("calls.jsonl").read_text().splitlines()
    assert len(calls) <= 3
    assert "3 planned = 3 not run (budget)" in claude.ran.stdout
    assert "stopped by --max-duration: " in claude.ran.stderr
    assert "cancelled 1 case after 5 s" in claude.ran.stderr
    assert record()["ledger"]["not_run_budget"] == 3


def test_no_retry_starts_after_max_duration(claude: Agents, reached: str) -> None:
    claude.does("hang()")
    claude.run("--max-duration", "5", "--agent-timeout", "8", "--max-retries", "3", expect=1)
    assert len(Path("calls.jsonl").read_text().splitlines()) == 1


def test_the_cost_of_a_cancelled_case_counts_as_spent(claude: Agents, reached: str) -> None:
    claude.write("failure", json.dumps(OVERLOADED) + "\n")
    # The pause lets agentv read the event before the clock jumps.
    claude.does("replay('failure')\ntime.sleep(0.3)\nhang()")
    claude.run("--max-duration", "5", "--agent-timeout", "100000000", expect=1)
    assert record()["summary"]["spent_usd"] == 0.25
    assert results("out.jsonl") == []
