"""What a person sees while a run goes on: in a terminal, and in a pipe."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, a_case
from tests.test_seed_eval_cli import HELLO, evaluate

SLOW = "targets:\n  - {name: default, provider: mock, response: hello, delay_ms: 400}\n"


def in_terminal(*args: str | Path, **environment: str) -> str:
    """What the command shows on a terminal of 60 columns."""
    master, slave = pty.openpty()
    env = {**os.environ, "COLUMNS": "60", "LINES": "20", "TERM": "xterm-256color", **environment}
    command: list[Any] = [sys.executable, "-m", "agentv", "eval", *args]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave, env=env)
    os.close(slave)
    shown = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # what Linux says at the end
            break
        if not data:
            break
        shown += data
    os.close(master)
    assert run.wait(timeout=30) == 0
    return shown.decode()


@pytest.fixture
def cases(write: Write) -> Path:
    write("targets.yaml", SLOW)
    return write("a.jsonl", [a_case(f"case-{n}", evaluators=[HELLO]) for n in range(6)])


def test_in_a_terminal_there_is_a_live_view(cases: Path) -> None:
    shown = in_terminal(cases, "--workers", "2")
    assert "━" in shown
    assert re.search(r"2/6 done, mean 1\.000, 0:0\d elapsed, 0:\d\d left", shown)
    assert "   1 case-" in shown
    assert "   2 case-" in shown


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
