"""Options that are repeated, or that need another option."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from agentv.cli import PATHS
from agentv.cli import agentv as group
from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import ANY, evaluate


@pytest.fixture
def paid(write: Write) -> Write:
    """A project whose target leaves a file behind when it is called."""
    write("targets.yaml", "targets: [{name: default, provider: cli, command_template: 'touch paid; echo hello'}]")
    write("a.jsonl", [a_case(evaluators=[ANY])])
    return write


def commands(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, with the words that call it."""
    if not isinstance(command, click.Group):
        yield names, command
        return
    ctx = click.Context(command)
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None
        yield from commands(found, *names, name)


def single_values() -> Iterator[tuple[str, ...]]:
    for names, command in commands(group):
        for param in command.params:
            if not isinstance(param, click.Option) or param.is_flag or param.multiple:
                continue
            if param.opts != ["--vs"]:  # it separates the files of runs
                yield (*names, param.opts[0])


SINGLE = list(single_values())


def test_every_command_is_covered() -> None:
    assert ("eval", "--target") in SINGLE
    assert {names[0] for names in SINGLE} <= set(PATHS)
    assert len(SINGLE) > 80


@pytest.mark.parametrize("words", SINGLE, ids=" ".join)
def test_an_option_with_a_single_value_is_given_once(write: Write, words: tuple[str, ...]) -> None:
    *names, option = words
    ran = agentv(*names, option, "1", f"{option}=2")
    assert ran.returncode == 2
    assert f"error: {option} is given more than once\n" in ran.stderr
    assert "hint: it takes a single value: remove all but one" in ran.stderr


def test_flags_and_options_that_take_several_values_may_be_repeated(paid: Write) -> None:
    ran = evaluate("a.jsonl", "--quiet", "--quiet", "--eval-id", "test-1", "--eval-id", "test*")
    assert "1 planned = 1 scored" in ran.stdout


@pytest.mark.parametrize("option", ["--dry-run-delay", "--dry-run-delay-min", "--dry-run-delay-max"])
def test_a_delay_without_a_dry_run_calls_no_target(paid: Write, option: str) -> None:
    ran = evaluate("a.jsonl", option, "2000", expect=2)
    assert f"error: {option} needs --dry-run\n" in ran.stderr
    assert not Path("paid").exists()


@pytest.mark.parametrize("option", [["--no-batch-fallback"], ["--batch-deadline", "86400"]])
def test_options_of_batch_apis_need_a_target_that_uses_one(paid: Write, option: list[str]) -> None:
    ran = evaluate("a.jsonl", *option, expect=2)
    message = f"error: {option[0]}: no target or judge of this run uses a batch API"
    assert message in flat(ran.stderr)
    assert "set 'batch_api: true' on a target, or run without this option" in flat(ran.stderr)
    assert not Path("paid").exists()
    evaluate("a.jsonl", *option, "--dry-run")
