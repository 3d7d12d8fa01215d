"""Codex, as far as a program that replays its documented events can tell."""

from pathlib import Path
from typing import Any

import pytest

from tests.kits.agents import Agents
from tests.kits.codex_events import COMPLETED, STARTED, item, message
from tests.kits.project import Write


@pytest.fixture
def codex(write: Write) -> Agents:
    return Agents(write, "codex")


def test_the_documented_stream_becomes_answer_calls_and_tokens(codex: Agents) -> None:
    command = "bash -lc 'echo hi'"
    running = {"command": command, "aggregated_output": "", "exit_code": None, "status": "in_progress"}
    done = {"aggregated_output": "hi\n", "exit_code": 0, "status": "completed"}
    changes = [{"path": "a.py", "kind": "update"}]
    mcp = {"server": "geo", "tool": "capital", "arguments": {"of": "France"}}
    todos = {"items": [{"text": "step one", "completed": False}]}
    found = codex.answer(
        *STARTED,
        item("reasoning", text="**Hm**"),
        item("todo_list", "started", "item_1", **todos),
        item("command_execution", "started", "item_2", **running),
        item("mcp_tool_call", "started", "item_3", **mcp, result=None, error=None, status="in_progress"),
        item("todo_list", "updated", "item_1", **todos),
        item("mcp_tool_call", "completed", "item_3", **mcp, result={"content": [1]}, error=None, status="completed"),
        item("command_execution", "completed", "item_2", command=command, **done),
        item("file_change", "completed", "item_4", changes=changes, status="completed"),
        item("web_search", "completed", "item_5", query="capital of France"),
        item("mcp_tool_call", "completed", "item_6", **mcp, result=None, error={"message": "gone"}, status="failed"),
        item("error", "completed", "item_7", message="a warning"),
        message("Let me think."),
        message(),
        COMPLETED,
    )
    assert found["candidate_answer"] == "Paris"
    assert [(call["name"], call["input"], call.get("output"), call["id"]) for call in found["trace"]] == [
        ("command_execution", {"command": command}, done, "item_2"),
        ("geo.capital", {"of": "France"}, {"content": [1]}, "item_3"),
        ("file_change", {"changes": changes}, {"status": "completed"}, "item_4"),
        ("web_search", {"query": "capital of France"}, None, "item_5"),
        ("geo.capital", {"of": "France"}, {"message": "gone"}, "item_6"),
    ]
    assert found["execution_metrics"]["token_usage"] == {"input": 1200, "output": 345, "cached": 200}


def test_how_the_program_is_called(codex: Agents) -> None:
    codex.settings |= {"model": "gpt-5", "system_prompt": "Be brief.", "args": ["--sandbox", "workspace-write"]}
    codex.answer(message(), COMPLETED)
    (call,) = codex.calls
    asked = ["exec", "--json", "--model", "gpt-5", "--skip-git-repo-check"]
    assert call["args"] == [*asked, "--sandbox", "workspace-write", "-"]
    assert call["prompt"] == "Be brief.\n\nQuery"
    assert call["files"] == []


def test_whether_a_folder_of_the_user_s_is_a_repo_is_left_to_codex(codex: Agents) -> None:
    codex.write("evals/work/kept.txt", "kept")
    codex.settings |= {"cwd": "evals/work"}
    codex.answer(message(), COMPLETED)
    (call,) = codex.calls
    assert call["args"] == ["exec", "--json", "-"]
    assert (Path(call["cwd"]), call["files"]) == (Path("evals/work").resolve(), ["kept.txt"])
    assert Path("evals/work/kept.txt").exists()


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([message(), {"type": "turn.failed", "error": {"message": "usage limit"}}], "usage limit"),
        ([message(), {"type": "error", "message": "stream closed"}], "stream closed"),
        ([{"type": "turn.failed", "error": "text"}], "text"),
        ([{"type": "turn.failed", "error": {"message": {"code": 1}}}], '{"code":1}'),
        ([{"type": "turn.failed"}], "it does not say why"),
        ([{"type": "error"}], "it does not say why"),
    ],
)
def test_a_failure_that_is_reported_is_an_error_even_with_exit_code_0(
    codex: Agents, events: list[dict[str, Any]], words: str
) -> None:
    assert codex.error(*STARTED, *events) == f"codex reports a failure: {words}"


def test_an_error_that_codex_has_got_over_is_none(codex: Agents) -> None:
    again = {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected before completion)"}
    assert codex.answer(*STARTED, again, message(), COMPLETED)["candidate_answer"] == "Paris"


def test_no_answer_is_an_error_that_may_pass(codex: Agents) -> None:
    codex.does("replay(); print('Reading prompt from stdin...', file=sys.stderr)", *STARTED, COMPLETED)
    (found,) = codex.run("--max-retries", "1", expect=1)
    assert found["error"] == "codex ended without an answer: Reading prompt from stdin..."
    assert found["attempt"] == 2


def test_an_exit_code_other_than_0_is_an_error_and_not_tried_again(codex: Agents) -> None:
    codex.does("replay(); sys.exit('not inside a trusted directory')", message(), COMPLETED)
    (found,) = codex.run("--max-retries", "1", expect=1)
    assert found["error"] == "codex failed with exit code 1: not inside a trusted directory"
    assert found["attempt"] == 1


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "item.completed"},
        {"type": "item.completed", "item": "text"},
        {"type": "item.completed", "item": {"type": ["agent_message"]}},
        item("agent_message", text={"a": 1}),
        item("mcp_tool_call", server=7, tool="x"),
        item("brand_new", text="x"),
        {"type": "turn.completed", "usage": "much"},
        {"type": "turn.completed", "usage": {"input_tokens": [], "output_tokens": None}},
        {"type": 7},
        {"type": "thread.compacted"},
    ],
)
def test_wrong_types_and_unknown_events_never_break_a_case(codex: Agents, odd: dict[str, Any]) -> None:
    done = {"type": "turn.completed"}
    found = codex.answer("Reading prompt from stdin...", odd, message(), done, '{"type": "item.comp')
    assert found["candidate_answer"] == "Paris"
    assert "token_usage" not in found["execution_metrics"]


def test_a_turn_that_was_not_completed_has_no_answer(codex: Agents) -> None:
    assert codex.error(message("I will look at the files.")).startswith("codex broke off before it was done")


def test_tools_whose_items_have_no_id_are_seen_once(codex: Agents) -> None:
    search = {"type": "web_search", "query": "x"}
    events = [{"type": f"item.{phase}", "item": search} for phase in ("started", "completed", "completed")]
    assert codex.answer(*events, message(), COMPLETED)["trace_summary"]["toolCallsByName"] == {"web_search": 2}


def test_a_tool_that_never_came_back_is_a_call_all_the_same(codex: Agents) -> None:
    found = codex.answer(item("command_execution", "started", command="sleep"), message(), COMPLETED)
    assert found["trace"] == [
        {"type": "tool_call", "id": "item_0", "name": "command_execution", "input": {"command": "sleep"}}
    ]
