"""Command targets: what they receive, where they run, how they answer, and whether they are ready."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.kits.project import Write, a_case
from tests.kits.runs import ANY, evaluate, one_case, results, target


def test_all_the_placeholders(write: Write) -> None:
    write("notes.txt", "notes")
    write("style.instructions.md", 'Be brief.\nIt\'s "short".')
    blocks = [{"type": "text", "value": "Hi $(x)"}, {"type": "file", "value": "style.instructions.md"}]
    case = a_case("it's/1", input_messages=[{"role": "user", "content": blocks}], evaluators=[ANY])
    write("cases.jsonl", [case])
    names = ("PROMPT", "GUIDELINES", "EVAL_ID", "ATTEMPT")
    command = f"printf '%s|' {' '.join(f'{{{name}}}' for name in names)} > {{OUTPUT_FILE}}; cat {{PROMPT_FILE}} >> {{OUTPUT_FILE}}"
    write("targets.yaml", target(command))
    evaluate("cases.jsonl", "--out", "out.jsonl")
    prompt = "Hi $(x)\n<Attached: style.instructions.md>"
    assert results("out.jsonl")[0]["candidate_answer"] == f"{prompt}|Be brief.\nIt's \"short\".|it's/1|1|{prompt}"


def test_files_are_separate_arguments_in_the_requested_format(write: Write) -> None:
    names = ["a b.txt", "it's $(x).txt", "-c.txt"]
    for name in names:
        write(f"evals/{name}", name)
    blocks = [{"type": "file", "value": name} for name in names]
    write("evals/cases.jsonl", [a_case("a", input_messages=[{"role": "user", "content": blocks}], evaluators=[ANY])])
    folder = Path("evals").absolute()
    for format_, word in (
        ("{path}", "FOLDER/NAME"),
        ("--file {path}", "--file|FOLDER/NAME"),
        ("--as='{basename}'={path}", "--as=NAME=FOLDER/NAME"),
    ):
        write("targets.yaml", target("printf '%s|' - {FILES}", files_format=format_))
        evaluate("evals/cases.jsonl", "--out", "out.jsonl")
        words = [word.replace("FOLDER", str(folder)).replace("NAME", name) for name in names]
        assert results("out.jsonl")[0]["candidate_answer"] == "|".join(["-", *words, ""])


def test_without_files_there_are_no_arguments(write: Write) -> None:
    assert one_case(write, "printf '%s|' a {FILES} b", expect=0)["candidate_answer"] == "a|b|"


def test_the_working_directory_is_relative_to_the_eval_file(write: Write) -> None:
    write("evals/cases.jsonl", [a_case("a", evaluators=[ANY])])
    write("evals/in here/x", "")
    for cwd, expected in ((None, "evals"), ("in here", "evals/in here"), ("..", ".")):
        write("targets.yaml", target("pwd -P", **({"cwd": cwd} if cwd else {})))
        evaluate("evals/cases.jsonl", "--out", "out.jsonl")
        assert results("out.jsonl")[0]["candidate_answer"] == f"{Path(expected).resolve()}\n"
    write("targets.yaml", target("pwd", cwd="nowhere"))
    ran = evaluate("evals/cases.jsonl", expect=2)
    assert "target 'default': cwd: no such folder: " in ran.stderr


def test_a_child_has_the_environment_including_dotenv(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "one")
    write(".env", "FROM_DOTENV=two\n")
    command = "printf '%s %s %s' $FROM_OUTSIDE $FROM_DOTENV ${{ FROM_DOTENV }}"
    assert one_case(write, command, expect=0)["candidate_answer"] == "one two two"


def test_a_variable_in_a_command_may_contain_placeholders(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT", "printf '%s' {PROMPT}; echo")
    assert one_case(write, "${{ AGENT }} ...", expect=0)["candidate_answer"] == "Query...\n"


def test_metrics_and_messages_come_from_the_output(write: Write) -> None:
    answer = {
        "text": "Paris",
        "token_usage": {"input": 5, "output": 2, "cached": 1},
        "cost_usd": 0.25,
        "duration_ms": 12,
        "trace": [
            {"type": "tool_call", "id": "1", "name": "search", "timestamp": "2026-01-01T00:00:00Z"},
            {"type": "tool_result", "id": "1", "timestamp": "2026-01-01T00:00:01.5Z"},
        ],
    }
    write("answer.json", json.dumps(answer))
    result = one_case(write, "cat answer.json", expect=0)
    metrics = {"token_usage": answer["token_usage"], "cost_usd": 0.25, "duration_ms": 12.0}
    assert result["execution_metrics"] == metrics
    assert result["trace_summary"] == {
        "eventCount": 2,
        "toolNames": ["search"],
        "toolCallsByName": {"search": 1},
        "errorCount": 0,
        "tokenUsage": answer["token_usage"],
        "costUsd": 0.25,
        "durationMs": 12.0,
        "toolDurations": {"search": [1500.0]},
    }


def test_without_a_reported_duration_the_process_is_timed(write: Write) -> None:
    result = one_case(write, "sleep 0.2; echo hello", expect=0)
    assert result["execution_metrics"]["duration_ms"] >= 200


def test_a_timeout_is_retried_with_the_next_attempt_number(write: Write, reached: str) -> None:
    command = f"[ {{ATTEMPT}} = 2 ] || {{ {reached}; sleep 60; }}; echo attempt {{ATTEMPT}}"
    result = one_case(write, command, "--max-retries", "3", "--dump-traces", timeout_seconds=3, expect=0)
    assert (result["attempt"], result["candidate_answer"]) == (2, "attempt 2\n")
    dumps = sorted(Path(".agentv/traces").iterdir())
    assert [path.name for path in dumps] == ["a_attempt-1.json", "a_attempt-2.json"]
    assert all(json.loads(path.read_text())["trace"] is None for path in dumps)


def temporary_files(write: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write("tmp/x", "").parent
    (folder / "x").unlink()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize(
    "command", ["cp {PROMPT_FILE} {OUTPUT_FILE}", "cat {PROMPT_FILE}; mkdir -p {OUTPUT_FILE}/x; exit 1"]
)
def test_temporary_files_are_removed(write: Write, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    folder = temporary_files(write, monkeypatch)
    one_case(write, command, expect=1 if "exit" in command else 0)
    assert list(folder.iterdir()) == []


def test_temporary_files_can_be_kept(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = temporary_files(write, monkeypatch)
    write("targets.yaml", target("cp {PROMPT_FILE} {OUTPUT_FILE}", keep_temp_files=True))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    ran = evaluate("cases.jsonl")
    (kept,) = folder.iterdir()
    assert f"target 'default': its temporary files are kept in {kept}" in ran.stderr
    assert sorted(path.read_text() for path in kept.iterdir()) == ["Query", "Query"]


def test_a_verbose_target_prints_its_command(write: Write) -> None:
    write("targets.yaml", target("echo {PROMPT} {EVAL_ID}", verbose=True))
    write("cases.jsonl", [a_case("it's", evaluators=[ANY])])
    assert "note: it's: running echo Query 'it'\"'\"'s'" in evaluate("cases.jsonl").stderr


class Ready(BaseHTTPRequestHandler):
    calls: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.calls.append(self.path)
        if self.path == "/slow":
            time.sleep(1)
        self.send_response({"/ok": 200, "/moved": 302}.get(self.path, 503))
        self.send_header("Location", "/ok")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not to the terminal."""


@pytest.fixture
def server() -> Iterator[str]:
    Ready.calls = []
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def two_files(write: Write, **settings: object) -> None:
    write("targets.yaml", target("echo run >> ran; echo hello", **settings))
    for name in ("a", "b"):
        write(f"{name}.jsonl", [a_case(f"{name}{n}", evaluators=[ANY]) for n in range(3)])


def test_a_health_check_runs_once_before_the_first_case(write: Write, server: str) -> None:
    two_files(write, healthcheck={"type": "http", "url": f"{server}/moved", "timeout_seconds": 100})
    evaluate("a.jsonl", "b.jsonl", "--workers", "4")
    assert Ready.calls == ["/moved", "/ok"]
    two_files(write, healthcheck={"type": "command", "command_template": "echo checked >> ran", "timeout_seconds": 100})
    Path("ran").unlink()
    evaluate("a.jsonl", "b.jsonl", "--workers", "4")
    assert Path("ran").read_text().split() == ["checked", *["run"] * 6]


@pytest.mark.parametrize(
    ("check", "error"),
    [
        ({"type": "http", "url": "SERVER/bad"}, "SERVER/bad: status 503 Service Unavailable"),
        ({"type": "http", "url": "http://127.0.0.1:1/"}, "http://127.0.0.1:1/: [Errno 111] Connection refused"),
        ({"type": "http", "url": "http://127.0.0.1:abc/"}, "http://127.0.0.1:abc/: nonnumeric port: 'abc'"),
        ({"type": "http", "url": "SERVER/slow", "timeout_seconds": 0.2}, "SERVER/slow: "),
        (
            {"type": "command", "command_template": "echo not yet >&2; exit 4"},
            "the command failed with exit code 4: not yet",
        ),
        (
            {"type": "command", "command_template": "sleep 60", "timeout_seconds": 0.2},
            "the command timed out after 0.2 s",
        ),
    ],
)
def test_a_target_that_is_not_ready_stops_the_run_before_it_starts(
    write: Write, server: str, check: dict[str, object], error: str
) -> None:
    two_files(
        write,
        healthcheck={
            name: str(value).replace("SERVER", server) if isinstance(value, str) else value
            for name, value in {"timeout_seconds": 100, **check}.items()
        },
    )
    out = write("out.jsonl", "what was there before")
    ran = evaluate("a.jsonl", "--out", "out.jsonl", expect=2)
    assert f"error: target 'default' is not ready: {error.replace('SERVER', server)}" in ran.stderr
    assert not Path("ran").exists()
    assert out.read_text() == "what was there before"


def test_impossible_settings_are_rejected(write: Write) -> None:
    two_files(write, timeout_seconds=0)
    assert "timeout_seconds: must be greater than 0, got 0" in evaluate("a.jsonl", expect=2).stderr
    two_files(write, healthcheck={"type": "http", "url": "file:///etc/passwd"})
    ran = evaluate("a.jsonl", expect=2)
    assert "healthcheck.url: not an http or https address" in ran.stderr


def test_a_dry_run_starts_no_process(write: Write) -> None:
    two_files(write, healthcheck={"type": "command", "command_template": "echo checked >> ran"})
    evaluate("a.jsonl", "--dry-run")
    assert not Path("ran").exists()


def test_a_batch_setting_without_effect_is_reported(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, provider_batching: true}]")
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    ran = evaluate("cases.jsonl")
    assert "target 'default': provider_batching: mock targets do not answer in batches" in ran.stderr


def test_evaluate_from_python_runs_commands_too(write: Write) -> None:
    two_files(write)
    code = "import asyncio, agentv\nreport = asyncio.run(agentv.evaluate('a.jsonl', workers=3))\nprint(report.results[0].candidate_answer)"
    write("run.py", code)
    run = subprocess.run([sys.executable, "run.py"], capture_output=True, text=True, check=True)
    assert run.stdout == "hello\n\n"
