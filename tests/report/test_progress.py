"""The progress of a run, in a terminal and in a pipe."""

import fcntl
import io
import json
import os
import pty
import re
import sys
import termios
import threading
from pathlib import Path
from types import FrameType

import pytest

from agentv.redact import Redactor
from agentv.report.progress import PlainProgress
from tests.kits.processes import PATIENCE_SECONDS, start_process
from tests.kits.project import Write, a_case
from tests.kits.runs import HELLO, evaluate
from tests.kits.terminal import in_terminal

SLOW = "targets:\n  - {name: default, provider: mock, response: hello, delay_ms: 400}\n"


@pytest.fixture
def cases(write: Write) -> Path:
    write("targets.yaml", SLOW)
    return write("a.jsonl", [a_case(f"case-{n}", evaluators=[HELLO]) for n in range(6)])


WAITING = """
import time
from pathlib import Path

def answer(eval_id):
    while eval_id not in ("case-0", "case-1") and not Path("go").exists():
        time.sleep(0.02)
    return "hello"
"""
"""Two cases are answered at once; the others when a file is there."""


def test_in_a_terminal_there_is_a_live_view(cases: Path, write: Write) -> None:
    write("agent.py", WAITING)
    write("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    expected = ("━", r"2/6 done, mean 1\.000, \d:\d\d elapsed, \d:\d\d left", "   1 case-[23]", "   2 case-[23]")

    def go_on(shown: str) -> None:
        if all(re.search(each, shown) for each in expected):
            Path("go").touch()

    assert "━" in in_terminal(cases, "--workers", "2", seen=go_on)
    assert Path("go").exists()


@pytest.mark.parametrize(("is_controlling", "code", "status"), [(True, 130, "interrupted"), (False, 0, "done")])
def test_a_terminal_may_disappear_during_the_run(
    cases: Path, write: Write, is_controlling: bool, code: int, status: str
) -> None:
    write("agent.py", WAITING)
    write("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    master, slave = pty.openpty()

    def take_terminal() -> None:
        if is_controlling:
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    run = start_process(
        [sys.executable, "-m", "agentv", "eval", cases, "--workers", "2", "--out", "o.jsonl"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(slave)
    shown = b""
    while b"2/6 done" not in shown:
        shown += os.read(master, 4096)
    os.close(master)
    if not is_controlling:
        Path("go").touch()

    assert run.wait(timeout=PATIENCE_SECONDS) == code
    [record] = Path(".agentv/runs").glob("*.json")
    assert json.loads(record.read_text())["status"] == status


def test_no_colour_is_honoured(cases: Path) -> None:
    assert re.search(r"\x1b\[[0-9;]*3[0-9;]*m", in_terminal(cases, "--workers", "6"))
    assert not re.search(r"\x1b\[[0-9;]*3[0-9;]*m", in_terminal(cases, "--workers", "6", NO_COLOR="1"))


def test_in_a_pipe_there_are_plain_lines(cases: Path) -> None:
    ran = evaluate(cases, "--workers", "6")
    assert "\x1b" not in ran.stderr + ran.stdout
    assert re.fullmatch(r"6/6 done, mean 1\.000, 0:\d\d elapsed", ran.stderr.splitlines()[-1])


def test_quiet_is_quiet(cases: Path) -> None:
    assert evaluate(cases, "--workers", "6", "--quiet").stderr == ""
    assert in_terminal(cases, "--workers", "6", "--quiet") == ""


def test_a_signal_while_the_plain_view_ends_does_not_deadlock() -> None:
    progress = PlainProgress(Redactor(), io.StringIO())
    progress.begin(total=1, done=0)

    def end_again(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name == "notify_all":
            progress.end()  # what the handler of a signal does; the lock of the event is held

    def end() -> None:
        sys.settrace(end_again)
        progress.end()

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)

    assert not thread.is_alive()


def test_repeated_retries_are_summarized_in_plain_lines() -> None:
    said = io.StringIO()
    progress = PlainProgress(Redactor([]), said)
    for number in range(5000):
        progress.retried(f"case-{number}", 1, "status 503: overloaded")
    progress.retried("case-1", 1, "timed out\nafter 5 s")
    progress.end()
    lines = said.getvalue().splitlines()
    assert lines == [
        "case-0: attempt 1 failed, retrying: status 503: overloaded",
        "case-1: attempt 1 failed, retrying: status 503: overloaded",
        "case-2: attempt 1 failed, retrying: status 503: overloaded",
        "case-1: attempt 1 failed, retrying: timed out after 5 s",
        "4,997 more retries: status 503: overloaded (4997)",
    ]


def test_retries_for_many_different_reasons_are_summarized() -> None:
    said = io.StringIO()
    progress = PlainProgress(Redactor([]), said)
    for number in range(1000):
        progress.retried(f"case-{number}", 1, f"request {number} failed")
    progress.end()
    lines = said.getvalue().splitlines()
    assert len(lines) == 21
    assert lines[-1].startswith("980 more retries: request 20 failed (1), request 21 failed (1), request 22 failed (1)")
    assert lines[-1].endswith(" and 977 other reasons")


def test_summaries_of_retries_come_with_the_regular_lines(write: Write) -> None:
    write(
        "agent.py",
        "import json\ndef answer(request):\n    if request.attempt == 1:\n        raise OSError('down')\n    return 'hello'\n",
    )
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    path = write("many.jsonl", [a_case(f"c{number}", evaluators=[HELLO]) for number in range(200)])
    ran = evaluate(path, "--max-retries", "1")
    assert ran.stderr.count("attempt 1 failed, retrying: ") == 3
    counts = re.findall(r"^(\d+) more retr(?:y|ies): ", ran.stderr, re.MULTILINE)
    assert sum(map(int, counts)) == 197


def test_lines_break_between_words_in_a_narrow_terminal(cases: Path) -> None:
    first, second, *_ = in_terminal(cases, "--workers", "6").splitlines()
    assert first == "running 6 cases from 1 file on default (mock), targets from"
    assert second == "    targets.yaml, 6 workers"
