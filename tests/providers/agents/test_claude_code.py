"""Claude Code, tested with a program that replays its documented events."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents import Agents
from tests.kits.claude_events import (
    INIT,
    api_retry,
    assistant,
    model_usage,
    permission_denied,
    result,
    text,
    tool_result,
    tool_use,
)
from tests.kits.project import Write, a_case
from tests.kits.runs import evaluate, results


@pytest.fixture
def claude(write: Write) -> Agents:
    return Agents(write, "claude-code")


def test_the_documented_stream_becomes_answer_calls_tokens_and_cost(claude: Agents) -> None:
    found = claude.answer(
        INIT,
        assistant({"type": "thinking", "thinking": "Hm.", "signature": "x"}),
        assistant(text("I will look.")),
        assistant(tool_use("t1", "Read", file_path="a.md"), tool_use("t2", "mcp__geo__capital", of="France")),
        tool_result("t2", [{"type": "text", "text": "Paris"}]),
        tool_result("t1", "File does not exist.", is_error=True),
        assistant(text("Paris")),
        result(),
    )
    assert found["candidate_answer"] == "Paris"
    for call in found["trace"]:
        assert call.pop("timestamp").endswith("Z")
        assert call["metadata"].pop("duration_ms") >= 0
    assert found["trace"] == [
        {
            "type": "tool_call",
            "id": "t1",
            "name": "Read",
            "input": {"file_path": "a.md"},
            "output": "File does not exist.",
            "metadata": {"is_error": True},
        },
        {
            "type": "tool_call",
            "id": "t2",
            "name": "geo.capital",
            "input": {"of": "France"},
            "output": "Paris",
            "metadata": {"agent_tool": "mcp__geo__capital"},
        },
    ]
    assert found["trace_summary"]["errorCount"] == 1
    assert found["execution_metrics"].pop("duration_ms") != 2006  # which is of the last result only
    assert found["execution_metrics"] == {
        "token_usage": {"input": 8 + 192 + 17004, "output": 32, "cached": 17004, "cache_write": 192},
        "cost_usd": 0.25,
    }


def test_how_the_program_is_called(claude: Agents) -> None:
    claude.settings |= {"model": "opus", "system_prompt": "Be brief.", "args": ["--max-turns", "3"]}
    claude.answer(result())
    (call,) = claude.calls
    asked = ["-p", "--output-format", "stream-json", "--verbose", "--no-session-persistence", "--model", "opus"]
    assert call["args"] == [*asked, "--append-system-prompt", "Be brief.", "--max-turns", "3"]
    assert call["prompt"] == "Query"
    assert call["files"] == []
    assert not Path(call["cwd"]).exists()


def test_the_prompt_contains_guidelines_and_links_to_readable_files(claude: Agents) -> None:
    path = claude.write("a b.py", "pass")
    claude.write("style.instructions.md", "Use British spelling.")
    blocks = [{"type": "file", "value": name} for name in ("style.instructions.md", "a b.py")]
    claude.case = {"input_messages": [{"role": "user", "content": [{"type": "text", "value": "Explain"}, *blocks]}]}
    claude.answer(result())
    (call,) = claude.calls
    assert call["args"][5:] == ["--allowedTools", f"Read(/{path})"]
    assert call["prompt"] == (
        "Follow these guidelines:\n\nUse British spelling.\n\n"
        f"Read these files before you do anything else:\n* [a b.py]({path.as_uri()})\n\n"
        'Explain\n<Attached: style.instructions.md>\n<file: path="a b.py">'
    )


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (result("Invalid API key", is_error=True), "claude-code reports a failure: Invalid API key"),
        (result(None, "error_max_turns"), "claude-code reports a failure: error_max_turns"),
        (
            result(None, "error_during_execution", errors=["no such session", {"code": 7}]),
            'claude-code reports a failure: error_during_execution: no such session; {"code":7}',
        ),
        (result(None, "error_max_turns", is_error=False), "claude-code reports a failure: error_max_turns"),
        (result("", is_error=True), "claude-code reports a failure: no reason given"),
    ],
)
def test_a_reported_failure_is_an_error_even_with_exit_code_0(
    claude: Agents, event: dict[str, Any], error: str
) -> None:
    assert claude.error(INIT, assistant(text("On it.")), event) == error


def test_the_reported_failure_takes_precedence_over_the_exit_code(claude: Agents) -> None:
    error = claude.error(INIT, result("Overloaded", is_error=True), then="sys.exit('oh no')")
    assert error == "claude-code reports a failure: Overloaded"


def test_temporary_failures_are_retried_and_usage_limits_are_not(claude: Agents) -> None:
    claude.write("again", '{"type": "result", "subtype": "success", "result": "Paris"}\n')
    claude.does("replay('events' if number == 1 else 'again')", result("Overloaded", is_error=True))
    (found,) = claude.run("--max-retries", "2")
    assert (found["candidate_answer"], found["attempt"]) == ("Paris", 2)
    assert [name.rpartition("_")[2] for name in claude.logs()] == ["attempt-1.jsonl", "attempt-2.jsonl"]
    claude.does("replay()", result(None, "error_max_turns"))
    (found,) = claude.run("--max-retries", "2", expect=1)
    assert found["attempt"] == 1


@pytest.mark.parametrize(
    ("then", "error"),
    [
        ("sys.exit('not logged in')", "claude-code failed with exit code 1: not logged in"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "claude-code was killed by SIGSEGV"),
    ],
)
def test_a_nonzero_exit_code_is_an_error_regardless_of_the_answer(claude: Agents, then: str, error: str) -> None:
    assert claude.error(INIT, result(), then=then).startswith(error)


@pytest.mark.parametrize("events", [(), (INIT,), (INIT, assistant(text(" "))), (result(None),), (result("  "),)])
def test_a_program_without_an_answer_is_an_error_with_its_output(
    claude: Agents, events: tuple[dict[str, Any], ...]
) -> None:
    error = claude.error(*events, then="print('out of credit', file=sys.stderr)")
    assert error == "claude-code ended without an answer: out of credit"


def test_intermediate_messages_are_not_an_answer(claude: Agents) -> None:
    error = claude.error(assistant(text("I will start by reading the file.")))
    assert error.startswith("claude-code stopped before it was done")


def test_an_empty_result_means_the_last_text_of_the_main_agent(claude: Agents) -> None:
    helper = assistant(text("found it"), tool_use("t9", "Grep", pattern="x"), parent_tool_use_id="t1")
    found = claude.answer(assistant(text("Let me see.")), assistant(text("Paris")), helper, result(""))
    assert found["candidate_answer"] == "Paris"
    assert found["trace_summary"]["toolNames"] == ["Grep"]


def test_only_the_last_result_counts(claude: Agents) -> None:
    assert claude.answer(result("Oops", is_error=True), result("Paris"))["candidate_answer"] == "Paris"
    assert claude.error(result("Paris"), result("Oops", is_error=True)).endswith("Oops")


def test_lines_that_are_not_events_are_skipped(claude: Agents) -> None:
    found = claude.answer(
        "Debugger attached.",
        "",
        "[1, 2]",
        '"text"',
        '{"type": "assist',
        b"\xff\xfe",
        INIT,
        "null",
        '{"a": NaN}',
        result(),
    )
    assert found["candidate_answer"] == "Paris"


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "assistant"},
        {"type": "assistant", "message": "text"},
        {"type": "assistant", "message": {"content": {"type": "text"}}},
        assistant("text", 7, None, {"type": "text", "text": 7}, {"type": "tool_use"}, {"type": 5}),  # type: ignore[arg-type]
        assistant(tool_use("t1", "Read") | {"id": 7, "input": "x"}),
        tool_result("unknown", None),
        tool_result(["t1"], {"a": 1}),  # type: ignore[arg-type]
        {"type": "user", "message": {"content": 8}},
        {"type": 7, "subtype": {}},
        {"type": "result", "subtype": 7, "is_error": "yes", "result": {}, "usage": [], "duration_ms": "?"},
        {"type": "system", "subtype": "api_retry", "attempt": 1},
        {"type": "brand_new", "data": [1]},
    ],
)
def test_wrong_types_and_unknown_events_never_break_a_case(claude: Agents, odd: dict[str, Any]) -> None:
    usage = {"input_tokens": "many", "output_tokens": 3, "cache_read_input_tokens": True}
    found = claude.answer(odd, result(usage=usage, total_cost_usd="free", duration_ms=[]))
    assert found["candidate_answer"] == "Paris"
    metrics = found["execution_metrics"]
    assert metrics["token_usage"] == {"output": 3}
    assert "cost_usd" not in metrics
    assert metrics["duration_ms"] > 0


def test_it_can_judge_other_targets(claude: Agents) -> None:
    verdict = '{"score": 0.9, "hits": ["brief"], "misses": [], "reasoning": "fine"}'
    claude.does("replay()", result(f"Here it is: {verdict}"))
    judge = {"name": "judge", "provider": "claude-code", **claude.settings}
    mock = {"name": "default", "provider": "mock", "response": "Paris", "judge_target": "judge"}
    claude.write("targets.yaml", json.dumps({"targets": [mock, judge]}))
    claude.write("cases.jsonl", [a_case("a")])
    evaluate("cases.jsonl", "--out", "out.jsonl")
    assert results("out.jsonl")[0]["score"] == 0.9
    assert "Paris" in claude.calls[0]["prompt"]


# What the real program (2.1) does


def test_several_results_are_one_answer_with_the_tokens_and_the_cost_of_all(claude: Agents) -> None:
    first = {"sonnet": model_usage(fresh=203, cached=20, written=10, output=40, thinking=0)}
    both = {
        "sonnet": model_usage(fresh=306, cached=30, written=15, output=60, thinking=7),
        "haiku": model_usage(fresh=1000, output=1),
    }
    found = claude.answer(
        assistant(text("Started.")),
        result("Started.", modelUsage=first, total_cost_usd=0.1, duration_ms=200, ttft_ms=133),
        {"type": "system", "subtype": "task_notification", "tool_use_id": "t1", "status": "completed"},
        assistant(text("Paris")),
        result("Paris", modelUsage=both, total_cost_usd=0.3, duration_ms=20, ttft_ms=11, origin={"kind": "x"}),
    )
    assert found["candidate_answer"] == "Paris"
    metrics = found["execution_metrics"]
    tokens = {"input": 306 + 30 + 15 + 1000, "output": 61, "cached": 30, "cache_write": 15, "reasoning": 7}
    assert metrics["token_usage"] == tokens
    assert (metrics["cost_usd"], metrics["ttft_ms"]) == (0.3, 133)
    assert metrics["duration_ms"] > 20  # by our clock: a new process takes longer


def test_subagent_steps_are_in_the_trace_with_their_parent_call(claude: Agents) -> None:
    of_helper = {"parent_tool_use_id": "t1", "subagent_type": "Explore"}
    found = claude.answer(
        assistant(tool_use("t1", "Task", prompt="Look", subagent_type="Explore")),
        assistant(text("found it"), tool_use("t2", "Grep", pattern="x"), **of_helper),
        tool_result("t2", "a.py", is_error=False),
        tool_result("t1", "done"),
        result(),
    )
    calls = [(call["name"], call["metadata"]) for call in found["trace"]]
    for _, metadata in calls:
        metadata.pop("duration_ms")
    assert calls == [("Task", {}), ("Grep", {"parent_id": "t1", "agent": "Explore"})]
    assert found["trace_summary"]["errorCount"] == 0


def test_tool_durations_are_computed_from_event_times(claude: Agents) -> None:
    found = claude.answer(
        assistant(tool_use("t1", "Bash", command="ls"), timestamp="2026-11-17T05:32:48.487Z"),
        assistant(tool_use("t2", "Bash", command="cat"), timestamp="2026-11-17T05:32:48.500Z"),
        tool_result("t2", "b") | {"timestamp": "2026-11-17T05:32:49.000Z"},
        tool_result("t1", "a") | {"timestamp": "2026-11-17T05:32:49.787Z"},
        result(),
    )
    assert found["trace_summary"]["toolDurations"] == {"Bash": [1300.0, 500.0]}
    assert found["trace"][0]["timestamp"] == "2026-11-17T05:32:48.487Z"


@pytest.mark.parametrize(
    ("own", "tool", "name"),
    [
        ("mcp__geo__capital", None, "geo.capital"),
        ("mcp__geo__capital_of", "capital.of", "geo.capital.of"),
        ("mcp__my__geo__capital__of", "capital__of", "my__geo.capital__of"),
        ("mcp__geo__capital", "another name", "geo.capital"),
        ("mcp__geo", None, "mcp__geo"),
        ("Read", "Read", "Read"),
    ],
)
def test_mcp_tools_are_named_as_in_codex(claude: Agents, own: str, tool: str | None, name: str) -> None:
    meta = [{"id": "t0", "tool_name": "x"}, {"id": "t1", "tool_name": tool}] if tool else None
    found = claude.answer(assistant(tool_use("t1", own), tool_use_meta=meta), result())
    (call,) = found["trace"]
    assert call["name"] == name
    assert call.get("metadata") == (None if own == name else {"agent_tool": own})


def test_denied_permissions_are_noted(claude: Agents) -> None:
    denials = [
        {"tool_name": "Read", "tool_use_id": "t1", "tool_input": {"file_path": "/etc/hostname"}},
        {"tool_name": "Bash", "tool_use_id": "t2", "tool_input": {"command": "x" * 500}},
    ]
    found = claude.answer(
        assistant(tool_use("t1", "Read", file_path="/etc/hostname")),
        permission_denied("t1", "Read"),
        tool_result("t1", "Claude requested permissions to read", is_error=True),
        result(permission_denials=denials),
    )
    read = 'Read {"file_path":"/etc/hostname"}'
    assert found["note"] == f'the agent was denied permission: {read}, Bash {{"command":"{"x" * 103}…'
    many = [permission_denied(f"t{number}", f"Tool{number}") for number in range(7)]
    note = claude.answer(*many, result())["note"]
    assert note == "the agent was denied permission: Tool0, Tool1, Tool2, Tool3, Tool4 and 2 more"


def test_attached_files_may_be_read_by_either_path(claude: Agents) -> None:
    name = "a[1] *b\\c?.txt"
    path = claude.write(f"real/{name}", "x")
    Path("link").symlink_to("real")
    blocks = [{"type": "text", "value": "Explain"}, {"type": "file", "value": f"link/{name}"}]
    claude.case = {"input_messages": [{"role": "user", "content": blocks}]}
    claude.answer(result())
    (call,) = claude.calls
    named, resolved = [word for word in call["args"] if word.startswith("Read(")]
    escaped = "a\\[1\\] \\*b\\\\c?.txt"
    assert named == f"Read(/{path.parent.parent.absolute()}/link/{escaped})"
    assert resolved == f"Read(/{path.parent.resolve()}/{escaped})"


@pytest.mark.parametrize(("asked", "sent"), [("/cost", "\n/cost"), ("What is /cost?", "What is /cost?")])
def test_a_prompt_is_not_a_slash_command(claude: Agents, asked: str, sent: str) -> None:
    claude.case = {"input_messages": [{"role": "user", "content": asked}]}
    claude.answer(result())
    assert claude.calls[0]["prompt"] == sent


def test_sessions_are_kept_on_request(claude: Agents) -> None:
    claude.settings |= {"keep_sessions": True}
    claude.answer(result())
    assert claude.calls[0]["args"] == ["-p", "--output-format", "stream-json", "--verbose"]


@pytest.mark.parametrize(
    ("event", "attempts"),
    [
        (result("Credit balance is too low", is_error=True, api_error_status=400), 1),
        (result("Failed to authenticate", is_error=True, api_error_status=401), 1),
        (result("API Error: 403 not allowed", is_error=True, api_error_status=403), 1),
        (result("Claude usage limit reached", is_error=True, api_error_status=429), 1),
        (result("You've hit your limit · resets 3pm", is_error=True), 1),
        (result("API Error: Rate limit reached", is_error=True, api_error_status=429), 2),
        (result("Overloaded", is_error=True, api_error_status=529), 2),
    ],
)
def test_refusals_and_exhausted_quotas_are_not_retried(claude: Agents, event: dict[str, Any], attempts: int) -> None:
    (found,) = claude.does("replay()", event).run("--max-retries", "1", expect=1)
    assert found["attempt"] == attempts


def test_a_missing_answer_is_explained_in_a_sentence(claude: Agents) -> None:
    assert claude.error(INIT) == "claude-code ended without an answer: its last event was 'system: init'"
    error = claude.error(INIT, assistant(tool_use("t1", "Bash", command="ls")))
    assert error == "claude-code ended without an answer: its last event was 'Bash'"
    error = claude.error(INIT, api_retry(3, 529, "overloaded"))
    assert error == "claude-code ended without an answer: it last retried because of 529 overloaded"
    assert claude.error("Segmentation fault") == "claude-code ended without an answer: Segmentation fault"
    assert claude.error() == "claude-code ended without an answer, without any output"


def test_dumped_prompts_contain_everything_that_was_sent(claude: Agents) -> None:
    path = claude.write("notes.md", "x")
    blocks = [{"type": "text", "value": "Explain"}, {"type": "file", "value": "notes.md"}]
    claude.case = {"input_messages": [{"role": "user", "content": blocks}]}
    claude.settings |= {"system_prompt": "Be brief.", "model": "opus"}
    claude.does("replay()", result()).run("--dump-prompts=prompts")
    (call,) = claude.calls
    sent = json.loads(Path("prompts/a.json").read_text())["sent"]
    assert sent == {"command": [str(Path("stand-in").resolve()), *call["args"]], "stdin": call["prompt"]}
    assert "Be brief." in sent["command"]
    assert path.as_uri() in sent["stdin"]
