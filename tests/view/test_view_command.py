"""The commands `agentv view` and `agentv eval --view`: their output and their end."""

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kits.pages import a_result, a_run, save_results
from tests.kits.processes import start_process, wait_until
from tests.kits.project import Write, a_case, agentv
from tests.kits.viewer import Address, request, viewer

pytestmark = pytest.mark.usefixtures("in_tmp")


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(*args: str) -> str:
    ran = agentv("view", "--no-browser", *args)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    return ran.stderr


def runs_at(at: Address) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(request(at, "/api/runs").body)["runs"]
    return found


def test_a_run_with_only_errors_is_marked_and_has_no_mean(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: http, url: 'http://127.0.0.1:9/'}]")
    write("a.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": ""}])])
    assert agentv("eval", "a.jsonl", "--out", ".agentv/results/eval_1.jsonl").returncode == 1
    assert agentv("runs").stdout.endswith("done, only errors\n")
    failed = {"score": 0.0, "verdict": "fail", "error": "gone", "failure": "target", "evaluator_results": []}
    save_results(Path("recordless/a.jsonl"), [a_result("one") | failed, a_result("two") | failed])
    save_results(Path("recordless/b.jsonl"), [a_result("one") | failed, a_result("two")])
    with viewer(".agentv/results", "recordless") as (_, at):
        runs = {run["name"]: run for run in runs_at(at)}
    for name in ("eval_1.jsonl", "a.jsonl"):
        assert runs[name]["problem"] == "every case ended in an error"
        assert "mean" not in runs[name]
        assert "pass_rate" not in runs[name]
    assert runs["b.jsonl"]["mean"] > 0
    assert "problem" not in runs["b.jsonl"]


def test_by_default_it_shows_the_results_of_this_folder() -> None:
    for number in (1, 2, 3):
        stamp = {"timestamp": f"2026-11-0{number}T00:00:00Z"}
        save_results(Path(f".agentv/results/eval_{number}.jsonl"), [each | stamp for each in a_run(5, number)])
    with viewer() as (_, at):
        runs = runs_at(at)
    assert [run["name"] for run in runs] == ["eval_3.jsonl", "eval_2.jsonl", "eval_1.jsonl"]
    assert all(run["cases"] == 5 and 0 < run["low"] < run["mean"] < run["high"] for run in runs)


def test_invalid_paths_are_errors() -> None:
    assert refused() == (
        "error: .agentv/results: no results found\n"
        "hint: run 'agentv eval' first, which writes to .agentv/results, or pass a results file or folder\n"
    )
    assert "error: nowhere.jsonl: no such file or folder\n" in refused("nowhere.jsonl")
    Path("empty").mkdir()
    Path("empty/notes.jsonl").write_text('{"id": "a", "expected_outcome": "b"}\n')
    assert refused("empty") == (
        "error: empty: the folder contains no results\nhint: run 'agentv eval' first, or pass a results file\n"
    )
    os.mkfifo("pipe")
    assert "error: pipe: neither a file nor a folder\n" in refused("pipe")


def save_lines(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


ONE, TWO = json.dumps(a_result("one")), json.dumps(a_result("two"))
TRUNCATED = "the last line is truncated (Invalid JSON: Unterminated string); skipped"


def test_an_invalid_line_in_a_named_file_is_located() -> None:
    save_results(Path("good.jsonl"), [a_result("one")])
    save_lines(Path("bad.jsonl"), ONE, "nonsense", TWO)
    said = (
        "error: bad.jsonl:2:1: Invalid JSON: Expecting value\n"
        "hint: fix or delete the line; 'agentv view FOLDER' shows the results that can be read\n"
    )
    assert refused("bad.jsonl") == refused("good.jsonl", "bad.jsonl") == said
    save_lines(Path("bad.jsonl"), ONE, '{"prompt": "hi", "score": 1}', TWO)
    assert refused("bad.jsonl") == (
        "error: bad.jsonl:2:1: missing eval_id\n"
        "hint: this is not a result of agentv; use 'agentv import' to read files of other tools\n"
    )
    Path("bad.yaml").write_text("---\neval_id: a\nscore: 1\n...\n---\neval_id: b\nscore: high\n...\n")
    assert refused("bad.yaml").startswith("error: bad.yaml:7:1: score: expected a number, got a string\n")


def test_a_large_file_is_shown_immediately_while_its_lines_are_checked() -> None:
    good = "---\neval_id: a\nscore: 1\nreasoning: >-\n  " + "words " * 4000 + "\n...\n"
    Path("large.yaml").write_text(good * 60 + "---\neval_id: b\nscore: high\n...\n" + good)
    command = [sys.executable, "-m", "agentv", "view", "--no-browser", "large.yaml"]
    process: Any = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    at = Address(process.stdout.readline().split()[-1])
    said = "press Ctrl-C to stop\n"
    while "hint" not in said:
        said += process.stderr.readline()
    assert "error: large.yaml:363:1: score: expected a number, got a string\n" in said
    assert request(at, "/").status == 200  # nobody who looks at it is left alone
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 2


def test_a_large_file_without_an_invalid_line_is_exit_code_0() -> None:
    Path("large.yaml").write_text(("---\neval_id: a\nscore: 1\nreasoning: >-\n  " + "words " * 4000 + "\n...\n") * 60)
    with viewer("large.yaml") as (_, at):
        assert runs_at(at)[0]["cases"] == 1


def test_a_truncated_last_line_is_a_warning_unless_the_run_is_in_progress() -> None:
    Path("a.jsonl").write_text(f"{ONE}\n{TWO[:20]}")
    command = [sys.executable, "-m", "agentv", "view", "--no-browser", "a.jsonl"]
    process: Any = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline().startswith(f"warning: a.jsonl:2: {TRUNCATED} (the run was stopped")
    assert process.stderr.readline() == "press Ctrl-C to stop\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    mine = {"pid": os.getpid()}
    record = {"run_id": "20260101-000000-beef", "status": "running", "results": "a.jsonl", "process": mine}
    Path(".agentv/runs").mkdir(parents=True)
    Path(".agentv/runs/20260101-000000-beef.json").write_text(json.dumps(record))
    with viewer("a.jsonl") as (_, at):  # which does not complain
        assert [(run["status"], run["cases"]) for run in runs_at(at)] == [("running", 1)]


def test_the_list_of_a_folder_marks_invalid_files(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    write("evals/some.jsonl", [a_case("a")])
    assert agentv("eval", "evals", "--dry-run", "--out", ".agentv/results/eval_1.jsonl").returncode == 0
    with Path(".agentv/results/eval_1.jsonl").open("a") as file:
        file.write("nonsense\nmore\n")
    save_lines(Path(".agentv/results/eval_2.jsonl"), ONE, '{"eval_id": "b"}', TWO)
    save_results(Path(".agentv/results/eval_3.jsonl"), [a_result("one")])
    with viewer() as (_, at):
        runs = {run["name"]: run for run in runs_at(at)}
        Path(".agentv/results/eval_3.jsonl").write_text(f"nonsense\n{ONE}\n")  # it breaks while it is shown
        wait_until(lambda: any(run.get("problem", "").startswith("line 1: ") for run in runs_at(at)))
    assert {name: run.get("problem", "") for name, run in runs.items()} == {
        "eval_1.jsonl": "line 2: Invalid JSON: Expecting value (and 1 more)",
        "eval_2.jsonl": "line 2: missing score",
        "eval_3.jsonl": "",
    }
    assert runs["eval_2.jsonl"]["cases"] == 2


def test_invalid_ports_are_errors() -> None:
    save_results(Path("a.jsonl"), [a_result("one")])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("a.jsonl", "--port", str(port))
    assert f"error: port {port} cannot be used: Address already in use\n" in said
    assert "hint: choose another --port, or omit it to use any free port\n" in said
    assert "70000 is not in the range 0<=x<=65535" in refused("a.jsonl", "--port", "70000")


def test_a_port_can_be_chosen_and_is_released_immediately() -> None:
    save_results(Path("a.jsonl"), [a_result("one")])
    with socket.socket() as free:  # it stays bound, so that nobody else is given it
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        for _ in range(2):
            with viewer("a.jsonl", "--port", str(port)) as (_, at):
                assert at.port == port
                assert request(at, "/").status == 200


def test_a_single_file_is_opened_directly() -> None:
    save_results(Path("a.jsonl"), [a_result("one")])
    with viewer("a.jsonl") as (_, at):
        (run,) = runs_at(at)
        assert at.whole.startswith(f"{at.origin}/run/{run['id']}#token=")


def test_a_missing_browser_does_not_stop_the_viewer() -> None:
    save_results(Path("a.jsonl"), [a_result("one")])
    hidden = {
        name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    }
    for environment in (hidden, hidden | {"BROWSER": "/nowhere/browser"}):
        command = [sys.executable, "-m", "agentv", "view", "a.jsonl"]
        process: Any = start_process(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        at = Address(process.stdout.readline().split()[-1])
        said = [process.stderr.readline(), process.stderr.readline()]
        assert said == ["press Ctrl-C to stop\n", "no browser found: open the URL yourself\n"]
        assert request(at, "/").status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_the_token_is_not_on_the_browsers_command_line() -> None:
    save_results(Path("a.jsonl"), [a_result("one")])
    script = Path("browser").absolute()
    script.write_text('#!/bin/sh\necho "$@" > seen.txt.new; cp "${1#file://}" page.html; mv seen.txt.new seen.txt\n')
    script.chmod(0o755)
    command = [sys.executable, "-m", "agentv", "view", "a.jsonl"]
    environment = os.environ | {"BROWSER": f"{script} %s"}
    process: Any = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    at = Address(process.stdout.readline().split()[-1])
    wait_until(lambda: Path("seen.txt").exists())
    address = Path("seen.txt").read_text().strip()
    assert re.fullmatch(r"file:///\S+/agentv-view-\w+\.html", address)
    page = Path(address.removeprefix("file://"))
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert f'content="0; url={at.whole}"' in Path("page.html").read_text()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert not page.exists()


def test_other_signals_stop_the_viewer() -> None:
    save_results(Path("a.jsonl"), [a_result("one")])
    command = [sys.executable, "-m", "agentv", "view", "a.jsonl", "--no-browser"]
    process: Any = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "press Ctrl-C to stop\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")


def test_runs_are_listed_with_data_from_their_records(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    write("evals/some.jsonl", [a_case("a", evaluators=[{"type": "contains", "value": "hello"}]), a_case("b")])
    for out in ((), ("--out", "elsewhere.jsonl"), ("--out", "gone.jsonl")):
        assert agentv("eval", "evals", "--dry-run", *out).returncode == 0
    Path("gone.jsonl").unlink()
    Path(".agentv/runs/20200101-000000-dead.json").write_text("{")
    with viewer() as (_, at):
        runs = runs_at(at)
    assert [(run["evals"], run["status"], run["cases"], run["targets"]) for run in runs] == [
        (["some.jsonl"], "done", 2, ["default"])
    ] * 3
    notes = {run["name"]: (run.get("id") is not None, run.get("note", "")) for run in runs}
    assert notes["elsewhere.jsonl"] == (False, "in another folder: agentv view elsewhere.jsonl")
    assert notes["gone.jsonl"] == (False, "the results file no longer exists")
    assert [note for note in notes.values() if note[0]] == [(True, "")]


SLOW = "targets:\n  - {name: default, provider: mock, response: hello, delay_ms: 300}\n"


def project(write: Write, count: int = 4) -> None:
    write("targets.yaml", SLOW)
    check = {"type": "contains", "value": "hello"}
    write("cases.jsonl", [a_case(f"case-{number}", evaluators=[check]) for number in range(count)])


WAITING = """
import time
from pathlib import Path

def answer(question):
    while not Path("go").exists():
        time.sleep(0.02)
    return "hello"
"""


def test_eval_with_view_shows_the_run_and_changes_nothing_about_it(write: Write) -> None:
    project(write)
    write("agent.py", WAITING)
    write("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    write("go", "")
    plain = agentv("eval", "cases.jsonl", "--quiet", "--out", "plain.jsonl")
    Path("go").unlink()
    command = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--quiet", "--out", "out.jsonl", "--view"]
    process: Any = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()
    at = Address(line.split()[-1])
    assert line.startswith("Viewer: http://127.0.0.1:")
    (run,) = runs_at(at)
    assert (run["name"], run["status"]) == ("out.jsonl", "running")
    write("go", "")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == plain.returncode == 0
    same = [text.replace("plain.jsonl", "out.jsonl") for text in (plain.stdout, out)]
    durations = re.compile(r"duration .*")
    assert durations.sub("", same[0]) == durations.sub("", same[1])
    with pytest.raises(OSError):
        request(at, "/")  # nobody is at a terminal to end it, so it ends with the run


def test_on_a_terminal_the_viewer_runs_until_ctrl_c_and_keeps_the_exit_code(write: Write) -> None:
    project(write, 1)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--quiet", "--fail-under", "1.0", "--view"]
    write("targets.yaml", SLOW.replace("hello", "bye"))
    process: Any = start_process(command, stdout=subprocess.DEVNULL, stderr=theirs, start_new_session=True)
    os.close(theirs)
    said = b""
    while b"press Ctrl-C to stop the viewer" not in said:
        said += os.read(ours, 4096)
    while (found := re.search(rb"(http://\S+token=\S+)\s", said)) is None:
        said += os.read(ours, 4096)
    at = Address(found[1].decode())
    (run,) = runs_at(at)
    assert run["status"] == "done"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 1
    os.close(ours)
    with pytest.raises(OSError):
        request(at, "/")


def test_ctrl_c_in_the_run_ends_both(write: Write) -> None:
    project(write, 200)
    command = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--quiet", "--view"]
    process: Any = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    at = Address(process.stderr.readline().split()[-1])
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    with pytest.raises(OSError):
        request(at, "/")


def test_killing_a_run_stops_its_viewer(write: Write) -> None:
    project(write, 200)
    command = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--quiet", "--view"]
    process: Any = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    at = Address(process.stderr.readline().split()[-1])
    assert _answers(at)
    process.kill()
    process.wait()
    wait_until(lambda: not _answers(at))
    assert not _answers(at)


def _answers(at: Address) -> bool:
    time.sleep(0.05)
    try:
        return request(at, "/").status > 0
    except (OSError, IndexError):
        return False


def test_view_needs_a_file(write: Write) -> None:
    project(write)
    ran = agentv("eval", "cases.jsonl", "--out", "-", "--view")
    assert ran.returncode == 2
    assert "error: --view needs a results file, but --out is stdout\n" in ran.stderr
