"""Codex, tested with a program that replays its documented events."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentv.providers.agents.codex import shell_script
from tests.kits.agents import Agents
from tests.kits.codex_events import COMPLETED, STARTED, failed, item, message, reconnecting
from tests.kits.project import Write


@pytest.fixture
def codex(write: Write) -> Agents:
    return Agents(write, "codex")


def known(call: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a call, without its duration."""
    return {name: value for name, value in call.get("metadata", {}).items() if name != "duration_ms"}


def test_the_documented_stream_becomes_answer_calls_and_tokens(codex: Agents) -> None:
    command = "/bin/bash -lc 'echo hi'"
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
        ("todo_list", todos, None, "item_1"),
        ("command_execution", {"command": "echo hi"}, done, "item_2"),
        ("geo.capital", {"of": "France"}, {"content": [1]}, "item_3"),
        ("file_change", {"changes": changes}, {"status": "completed"}, "item_4"),
        ("web_search", {"query": "capital of France"}, None, "item_5"),
        ("geo.capital", {"of": "France"}, {"message": "gone"}, "item_6"),
    ]
    assert [known(call) for call in found["trace"]] == [
        {},
        {"raw_command": command},
        {"agent_tool": "mcp_tool_call"},
        {},
        {},
        {"agent_tool": "mcp_tool_call", "is_error": True},
    ]
    timed = [call["id"] for call in found["trace"] if "duration_ms" in call.get("metadata", {})]
    assert timed == ["item_2", "item_3"]  # nobody knows when the others began, or ended
    assert found["trace_summary"]["errorCount"] == 1
    assert found["execution_metrics"]["token_usage"] == {"input": 1200, "output": 345, "cached": 200}
    assert "note" not in found


def test_how_the_program_is_called(codex: Agents) -> None:
    codex.settings |= {
        "model": "gpt-5",
        "system_prompt": 'Be "brief".\n\\ \x7fü',
        "args": ["--sandbox", "workspace-write"],
    }
    codex.answer(message(), COMPLETED)
    (call,) = codex.calls
    system = 'developer_instructions="Be \\"brief\\".\\n\\\\ \\u007fü"'
    asked = ["exec", "--json", "--ephemeral", "--model", "gpt-5", "-c", system, "--skip-git-repo-check"]
    assert call["args"] == [*asked, "--sandbox", "workspace-write", "--", "-"]
    assert tomllib.loads(system)["developer_instructions"] == codex.settings["system_prompt"]
    assert call["prompt"] == "Query"
    assert call["files"] == []


def test_the_repo_check_of_the_users_folder_is_left_to_codex(codex: Agents) -> None:
    codex.write("evals/work/kept.txt", "kept")
    codex.settings |= {"cwd": "evals/work"}
    codex.answer(message(), COMPLETED)
    (call,) = codex.calls
    assert call["args"] == ["exec", "--json", "--ephemeral", "--", "-"]
    assert (Path(call["cwd"]), call["files"]) == (Path("evals/work").resolve(), ["kept.txt"])
    assert Path("evals/work/kept.txt").exists()


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([message(), {"type": "turn.failed", "error": {"message": "usage limit"}}], "usage limit"),
        ([message(), {"type": "error", "message": "stream closed"}], "stream closed"),
        ([{"type": "turn.failed", "error": "text"}], "text"),
        ([{"type": "turn.failed", "error": {"message": {"code": 1}}}], '{"code":1}'),
        ([{"type": "turn.failed"}], "no reason given"),
        ([{"type": "error"}], "no reason given"),
    ],
)
def test_a_reported_failure_is_an_error_even_with_exit_code_0(
    codex: Agents, events: list[dict[str, Any]], words: str
) -> None:
    assert codex.error(*STARTED, *events) == f"codex reports a failure: {words}"


def test_an_error_that_codex_recovered_from_is_ignored(codex: Agents) -> None:
    again = {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected before completion)"}
    assert codex.answer(*STARTED, again, message(), COMPLETED)["candidate_answer"] == "Paris"


def test_a_missing_answer_is_a_temporary_error(codex: Agents) -> None:
    codex.does("replay(); print('Reading prompt from stdin...', file=sys.stderr)", *STARTED, COMPLETED)
    (found,) = codex.run("--max-retries", "1", expect=1)
    assert found["error"] == "codex ended without an answer: its last event was 'turn.completed'"
    assert found["attempt"] == 2


def test_a_nonzero_exit_code_is_an_error_and_not_retried(codex: Agents) -> None:
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
    assert codex.error(message("I will look at the files.")).startswith("codex stopped before it was done")


def test_tools_without_item_ids_are_counted_once(codex: Agents) -> None:
    search = {"type": "web_search", "query": "x"}
    events = [{"type": f"item.{phase}", "item": search} for phase in ("started", "completed", "completed")]
    assert codex.answer(*events, message(), COMPLETED)["trace_summary"]["toolCallsByName"] == {"web_search": 2}


def test_a_tool_call_without_a_result_is_recorded(codex: Agents) -> None:
    found = codex.answer(item("command_execution", "started", command="sleep"), message(), COMPLETED)
    (call,) = found["trace"]
    assert call.pop("timestamp").endswith("Z")
    assert call == {"type": "tool_call", "id": "item_0", "name": "command_execution", "input": {"command": "sleep"}}


# What the real program (0.166) does


def test_subagent_calls_are_named_by_their_operation(codex: Agents) -> None:
    spawn = {"tool": "spawn_agent", "sender_thread_id": "s1", "prompt": "Look"}
    running = {"receiver_thread_ids": [], "agents_states": {}, "status": "in_progress"}
    done = {"receiver_thread_ids": ["r1"], "agents_states": {"r1": {"status": "pending_init"}}, "status": "completed"}
    wait = {"tool": "wait", "sender_thread_id": "s1", "prompt": None, "receiver_thread_ids": ["r1"]}
    found = codex.answer(
        *STARTED,
        item("collab_tool_call", "started", "item_1", **spawn, **running),
        item("collab_tool_call", "completed", "item_1", **spawn, **done),
        item("collab_tool_call", "completed", "item_2", **wait, agents_states={}, status="failed"),
        message(),
        COMPLETED,
    )
    assert [(call["name"], call["input"], known(call)) for call in found["trace"]] == [
        ("spawn_agent", {"prompt": "Look"}, {"agent_tool": "collab_tool_call"}),
        ("wait", {"prompt": None}, {"agent_tool": "collab_tool_call", "is_error": True}),
    ]
    assert found["trace"][0]["output"] == {"sender_thread_id": "s1", **done}
    assert found["trace_summary"]["errorCount"] == 1


def test_items_of_an_unknown_type_are_counted_in_a_note(codex: Agents) -> None:
    found = codex.answer(
        item("image_generation", "started", "item_1"),
        item("image_generation", "completed", "item_1"),
        item("image_generation", "completed", "item_2"),
        {"type": "item.completed", "item": {"type": "brand_new"}},
        message(),
        COMPLETED,
    )
    assert found["note"] == "unknown events, omitted from the trace: brand_new (1), image_generation (2)"


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        ("/bin/bash -lc ls", "ls"),
        ("/usr/bin/zsh -lc 'ls -a'", "ls -a"),
        ("bash -c 'echo x'", "echo x"),
        ("/bin/bash -lc ''", ""),
        ("/bin/bash -lc \"printf 'a b'\"", "printf 'a b'"),
        ('/bin/bash -lc "echo \\"it\'s\\" "\'$HOME `date`\'', 'echo "it\'s" $HOME `date`'),
        ("/bin/bash -lc 'echo \"$(ls)\" '\"'\\\\' \\\"\"'!\"'", 'echo "$(ls)" \'\\\' "!"'),
        ('/bin/bash -lc "echo \\$HOME \\` \\n"', "echo $HOME ` \\n"),
        ("/bin/bash -lc \"cat <<'EOF'\nhi\nEOF\"", "cat <<'EOF'\nhi\nEOF"),
        ("/bin/bash -lc 'cd /tmp' && ls", None),
        ("/bin/bash script.sh -lc", None),
        ("/bin/bash -lc 'open", None),
        ("python -c 'print(1)'", None),
        ("ls", None),
    ],
)
def test_a_command_is_recorded_without_its_shell_wrapper(raw: str, command: str | None) -> None:
    assert shell_script(raw) == command


def test_a_command_without_a_shell_wrapper_is_unchanged(codex: Agents) -> None:
    found = codex.answer(item("command_execution", command="python -c 'print(1)'"), message(), COMPLETED)
    (call,) = found["trace"]
    assert (call["input"], known(call)) == ({"command": "python -c 'print(1)'"}, {})


def test_a_denied_command_is_an_error_and_a_note(codex: Agents) -> None:
    found = codex.answer(
        item("command_execution", command="/bin/bash -lc 'rm -r x'", status="declined"), message(), COMPLETED
    )
    assert known(found["trace"][0]) == {"raw_command": "/bin/bash -lc 'rm -r x'", "is_error": True}
    assert found["note"] == 'the agent was denied permission: command_execution {"command":"rm -r x"}'


def test_tool_durations_are_measured_between_events(codex: Agents) -> None:
    running = item("command_execution", "started", command="ls", status="in_progress")
    done = item("command_execution", command="ls", status="completed")
    wait = "\nlogs = HERE / '.agentv/logs/codex'\nwhile not next(logs.iterdir()).read_bytes(): time.sleep(0.01)\n"
    rest = "".join(f"print({json.dumps(event)!r})\n" for event in (done, message(), COMPLETED))
    (found,) = codex.does(f"replay(); print(flush=True){wait}time.sleep(0.2)\n{rest}", running).run()
    (took,) = found["trace_summary"]["toolDurations"]["command_execution"]
    assert took >= 100


@pytest.mark.parametrize(
    ("args", "end"),
    [
        (["--image", "x.png"], ["--image", "x.png", "--", "-"]),
        (["--ephemeral", "--skip-git-repo-check"], ["--ephemeral", "--skip-git-repo-check", "--", "-"]),
        (["--image", "x.png", "--"], ["--image", "x.png", "--", "-"]),
    ],
)
def test_the_stdin_dash_is_not_parsed_as_a_user_argument(codex: Agents, args: list[str], end: list[str]) -> None:
    codex.settings |= {"args": args}
    codex.answer(message(), COMPLETED)
    assert codex.calls[0]["args"][-len(end) :] == end
    assert codex.calls[0]["args"].count("--ephemeral") == 1
    assert codex.calls[0]["args"].count("--skip-git-repo-check") == 1


def test_sessions_are_kept_on_request(codex: Agents) -> None:
    codex.settings |= {"keep_sessions": True}
    codex.answer(message(), COMPLETED)
    assert codex.calls[0]["args"] == ["exec", "--json", "--skip-git-repo-check", "--", "-"]


def test_the_cost_is_computed_from_prices(codex: Agents) -> None:
    codex.settings |= {"pricing": {"input": 1.25, "output": 10, "cached": 0.125}}
    found = codex.answer(message(), COMPLETED)
    assert found["execution_metrics"]["cost_usd"] == (1000 * 1.25 + 200 * 0.125 + 345 * 10) / 1_000_000
    del codex.settings["pricing"]
    assert "cost_usd" not in codex.answer(message(), COMPLETED)["execution_metrics"]


@pytest.mark.parametrize(
    ("message", "words", "attempts"),
    [
        ("unexpected status 401 Unauthorized: Incorrect API key", "unexpected status 401 Unauthorized: In", 1),
        ("unexpected status 403 Forbidden: no", "unexpected status 403 Forbidden: no", 1),
        ("401 Unauthorized: no", "401 Unauthorized: no", 1),
        (
            "failed to connect to websocket: HTTP error: 403 Forbidden, url: wss://x",
            "failed to connect to websocket",
            1,
        ),
        ("tool 401 is gone", "tool 401 is gone", 2),
        ('{"error": {"type": "invalid_request_error", "message": "bad request"}}', "bad request", 1),
        ("Quota exceeded. Check your plan and billing details.", "Quota exceeded. Check", 1),
        ("You've hit your usage limit. Try again at 3:00 PM.", "You've hit your usage limit", 1),
        ("exceeded retry limit, last status: 429 Too Many Requests", "exceeded retry limit, last status: 429", 2),
        ("stream disconnected before completion: internal", "stream disconnected before completion", 2),
    ],
)
def test_refusals_and_exhausted_quotas_are_not_retried(codex: Agents, message: str, words: str, attempts: int) -> None:
    warning = item("error", message="Model metadata for `gpt-5` not found. Defaulting to fallback metadata.")
    codex.does("replay(); sys.exit(1)", STARTED[0], warning, STARTED[1], reconnecting(1, "x"), *failed(message))
    (found,) = codex.run("--max-retries", "1", expect=1)
    assert found["error"].startswith(f"codex reports a failure: {words}")
    assert found["attempt"] == attempts


def test_unrelated_warnings_are_omitted_from_an_error(codex: Agents) -> None:
    said = [
        "Reading prompt from stdin...",
        "WARNING: proceeding, even though we could not update PATH",
        "2026-11-17T05:35:41.747734Z  WARN codex_core::config: ignored",
        "Not inside a trusted directory",
    ]
    error = codex.error(then=f"sys.exit({chr(10).join(said)!r})")
    assert error == "codex failed with exit code 1: Not inside a trusted directory"
    error = codex.error(*STARTED, then=f"sys.exit({chr(10).join(said[:3])!r})")
    assert error == "codex failed with exit code 1: its last event was 'turn.started'"
