"""Runs the examples of pages: their code blocks and commands."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click

from agentv import cli
from tests.kits.command_line import Ran, run_in_process

ROOT = Path(__file__).parent.parent.parent
SHELL_SIGNS = frozenset("|<>;&$*?~#`()")
OWN_PROCESS = frozenset(("--cluster", "--collect-traces", "--otel", "view"))
"""What uses the process as a whole: OpenTelemetry's global provider, workers, signals."""


class Block(NamedTuple):
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)]


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output below it."""
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)


def run_console(text: str) -> None:
    """Commands must print what stands below them, errors first.

    A line of `…`, or a `…` that ends the last line, stands for the rest of the output.
    """
    for line, expected in commands(text):
        ran = _run(line)
        printed = undated(ran.stderr + ran.stdout)
        shown, *rest = re.split(r"^…\n|…\n\Z", undated(expected), maxsplit=1, flags=re.MULTILINE)
        assert printed.startswith(shown) if rest else printed == shown
        into = re.search(r" > ([^\s;]+)", line)
        assert Path(into[1]).read_text() if into else printed


def _run(line: str) -> Ran:
    """Run a line in a shell, or in this process if it is a plain command of agentv."""
    words = shlex.split(line)
    if words[0] == "agentv" and SHELL_SIGNS.isdisjoint(line) and OWN_PROCESS.isdisjoint(words):
        return run_in_process(words[1:])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["/bin/sh", "-c", line],
        env={**os.environ, "PATH": path, "GITHUB_ACTIONS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def undated(text: str) -> str:
    """The text without dates and durations, which vary."""
    return re.sub(r"(duration p\d\d|per answer).*", r"\1 TIME", re.sub(r"\d{4}-\d\d-\d\d", "DATE", text))


def check_workflow(text: str) -> list[str]:
    """The commands of a workflow, a pipeline or a script, which must be ones that the command line understands."""
    lines = re.findall(r"^\s*(?:- |run: |- run: |args: \[\")?(agentv .*?)(?:\"\])?$", text, re.MULTILINE)
    assert lines
    for line in lines:
        _, name, *args = shlex.split(re.sub(r"\$\{\{.*?\}\}|\$[A-Z_]+", "1/1", line))
        found = cli.agentv.get_command(click.Context(cli.agentv), name)
        assert found is not None
        assert found.make_context(name, args).params
    return lines
