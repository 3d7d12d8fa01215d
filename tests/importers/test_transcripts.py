"""Transcripts of Claude Code and Codex become answers. The records here have the form of those that the programs write."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.foreign import ROLLOUT, SESSION, Claude, a_session, at, text
from tests.kits.imported import imported, refused, run_import
from tests.kits.project import Write, agentv


def test_a_session_of_claude_code_becomes_one_answer(write: Write) -> None:
    write("s.jsonl", a_session().records)
    said = run_import("s.jsonl")
    assert said[:2] == ["detected format: claude-code", "11 records read, 1 answer written, 0 skipped"]
    (answer,) = imported("s.jsonl")
    assert answer["id"] == SESSION
    assert answer["text"] == "Done."
    assert [message.get("content") or message["tool_calls"] for message in answer["output_messages"]] == [
        "I look.",
        [{"tool": "Bash", "input": {"command": "echo hello"}, "output": "hello", "id": "t1", "timestamp": at(2)}],
        [{"tool": "Bash", "input": {"command": "cat nothing"}, "output": "no such file", "id": "t2", "timestamp": at(3)}],
        "Done.",
    ]  # fmt: skip
    assert [(event["type"], event.get("name")) for event in answer["trace"]] == [
        ("message", None),
        ("tool_call", "Bash"),
        ("tool_result", "Bash"),
        ("tool_call", "Bash"),
        ("tool_result", "Bash"),
        ("message", None),
    ]
    assert answer["trace"][4]["metadata"] == {"is_error": True}
    assert imported("s.jsonl", "--id", "france")[0]["id"] == "france"


def test_usage_is_the_maximum_for_each_message_and_not_the_sum_of_its_lines(write: Write) -> None:
    write("s.jsonl", a_session().records)
    (answer,) = imported("s.jsonl")
    assert answer["token_usage"] == {"input": 3 * 162, "output": 3 * 40, "cached": 3 * 50}


def test_user_think_time_does_not_count(write: Write) -> None:
    claude = a_session()
    claude.user(30, "and again")
    claude.says(32, "msg_4", text("Again."))
    write("s.jsonl", claude.records)
    (answer,) = imported("s.jsonl")
    assert answer["text"] == "Again."
    assert answer["duration_ms"] == 7000


def test_unknown_types_of_records_are_counted_and_named(write: Write) -> None:
    claude = a_session()
    claude.other(type="telepathy", content="x")
    claude.other(type="telepathy", content="y")
    claude.other(type="summary", summary="known, and says nothing")
    write("s.jsonl", [*claude.records, "no record"])
    said = run_import("s.jsonl", "--dry-run")
    assert "  2 skipped: unknown record type 'telepathy' (line 12, line 13)" in said
    assert "  1 skipped: it is not a record (line 15)" in said


def test_a_session_in_progress_has_a_truncated_last_line(write: Write) -> None:
    lines = "".join(json.dumps(record) + "\n" for record in a_session().records)
    write("s.jsonl", lines + '{"type":"assistant","mess')
    assert "  1 skipped: it is truncated (line 12)" in run_import("s.jsonl", "--dry-run")
    write("s.jsonl", '{"type":"assistant","mess\n' + lines)
    assert "s.jsonl:1:21: Invalid JSON" in refused("s.jsonl", "--from", "claude-code")


def test_a_fork_that_copies_another_session_is_not_counted_twice(write: Write) -> None:
    first, fork = a_session(), Claude("ffff")
    write("p/aaaa.jsonl", first.records)
    fork.other(type="queue-operation", operation="enqueue", timestamp=at(40))
    copies = [record | {"sessionId": "ffff"} for record in first.records if "uuid" in record]
    fork.records += copies
    fork.user(41, "again")
    fork.says(43, "msg_9", text("Once more."))
    write("p/0000.jsonl", fork.records)  # whose name is the first
    said = run_import("p", "--out", "o.jsonl")
    assert "  10 skipped: it is a copy from another session (line 2, line 3, line 4, …)" in said
    one, two = imported("p", "--out", "o.jsonl")
    assert (one["id"], one["text"], one["token_usage"]["output"]) == (SESSION, "Done.", 120)
    assert (two["id"], two["text"], two["token_usage"]["output"], two["duration_ms"]) == (
        "ffff",
        "Once more.",
        40,
        2000,
    )


def test_sub_agents_are_in_the_trace_and_never_the_answer(write: Write) -> None:
    claude, sub = a_session(), Claude()
    sub.user(2, "SUBTASK", isSidechain=True, agentId="a1")
    sub.says(2.5, "msg_s", text("the sub-agent says 4"), isSidechain=True, agentId="a1")
    wanted = ["I look.", "Bash", "the sub-agent says 4", "Bash", "Done."]

    def check() -> None:
        (answer,) = imported(f"p/{SESSION}.jsonl", "--out", "o.jsonl")
        names = [message.get("content") or message["tool_calls"][0]["tool"] for message in answer["output_messages"]]
        assert (names, answer["text"], answer["token_usage"]["output"]) == (wanted, "Done.", 160)
        assert len(imported("p", "--out", "o.jsonl")) == 1

    write(f"p/{SESSION}.jsonl", claude.records)
    inside = write(f"p/{SESSION}/subagents/agent-a1.jsonl", sub.records)
    check()
    inside.rename("p/agent-a1.jsonl")  # where older versions have it
    check()
    Path("p/agent-a1.jsonl").unlink()
    write(f"p/{SESSION}.jsonl", [*claude.records, *sub.records])  # and still older ones
    check()


def test_what_claude_prints_as_stream_json_is_read_too(write: Write) -> None:
    common = {"session_id": "s1", "parent_tool_use_id": None}
    message = {"id": "m", "role": "assistant", "content": [text("Paris")], "usage": {"output_tokens": 1}}
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 7}
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "Paris", "usage": usage}
    init = {"type": "system", "subtype": "init", **common}
    events = [init, {"type": "assistant", "message": message, **common}, result | common | {"duration_ms": 300}]
    write("s.jsonl", events)
    (answer,) = imported("s.jsonl")
    assert (answer["id"], answer["text"], answer["duration_ms"]) == ("s1", "Paris", 300)
    assert answer["token_usage"] == {"input": 15, "output": 7, "cached": 5}
    write("s.jsonl", [init, result | common | {"is_error": True, "result": "no credit"}])
    said = run_import("s.jsonl", "--overwrite", expect=1)
    assert "  1 skipped: the agent reports a failure: no credit (s.jsonl)" in said


def test_a_rollout_of_codex_becomes_one_answer(write: Write) -> None:
    write("rollout.jsonl", [*ROLLOUT, {"type": "hologram", "timestamp": at(50), "payload": {"type": "x"}}])
    said = run_import("rollout.jsonl", "--dry-run")
    assert said[:3] == [
        "detected format: codex",
        "15 records read, 1 answer written, 1 skipped",
        "  1 skipped: unknown record type 'hologram.x' (line 15)",
    ]
    (answer,) = imported("rollout.jsonl")
    call = {"tool": "exec_command", "input": {"cmd": "echo hi"}, "output": "hi", "id": "c1", "timestamp": at(2)}
    assert (answer["id"], answer["text"], answer["duration_ms"]) == ("thread-1", "Done.", 4000)
    assert answer["output_messages"][1]["tool_calls"] == [call]
    assert answer["token_usage"] == {
        "input": 200,
        "output": 60,
        "cached": 40,
    }  # reports are of all that was used so far
    assert [event["type"] for event in answer["trace"]] == ["message", "tool_call", "tool_result", "message"]
    assert answer["trace"][2]["metadata"] == {"is_error": True}


def test_an_older_rollout_has_items_without_an_envelope(write: Write) -> None:
    items = [record["payload"] for record in ROLLOUT if record["type"] == "response_item"]
    head = {"id": "old-1", "timestamp": at(0), "instructions": None}
    write("rollout.jsonl", [head, {"record_type": "state"}, *items])
    (answer,) = imported("rollout.jsonl")
    assert (answer["id"], answer["text"]) == ("old-1", "Done.")
    assert answer["output_messages"][1]["tool_calls"][0]["tool"] == "exec_command"


def test_the_output_of_codex_exec_is_read_as_the_provider_reads_it(write: Write) -> None:
    command = {"id": "i3", "type": "command_execution", "command": "echo hi", "aggregated_output": "hi", "exit_code": 0}
    usage = {"input_tokens": 200, "cached_input_tokens": 40, "output_tokens": 60}
    write(
        "exec.jsonl",
        [
            {"type": "thread.started", "thread_id": "thread-2"},
            {"type": "turn.started"},
            {"type": "item.completed", "item": {"id": "i1", "type": "agent_message", "text": "I look."}},
            {"type": "item.completed", "item": command},
            {"type": "item.completed", "item": {"id": "i4", "type": "agent_message", "text": "Done."}},
            {"type": "turn.completed", "usage": usage},
        ],
    )
    (answer,) = imported("exec.jsonl")
    assert (answer["id"], answer["text"]) == ("thread-2", "Done.")
    assert answer["output_messages"][1]["tool_calls"][0]["tool"] == "command_execution"
    assert answer["token_usage"] == {"input": 200, "output": 60, "cached": 40}
    write(
        "exec.jsonl",
        [{"type": "thread.started", "thread_id": "t"}, {"type": "turn.failed", "error": {"message": "quota"}}],
    )
    assert "the agent reports a failure: quota" in "\n".join(run_import("exec.jsonl", "--overwrite", expect=1))


def test_imported_answers_can_be_replayed(write: Write) -> None:
    write("s.jsonl", a_session().records)
    said = run_import("s.jsonl", "--id", "a")
    assert said[-1] == "next: add a target with 'provider: replay' and 'file: s-answers.jsonl' to replay them"
    write("targets.yaml", "targets: [{name: default, provider: replay, file: s-answers.jsonl}]")
    checks = [
        {"type": "contains", "value": "Done"},
        {"type": "tool_trajectory", "mode": "any_order", "minimums": {"Bash": 2}},
    ]
    write("a.jsonl", [{"id": "a", "expected_outcome": "b", "input": "c", "evaluators": checks}])
    assert agentv("eval", "a.jsonl", "--out", "o.jsonl").returncode == 0
    result = json.loads(Path("o.jsonl").read_text())
    assert (result["score"], result["candidate_answer"]) == (1.0, "Done.")
    assert result["execution_metrics"]["token_usage"] == {"input": 486, "output": 120, "cached": 150}


def test_a_file_that_is_not_a_transcript(write: Write) -> None:
    write("a.jsonl", [{"question": "a", "answer": "b"}])
    said = run_import("a.jsonl", "--from", "claude-code", expect=1)
    assert said == [
        "1 record read, 0 answers written, 2 skipped",
        "  1 skipped: unknown record type 'none' (line 1)",
        "  1 skipped: the agent wrote no answer (a.jsonl)",
        "error: a.jsonl: nothing could be imported",
    ]
    assert "unknown record type 'none'" in run_import("a.jsonl", "--from", "codex", expect=1)[1]


@pytest.mark.parametrize(
    "output",
    [
        '{"metadata": {"exit_code": 3}, "output": "no"}',
        {"output": "no", "metadata": {"exit_code": 3}},
        {"content": "no", "success": False},
        "Exit code: 3\nWall time: 0.1 seconds\nOutput:\nno",
        "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 3\nOutput:\nno",
        [{"type": "input_text", "text": "Exit code: 3\nOutput:\nno"}],
    ],
)
def test_failed_commands_of_codex_are_errors(write: Write, output: Any) -> None:
    records = json.loads(json.dumps(ROLLOUT))
    for record in records:
        if record["payload"].get("type") == "function_call_output":
            record["payload"]["output"] = output
    write("rollout.jsonl", records)
    (answer,) = imported("rollout.jsonl")
    assert answer["trace"][2]["metadata"] == {"is_error": True}
    assert answer["trace"][2]["output"].endswith("no")


@pytest.mark.parametrize(
    "output", ["Exit code: 0\nOutput:\nExit code: 3", "a\nb\nOutput:\nExit code: 3", '{"output": "hi"}']
)
def test_commands_of_codex_that_print_an_exit_code_have_not_failed(write: Write, output: str) -> None:
    records = json.loads(json.dumps(ROLLOUT))
    for record in records:
        if record["payload"].get("type") == "function_call_output":
            record["payload"]["output"] = output
    write("rollout.jsonl", records)
    (answer,) = imported("rollout.jsonl")
    assert "metadata" not in answer["trace"][2]


def test_an_event_of_codex_names_the_exit_code_of_a_command(write: Write) -> None:
    records = json.loads(json.dumps(ROLLOUT))
    for record in records:
        if record["payload"].get("type") == "function_call_output":
            record["payload"]["output"] = "no"
    end = {"type": "exec_command_end", "call_id": "c1", "exit_code": 3}
    event = {"type": "event_msg", "timestamp": at(3), "payload": end}
    for place in (9, 10):
        write("rollout.jsonl", [*records[:place], event, *records[place:]])
        (answer,) = imported("rollout.jsonl")
        assert answer["trace"][2]["metadata"] == {"is_error": True}


def test_the_output_of_codex_exec_has_a_trace_with_failed_commands(write: Write) -> None:
    command = {"id": "i3", "type": "command_execution", "command": "false", "aggregated_output": "", "exit_code": 3}
    write(
        "exec.jsonl",
        [
            {"type": "thread.started", "thread_id": "thread-2"},
            {"type": "item.completed", "item": command},
            {"type": "item.completed", "item": {"id": "i4", "type": "agent_message", "text": "Done."}},
            {"type": "turn.completed", "usage": {}},
        ],
    )
    (answer,) = imported("exec.jsonl")
    (event,) = answer["trace"]
    assert (event["name"], event["metadata"]["is_error"]) == ("command_execution", True)
