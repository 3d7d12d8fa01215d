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
