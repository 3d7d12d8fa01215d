"""Help fits terminals of any width, and usage errors have a hint."""

import os
import re
import shlex

import click
import pytest

from agentv import cli
from tests.kits.project import Write, agentv

COMMANDS = [[], *([name] for name in sorted(cli.PATHS)), ["cache", "clear"]]


def shown(*args: str, columns: int = 80) -> str:
    ran = agentv(*args, "--help", env={**os.environ, "COLUMNS": str(columns)})
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def examples(text: str) -> list[list[str]]:
    """The calls of agentv in the examples, which are the last section."""
    lines = text.partition("\nExamples:\n")[2].splitlines()
    calls = [re.search(r"agentv (.*?)(?=\)\"| \||  +#| >|$)", line) for line in lines]
    return [shlex.split(call[1]) for call in calls if call]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_ends_with_runnable_examples(path: list[str]) -> None:
    found = examples(shown(*path))
    assert found
    for words in found:
        context, rest = click.Context(cli.agentv), words
        command: click.Command | None = cli.agentv
        while isinstance(command, click.Group):
            _, command, rest = command.resolve_command(context, rest)
        assert command is not None
        assert command.make_context(words[0], rest).params is not None
        assert not path or cli.ALIASES.get(path[0], path[0]) == words[0]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("columns", [60, 80])
def test_help_fits_into_the_terminal(path: list[str], columns: int) -> None:
    lines = shown(*path, columns=columns).splitlines()
    assert lines
    assert [line for line in lines if len(line) > columns] == []


@pytest.mark.parametrize("path", [["batch"], ["cache"], ["labels"]], ids=" ".join)
@pytest.mark.parametrize("columns", [60, 80])
def test_help_does_not_shorten_the_descriptions_of_subcommands(path: list[str], columns: int) -> None:
    commands = shown(*path, columns=columns).partition("\nCommands:\n")[2].partition("\nExamples:\n")[0]
    assert commands
    assert "..." not in commands


def test_eval_help_groups_options() -> None:
    sections = re.findall(r"^(\w[\w ]+):\n((?: +.*\n)+)", shown("eval"), re.MULTILINE)
    titles = {title: re.findall(r"^  (?:-h, )?(--[\w-]+)", body, re.MULTILINE) for title, body in sections}
    assert list(titles)[:4] == ["What runs", "Where results go", "How it runs", "Looking inside"]
    assert "--target" in titles["What runs"]
    assert "--out" in titles["Where results go"]
    assert "--workers" in titles["How it runs"]
    assert "--dump-prompts" in titles["Looking inside"]
    assert titles["Other options"] == ["--help"]


def test_on_a_narrow_terminal_the_columns_of_all_groups_agree() -> None:
    rows = re.findall(r"^(  --[\w-]+(?: \S+)?  +)\S", shown("eval", columns=60), re.MULTILINE)
    assert len(rows) > 10
    assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize(
    ("args", "error", "hint"),
    [
        (["evl"], "no such command 'evl'", "did you mean 'eval'?"),
        (["--versoin"], "no such option '--versoin'", "did you mean '--version'?"),
        (["eval", "--targt", "x"], "no such option '--targt'", "did you mean '--target'?"),
        (
            ["eval"],
            "name an eval file, a folder or a glob",
            "for example: agentv eval evals/; 'agentv init' creates a project that runs immediately",
        ),
        (
            ["eval", "x", "--limit"],
            "option '--limit' requires an argument",
            "for example: agentv eval evals/; see 'agentv eval --help'",
        ),
        (
            ["eval", "x", "--qqq"],
            "no such option '--qqq'",
            "for example: agentv eval evals/; see 'agentv eval --help'",
        ),
        (
            ["validate", "x", "--format", "jsn"],
            "invalid value for '--format': 'jsn' is not one of 'text', 'json'",
            "did you mean 'json'?",
        ),
        (
            ["compare", "a"],
            "expected two results files: the baseline, then the run to compare with it",
            "for example: agentv compare before.jsonl after.jsonl; see 'agentv compare --help'",
        ),
        (
            ["cache", "clear", "all"],
            "got unexpected extra argument (all)",
            "for example: agentv cache clear; see 'agentv cache clear --help'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_usage_errors_have_a_hint(args: list[str], error: str, hint: str, write: Write) -> None:
    ran = agentv(*args)
    usage, *said = ran.stderr.splitlines()
    assert (ran.returncode, ran.stdout) == (2, "")
    assert usage.startswith("Usage: agentv")
    assert said == [f"error: {error}", f"hint: {hint}"]


def test_a_missing_function_suggests_a_similar_one(write: Write) -> None:
    write("agent.py", "def answer(question): return question\n")
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:anwser'}]")
    write("a.yaml", "evalcases: [{id: a, expected_outcome: b, input: c, evaluators: [{type: contains, value: x}]}]")
    ran = agentv("eval", "a.yaml")
    assert ran.returncode == 2
    assert ran.stderr.endswith("agent.py has no function 'anwser'\nhint: did you mean 'answer'?\n")


def test_a_missing_project_suggests_init(write: Write) -> None:
    nothing = agentv("eval", "evals/")
    assert nothing.returncode == 2
    assert (
        "no file matches 'evals/'\nhint: check the path and the current folder, or run 'agentv init' to create a project"
        in nothing.stderr
    )
    write("evals/a.yaml", "evalcases: [{id: a, expected_outcome: b, input: c}]")
    stderr = agentv("eval", "evals/").stderr
    assert "hint: run 'agentv init' to create one, or write .agentv/targets.yaml, for example:\n" in stderr
