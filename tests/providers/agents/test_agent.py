"""The common behavior of coding agents, tested with stand-ins for two of them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentv.providers.agents.claude_code import ClaudeTranscript
from agentv.providers.agents.codex import CodexTranscript
from agentv.providers.agents.transcript import Transcript, add_line, parse_event
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
from tests.kits.codex_events import COMPLETED, STARTED, item, message, reconnecting
from tests.kits.processes import PATIENCE_SECONDS, living, start_process, wait_until
from tests.kits.project import Write, agentv

SECRET = 'canary "quoted" \\ é/?'


@pytest.fixture
def claude(write: Write) -> Agents:
    return Agents(write, "claude-code")


@pytest.fixture
def codex(write: Write) -> Agents:
    return Agents(write, "codex")


# Workspaces


def test_concurrent_cases_are_isolated_and_do_not_change_the_template(claude: Agents) -> None:
    claude.write("template/src/app.py", "pass")
    claude.write("outside.txt", "outside")
    Path("template/link").symlink_to("../outside.txt")
    claude.settings |= {"workspace_template": "template"}
    together = (
        "Path('mine-' + str(os.getpid())).write_text('x'); Path('src/app.py').write_text('spoiled')\n"
        "while (HERE / 'calls.jsonl').read_text().count('\\n') < 2: time.sleep(0.01)\n"
        "assert len(list(Path('.').glob('mine-*'))) == 1 and os.readlink('link') == '../outside.txt'\n"
        "replay()"
    )
    found = claude.does(together, result()).run("--workers", "2", ids=("a", "b"))
    assert [entry["candidate_answer"] for entry in found] == ["Paris", "Paris"]
    assert [call["files"] for call in claude.calls] == [["link", "src", "src/app.py"]] * 2
    assert len({call["cwd"] for call in claude.calls}) == 2
    assert not any(Path(call["cwd"]).exists() for call in claude.calls)
    assert Path("template/src/app.py").read_text() == "pass"
    assert Path("outside.txt").read_text() == "outside"


def test_workspaces_with_read_only_files_are_removed_after_a_failure(codex: Agents) -> None:
    script = "Path('locked/in').mkdir(parents=True); Path('locked/in/file').write_text('x'); os.chmod('locked/in', 0)\n"
    codex.does(script + "os.chmod('locked', 0o500); sys.exit(3)").run(expect=1)
    (call,) = codex.calls
    assert not Path(call["cwd"]).exists()


def test_a_template_that_cannot_be_copied_is_an_error_for_the_case(codex: Agents) -> None:
    codex.write("template/a.txt", "a")
    os.mkfifo("template/pipe")
    codex.settings |= {"workspace_template": "template"}
    (found,) = codex.does("replay()", message(), COMPLETED).run(expect=1)
    assert found["error"].startswith("workspace_template cannot be copied: ")
    assert "is a named pipe" in found["error"]
    assert codex.calls == []


def test_an_interrupted_run_leaves_no_workspace_and_no_agent(codex: Agents, nap: str) -> None:
    codex.does("replay()", message(), COMPLETED).run()
    codex.does(f"subprocess.run({nap.split()!r})")
    line = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--out", "out.jsonl"]
    run = start_process(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: living(nap) != [])
    run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE_SECONDS) == 130
    assert living(nap) == []
    assert not Path(codex.calls[0]["cwd"]).exists()


# Settings


@pytest.mark.parametrize("provider", ["claude-code", "codex", "vscode"])
def test_settings_that_contradict_each_other_or_are_unknown(write: Write, provider: str) -> None:
    entry = {"name": "a", "provider": provider, "cwd": ".", "workspace_template": ".", "log_format": "xml"}
    path = write("targets.yaml", json.dumps({"targets": [entry]}, indent=0))
    ran = agentv("validate", path)
    assert ran.returncode == 1
    assert "error: target 'a': workspace_template: cwd is set as well (" in ran.stdout
    assert "error: target 'a': log_format: unknown log_format 'xml' (available: json, summary)" in ran.stdout


def test_a_log_format_can_come_from_the_environment(codex: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORM", "summary")
    codex.settings |= {"log_format": "${{ FORM }}"}
    codex.answer(message(), COMPLETED)
    assert next(iter(codex.logs().values())).startswith("agent_message: Paris\n")
    monkeypatch.setenv("FORM", "xml")
    codex.run(expect=2)
    assert "unknown log_format 'xml'" in codex.ran.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"executable": None}, "no such program: claude"),
        ({"executable": "./nowhere"}, "no such program: /"),
        ({"executable": "plain.txt"}, "no such program: plain.txt"),
        ({"cwd": "nowhere"}, "cwd: no such folder: "),
        ({"workspace_template": "nowhere"}, "workspace_template: no such folder: "),
    ],
)
def test_missing_files_stop_the_run_before_it_starts(
    claude: Agents, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], words: str
) -> None:
    monkeypatch.setenv("PATH", str(claude.write("plain.txt", "no program").parent))
    claude.settings |= settings
    claude.does("replay()", result())
    claude.settings = {name: value for name, value in claude.settings.items() if value is not None}
    with pytest.raises(FileNotFoundError):
        claude.run(expect=2)
    assert f"target 'default': {words}" in claude.ran.stderr
    if "program" in words:
        assert "npm install -g @anthropic-ai/claude-code" in claude.ran.stderr
    assert claude.calls == []


def test_a_program_is_found_on_the_path(claude: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    claude.does("replay()", result())
    Path("bin").mkdir()
    Path("stand-in").rename("bin/claude")
    del claude.settings["executable"]
    monkeypatch.setenv("PATH", f"{Path('bin').resolve()}{os.pathsep}{os.environ['PATH']}")
    (found,) = claude.run()
    assert found["candidate_answer"] == "Paris"


@pytest.mark.parametrize("provider", ["claude-code", "codex", "vscode", "vscode-insiders"])
def test_a_dry_run_needs_no_program(write: Write, provider: str) -> None:
    agents = Agents(write, provider, executable="./nowhere")
    (found,) = agents.run("--dry-run")
    assert found["candidate_answer"] == "Mock dry-run response"


# Logs


def test_a_log_has_the_unchanged_lines_without_secrets(claude: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    leak = [
        assistant(tool_use("t1", "Bash", command=f"curl -H {SECRET}")),
        tool_result("t1", json.dumps({"k": SECRET})),
    ]
    claude.does("replay()\nprint('plain ' + os.environ['MY_API_KEY'])", INIT, *leak, result(SECRET), "")
    for form in ("json", "summary"):
        claude.settings |= {"log_format": form, "log_dir": f"logs/{form}"}
        claude.run(ids=(f"id {SECRET}",))
    ((name, raw),) = claude.logs("logs/json").items()
    ((_, summary),) = claude.logs("logs/summary").items()
    assert [json.loads(line)["type"] for line in raw.splitlines()[:-1]] == ["system", "assistant", "user", "result"]
    assert raw.splitlines()[-1] == "plain ***"
    assert "canary" not in name + raw + summary + claude.ran.stderr
    assert raw.count("***") == 4


def test_a_summary_has_one_short_line_per_event(claude: Agents, codex: Agents) -> None:
    claude.settings |= {"log_format": "summary"}
    claude.answer(
        INIT,
        assistant({"type": "thinking", "thinking": "Hm.\nWell."}),
        "no event",
        assistant(text("x" * 1000), tool_use("t1", "Read", file_path="a.md")),
        tool_result("t1", "gone", is_error=True),
        result(),
    )
    ((name, log),) = claude.logs().items()
    assert name.endswith("_a_attempt-1.log")
    assert log.splitlines() == [
        "system: init",
        "thinking: Hm. Well.",
        f"assistant: {'x' * 289}…",
        "Read returned (failed): gone",
        "result: success: Paris",
    ]
    codex.settings |= {"log_format": "summary"}
    codex.answer(*STARTED, item("command_execution", command="ls", exit_code=0), message(), COMPLETED)
    ((_, log),) = codex.logs().items()
    assert log.splitlines() == [
        "thread.started",
        "turn.started",
        'command_execution: {"command":"ls"} returned: {"exit_code":0}',
        "agent_message: Paris",
        'turn.completed: {"input_tokens":1200,"cached_input_tokens":200,"output_tokens":345}',
    ]


def test_a_log_is_written_incrementally_and_kept_after_a_timeout(codex: Agents, reached: str) -> None:
    wait = "logs = HERE / '.agentv/logs/codex'\nwhile b'thread.started' not in next(logs.iterdir()).read_bytes(): "
    codex.does(
        f"replay()\n{wait}time.sleep(0.01)\nprint(json.dumps({message()!r}))\nprint(json.dumps({COMPLETED!r}))",
        *STARTED,
        "",
    )
    (found,) = codex.run()
    assert found["candidate_answer"] == "Paris"
    codex.settings |= {"timeout_seconds": 3, "log_dir": "late"}
    codex.does("replay()\nprint('still at it', file=sys.stderr, flush=True)\nhang()", *STARTED, "")
    (found,) = codex.run(expect=1)
    assert (found["error"], found["failure"]) == ("timed out after 3 s: still at it", "timeout")
    ((_, log),) = codex.logs("late").items()
    assert len(log.splitlines()) == 2


def test_logs_of_the_same_case_never_share_a_file(claude: Agents) -> None:
    claude.does("replay()", result())
    for _ in range(3):
        claude.run(ids=("a", "../b/c"))
    assert len(claude.logs()) == 6


def test_an_unwritable_log_is_reported_once_and_does_not_fail_the_case(claude: Agents) -> None:
    claude.write("taken", "a file where a folder should be")
    claude.settings |= {"log_dir": "taken"}
    found = claude.does("replay()", result()).run(ids=("a", "b", "c"))
    assert [entry["candidate_answer"] for entry in found] == ["Paris"] * 3
    assert claude.ran.stderr.count("logs cannot be written here: File exists") == 1


# Programs that misbehave


def test_a_timeout_ends_the_whole_group_of_an_agent_that_ignores_it(codex: Agents, nap: str, reached: str) -> None:
    codex.settings |= {"timeout_seconds": 3}
    codex.does(
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsubprocess.Popen({nap.split()!r})\n"
        f"subprocess.Popen({['setsid', *nap.split()]!r})\nhang()"
    )
    (found,) = codex.run(expect=1)
    assert found["failure"] == "timeout"
    wait_until(lambda: living(nap) == [])
    assert not Path(codex.calls[0]["cwd"]).exists()


def test_a_huge_line_is_skipped_without_losing_the_answer(claude: Agents) -> None:
    flood = "for _ in range(40): sys.stdout.write('x' * (1 << 20))\nprint()\nreplay()"
    (found,) = claude.does(flood, result()).run()
    assert found["candidate_answer"] == "Paris"


def test_very_many_events_use_little_memory_and_lose_no_answer(claude: Agents) -> None:
    """Intermediate steps are kept up to a limit; the answer is always kept."""
    call = json.dumps(assistant(tool_use("t", "Read", text="y" * (1 << 20))))
    flood = f"for number in range(40): print({call!r}.replace('\"t\"', f'\"t{{number}}\"'))\nreplay()"
    (found,) = claude.does(flood, result()).run()
    assert found["candidate_answer"] == "Paris"
    assert 25 < found["trace_summary"]["eventCount"] < 40


def test_a_long_line_is_read_as_an_event(claude: Agents) -> None:
    found = claude.answer(
        assistant(tool_use("t1", "Read")), tool_result("t1", "é" * 2_000_000), result("ü" * 1_000_000)
    )
    assert len(found["candidate_answer"]) == 1_000_000
    assert len(found["trace"][0]["output"]) == 2_000_000


def test_special_characters_arrive_unchanged(codex: Agents) -> None:
    odd = "two\r\nlines \u2028 😀 \x00 مرحبا"
    codex.case = {"input_messages": [{"role": "user", "content": odd}]}
    answer = json.dumps(message(odd), ensure_ascii=True)
    assert codex.answer(answer, COMPLETED)["candidate_answer"] == odd
    half = answer.replace("\\ude00", "")
    assert codex.answer(half, COMPLETED)["candidate_answer"] == odd.replace("😀", "?")


def test_an_impossible_argument_is_an_error_for_the_case(claude: Agents) -> None:
    claude.settings |= {"system_prompt": "a\0b"}
    error = claude.error(result())
    assert error == "an argument of the program contains a NUL character"
    claude.settings |= {"system_prompt": "x" * 200_000}
    assert claude.error(result()) == "the command cannot be started: Argument list too long"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
EVENTS = [
    *(INIT, assistant(text("a"), tool_use("t1", "Read", a=1)), tool_result("t1", [text("b")]), result()),
    *(*STARTED, COMPLETED, message(), item("command_execution", command="ls"), item("web_search", "started")),
    *(item("mcp_tool_call", server="s", tool="t", arguments={}), {"type": "turn.failed", "error": {"message": "m"}}),
    *(item("collab_tool_call", tool="wait", prompt=None, status="failed"), item("todo_list", items=[]), item("new")),
    *(reconnecting(1, "unexpected status 401"), item("command_execution", command="sh -c 'a b'", status="declined")),
    *(api_retry(1, 529, "overloaded"), permission_denied("t1", "Read")),
    assistant(
        tool_use("t1", "mcp__s__t"), tool_use_meta=[{"id": "t1", "tool_name": "t"}], timestamp="2026-11-17T05:32Z"
    ),
    result(modelUsage={"a": model_usage(fresh=1)}, permission_denials=[{"tool_name": "Read", "tool_use_id": "t1"}]),
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """All positions in a value at which it can be replaced."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in steps for place in ((value, key), *places(inner))]


@given(st.data(), st.sampled_from([ClaudeTranscript, CodexTranscript]))
def test_no_event_breaks_a_transcript(data: st.DataObject, kind: type[Transcript]) -> None:
    transcript = kind()
    for event in data.draw(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=5)):
        spoiled = json.loads(json.dumps(event))
        holder, key = data.draw(st.sampled_from(places(spoiled)))
        holder[key] = data.draw(values)
        assert isinstance(add_line(transcript, json.dumps(spoiled).encode()), str)
    assert isinstance(transcript.response(1.0).text, str)
    assert isinstance(transcript.note(), str | None)


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"a":' * 100_000, b'{"a": "\\ud83d', b"\xff", b'{"a": 1} {"b": 2}'])
def test_lines_that_are_not_events(line: bytes) -> None:
    assert parse_event(line) is None
