"""Agents that are stopped or fail: their partial answer, trace and cost are kept."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents import ANY, Agents
from tests.kits.claude_events import INIT, api_retry, assistant, model_usage, result, text, tool_result, tool_use
from tests.kits.codex_events import COMPLETED, STARTED, item, message, reconnecting
from tests.kits.processes import PATIENCE_SECONDS, living, start_process, wait_until
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import evaluate, results

SECONDS = 60
TOOK_MS = 200
ONE = {"sonnet": model_usage(fresh=10, cached=5, output=3)}
BOTH = {"sonnet": model_usage(fresh=20, cached=10, output=6), "haiku": model_usage(fresh=1, written=2, output=4)}
REFUSED = "unexpected status 401 Unauthorized: Incorrect API key provided, url: http://127.0.0.1/v1/responses"


@pytest.fixture(autouse=True)
def stop_when_told(reached: str) -> None:
    """Time is up when all that an agent says before it hangs has been said."""


@pytest.fixture
def claude(write: Write) -> Agents:
    return Agents(write, "claude-code")


@pytest.fixture
def codex(write: Write) -> Agents:
    return Agents(write, "codex")


def snapshot(id_: str, output: int, *blocks: dict[str, Any]) -> dict[str, Any]:
    """A part of a message, with the tokens that were known when it was written."""
    event = assistant(*blocks)
    event["message"] |= {"id": id_, "usage": {"input_tokens": 7, "output_tokens": output}}
    return event


def stopped(agents: Agents, *args: str, **streams: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The results of cases for which the program writes these events, does not exit, and is stopped in the end."""
    for name, events in streams.items():
        agents.write(name, "".join(json.dumps(event) + "\n" for event in events))
    late = json.dumps(result("interrupted", is_error=True))
    complain = f"signal.signal(signal.SIGTERM, lambda *_: (print({late!r}, flush=True), os._exit(1)))"
    agents.does(f"{complain}\nreplay(prompt.strip())\ntime.sleep({TOOK_MS / 1000})\nhang()")
    entry = {"name": "default", "provider": agents.provider, "timeout_seconds": SECONDS, **agents.settings}
    agents.write("targets.yaml", json.dumps({"targets": [entry]}))
    questions = [(name, [{"role": "user", "content": name}]) for name in streams]
    agents.write("cases.jsonl", [a_case(name, input_messages=asked, evaluators=[ANY]) for name, asked in questions])
    agents.ran = evaluate("cases.jsonl", "--out", "out.jsonl", "--include-trace", *args, expect=1)
    return {found["eval_id"]: found for found in results("out.jsonl")}


def test_stopping_claude_keeps_its_answer_or_partial_data(claude: Agents) -> None:
    call = assistant(tool_use("t1", "Bash", command="sleep 300"))
    found = stopped(
        claude,
        answered=[INIT, assistant(text("Paris")), result("Paris", modelUsage=ONE)],
        going_on=[result("Paris", modelUsage=ONE), assistant(text("And now")), call],
        twice=[result("Paris", modelUsage=ONE), result("Lyon", modelUsage=BOTH, total_cost_usd=0.5)],
        failed=[result("Paris"), result("Overloaded", is_error=True, total_cost_usd=0.5)],
        at_work=[
            snapshot("m1", 1, text("Let me see.")),
            snapshot("m1", 9, tool_use("t1", "Read", file_path="a.md")),
            tool_result("t1", "gone", is_error=True),
            snapshot("m2", 1, tool_use("t2", "Bash", command="sleep 300")),
        ],
        silent=[INIT],
    )
    note = "the agent did not exit after its answer"
    for name, answer in (("answered", "Paris"), ("going_on", "Paris"), ("twice", "Lyon")):
        assert (found[name]["candidate_answer"], found[name]["note"]) == (answer, note)
        assert (found[name]["verdict"], found[name].get("error")) == ("pass", None)
    assert found["answered"]["execution_metrics"]["token_usage"] == {"input": 15, "output": 3, "cached": 5}
    assert found["twice"]["execution_metrics"]["cost_usd"] == 0.5
    failed, at_work, silent = found["failed"], found["at_work"], found["silent"]
    assert failed["error"] == f"timed out after {SECONDS} s: claude-code reports a failure: Overloaded"
    assert (failed["failure"], failed["execution_metrics"]["cost_usd"]) == ("timeout", 0.5)
    assert (at_work["error"], at_work["failure"]) == (f"timed out after {SECONDS} s", "timeout")
    assert (at_work["score"], at_work["candidate_answer"]) == (0.0, "")
    assert at_work["execution_metrics"]["token_usage"] == {"input": 14, "output": 10}
    assert at_work["execution_metrics"]["duration_ms"] >= TOOK_MS
    assert [(event["name"], event.get("output")) for event in at_work["trace"]] == [("Read", "gone"), ("Bash", None)]
    assert at_work["trace_summary"]["errorCount"] == 1
    assert not {"trace", "trace_summary", "execution_metrics"} & silent.keys()


def test_stopping_codex_keeps_its_answer_or_partial_data(codex: Agents) -> None:
    found = stopped(
        codex,
        answered=[*STARTED, message(), COMPLETED],
        at_work=[*STARTED, item("command_execution", "started", command="/bin/bash -lc ls", status="in_progress")],
    )
    assert found["answered"]["candidate_answer"] == "Paris"
    assert found["answered"]["note"] == "the agent did not exit after its answer"
    assert (found["at_work"]["failure"], found["at_work"]["candidate_answer"]) == ("timeout", "")
    assert found["at_work"]["trace"][0]["input"] == {"command": "ls"}


def test_retries_of_claude_are_counted_and_the_last_one_is_named(claude: Agents) -> None:
    found = stopped(
        claude,
        "--max-retries=1",
        refused=[INIT, api_retry(1, 529, "overloaded"), api_retry(2, 401, "authentication_failed")],
        busy=[INIT, api_retry(1, 529, "overloaded")],
        recovered=[api_retry(1, 403, "authentication_failed"), assistant(tool_use("t1", "Bash", command="sleep"))],
    )
    for line in ("attempt 1 failed, retrying: 529 overloaded", "attempt 2 failed, retrying: 401 authen"):
        assert f"refused, inner request: {line}" in claude.ran.stderr
    late = f"timed out after {SECONDS} s"
    assert found["refused"]["error"] == f"{late}: it last retried because of 401 authentication_failed"
    assert found["refused"]["attempt"] == 1  # a second try would be refused as well
    assert found["busy"]["error"] == f"{late}: it last retried because of 529 overloaded"
    assert found["busy"]["attempt"] == 2
    assert (found["recovered"]["error"], found["recovered"]["attempt"]) == (late, 2)


def test_retries_of_codex_are_counted_and_the_last_one_is_named(codex: Agents) -> None:
    found = stopped(codex, "--max-retries=1", refused=[*STARTED, *(reconnecting(n, REFUSED) for n in (1, 2))])
    line = f"refused, inner request: attempt 2 failed, retrying: {REFUSED}"
    assert line in codex.ran.stderr
    assert found["refused"]["error"] == f"timed out after {SECONDS} s: it last retried because of {REFUSED}"
    assert found["refused"]["attempt"] == 1


def test_an_interrupt_discards_the_answer_of_an_agent(claude: Agents, nap: str) -> None:
    """A run that is stopped has no result for a case that was not done, and resumes there."""
    claude.does("replay()", result()).run(ids=("before",))
    claude.does(f"replay()\nsubprocess.run({nap.split()!r})", result(), "")
    claude.write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    line = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--out", "late.jsonl"]
    run = start_process(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: living(nap) != [])
    run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE_SECONDS) == 130
    assert living(nap) == []
    assert not Path("late.jsonl").exists() or results("late.jsonl") == []


def test_a_failure_keeps_the_trace_the_tokens_and_the_cost(claude: Agents) -> None:
    call = assistant(tool_use("t1", "Read", file_path="a.md"))
    claude.does("replay()", call, result(None, "error_max_turns", modelUsage=BOTH, total_cost_usd=0.5))
    (found,) = claude.run("--dump-traces", expect=1)
    assert (found["error"], found["score"]) == ("claude-code reports a failure: error_max_turns", 0.0)
    tokens = {"input": 33, "output": 10, "cached": 10, "cache_write": 2}
    assert found["execution_metrics"]["token_usage"] == tokens
    assert found["trace_summary"]["costUsd"] == found["execution_metrics"]["cost_usd"] == 0.5
    assert [event["name"] for event in found["trace"]] == ["Read"]
    (dump,) = Path(".agentv/traces").iterdir()
    assert json.loads(dump.read_text())["trace_summary"]["toolNames"] == ["Read"]
    assert "cost $0.5" in claude.ran.stdout  # it has to be paid all the same


def test_a_program_that_crashes_keeps_partial_data(codex: Agents) -> None:
    events = [*STARTED, item("command_execution", command="ls", status="failed"), message()]
    found = codex.answer(*events, then="sys.exit('oh no')", expect=1)
    assert found["error"] == "codex failed with exit code 1: oh no"
    assert found["trace_summary"]["toolCallsByName"] == {"command_execution": 1}
    assert found["candidate_answer"] == ""
    assert "tool_call command_execution (failed) " in agentv("show", "out.jsonl", "--trace").stdout
