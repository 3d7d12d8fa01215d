"""What a person sees while a run goes on: in a terminal, and in a pipe."""

import re
from pathlib import Path

import pytest

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
