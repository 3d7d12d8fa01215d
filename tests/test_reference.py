"""The reference pages agree with the code."""

import importlib.util
import re

import click

from agentv import cli
from tests.kits.docs import ROOT

_spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
assert _spec is not None and _spec.loader is not None
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)
PAGES: dict[str, str] = reference.pages()


def test_the_pages_are_up_to_date() -> None:
    for name, text in PAGES.items():
        assert (reference.FOLDER / name).read_text("utf-8") == text, f"{name} is out of date: run 'make reference'"
    assert {path.name for path in reference.FOLDER.iterdir()} == set(PAGES)


def test_every_option_of_every_command_is_listed() -> None:
    sections = re.split(r"^## `(.*)`$", PAGES["commands.md"], flags=re.MULTILINE)
    by_command = dict(zip(sections[1::2], sections[2::2], strict=True))
    for name, command in reference.all_commands():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert f"`{', '.join(option.opts)}" in by_command[name], (name, option.opts)
    assert {name.split()[1] for name in by_command} == set(cli.PATHS) - set(cli.ALIASES)


def test_every_field_has_a_description() -> None:
    for name, text in PAGES.items():
        assert re.findall(r"^\| `[^`]+` \|.*\|  \|$", text, re.MULTILINE) == [], name
