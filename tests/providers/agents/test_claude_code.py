"""Claude Code, as far as a program that replays its documented events can tell."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents import Agents
from tests.kits.claude_events import INIT, assistant, result, text, tool_result, tool_use
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
    assert found["trace"] == [
        {
            "type": "tool_call",
            "id": "t1",
            "name": "Read",
            "input": {"file_path": "a.md"},
            "output": "File does not exist.",
        },
        {
            "type": "tool_call",
            "id": "t2",
            "name": "mcp__geo__capital",
            "input": {"of": "France"},
            "output": "Paris",
        },
    ]
    assert found["execution_metrics"] == {
        "token_usage": {"input": 8 + 192 + 17004, "output": 32, "cached": 17004},
        "cost_usd": 0.25,
        "duration_ms": 2006,
    }


def test_how_the_program_is_called(claude: Agents) -> None:
    claude.settings |= {"model": "opus", "system_prompt": "Be brief.", "args": ["--max-turns", "3"]}
    claude.answer(result())
    (call,) = claude.calls
    asked = ["-p", "--output-format", "stream-json", "--verbose", "--model", "opus"]
    assert call["args"] == [*asked, "--append-system-prompt", "Be brief.", "--max-turns", "3"]
    assert call["prompt"] == "Query"
    assert call["files"] == []
    assert not Path(call["cwd"]).exists()


def test_guidelines_are_in_the_prompt_and_attached_files_are_linked_and_may_be_read(claude: Agents) -> None:
    path = claude.write("a b.py", "pass")
    claude.write("style.instructions.md", "Use British spelling.")
    blocks = [{"type": "file", "value": name} for name in ("style.instructions.md", "a b.py")]
    claude.case = {"input_messages": [{"role": "user", "content": [{"type": "text", "value": "Explain"}, *blocks]}]}
    claude.answer(result())
    (call,) = claude.calls
    assert call["args"][4:] == ["--allowedTools", f"Read(/{path})"]
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
        (result("", is_error=True), "claude-code reports a failure: it does not say why"),
    ],
)
def test_a_failure_that_is_reported_is_an_error_even_with_exit_code_0(
    claude: Agents, event: dict[str, Any], error: str
) -> None:
    assert claude.error(INIT, assistant(text("On it.")), event) == error


def test_the_words_of_a_failure_tell_more_than_the_exit_code(claude: Agents) -> None:
    error = claude.error(INIT, result("Overloaded", is_error=True), then="sys.exit('oh no')")
    assert error == "claude-code reports a failure: Overloaded"


def test_a_failure_that_may_pass_is_tried_again_and_a_limit_is_not(claude: Agents) -> None:
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
def test_an_exit_code_other_than_0_is_an_error_whatever_was_answered(claude: Agents, then: str, error: str) -> None:
    assert claude.error(INIT, result(), then=then).startswith(error)


@pytest.mark.parametrize("events", [(), (INIT,), (INIT, assistant(text(" "))), (result(None),), (result("  "),)])
def test_a_program_that_ends_without_an_answer_is_an_error_that_says_what_it_said(
    claude: Agents, events: tuple[dict[str, Any], ...]
) -> None:
    error = claude.error(*events, then="print('out of credit', file=sys.stderr)")
    assert error == "claude-code ended without an answer: out of credit"


def test_without_a_result_what_was_said_on_the_way_is_no_answer(claude: Agents) -> None:
    error = claude.error(assistant(text("I will start by reading the file.")))
    assert error.startswith("claude-code broke off before it was done")


def test_a_result_without_words_means_the_last_text_but_not_that_of_a_helper(claude: Agents) -> None:
    helper = assistant(text("found it"), tool_use("t9", "Grep", pattern="x"), parent_tool_use_id="t1")
    found = claude.answer(assistant(text("Let me see.")), assistant(text("Paris")), helper, result(""))
    assert found["candidate_answer"] == "Paris"
    assert found["trace_summary"]["toolNames"] == ["Grep"]


def test_only_the_last_result_counts(claude: Agents) -> None:
    assert claude.answer(result("Oops", is_error=True), result("Paris"))["candidate_answer"] == "Paris"
    assert claude.error(result("Paris"), result("Oops", is_error=True)).endswith("Oops")


def test_lines_that_are_no_events_are_skipped(claude: Agents) -> None:
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


def test_it_can_be_the_judge_of_others(claude: Agents) -> None:
    verdict = '{"score": 0.9, "hits": ["brief"], "misses": [], "reasoning": "fine"}'
    claude.does("replay()", result(f"Here it is: {verdict}"))
    judge = {"name": "judge", "provider": "claude-code", **claude.settings}
    mock = {"name": "default", "provider": "mock", "response": "Paris", "judge_target": "judge"}
    claude.write("targets.yaml", json.dumps({"targets": [mock, judge]}))
    claude.write("cases.jsonl", [a_case("a")])
    evaluate("cases.jsonl", "--out", "out.jsonl")
    assert results("out.jsonl")[0]["score"] == 0.9
    assert "Paris" in claude.calls[0]["prompt"]
