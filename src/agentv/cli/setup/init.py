"""`agentv init`."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from agentv.cli.help import Command
from agentv.cli.messages import print_lines
from agentv.cli.params import PATH, OneOf
from agentv.formats.printable import printable
from agentv.project.scaffold import DEFAULT, TEMPLATES, ScaffoldResult, missing_lines, scaffold

IGNORE = ".gitignore"


@click.command(
    cls=Command,
    examples=(
        "agentv init",
        "agentv init my-evals",
        "agentv init my-evals --template cli",
    ),
)
@click.argument("folder", metavar="[DIR]", default=".", type=PATH)
@click.option(
    "--template",
    type=OneOf(TEMPLATES),
    default=DEFAULT,
    help="What is evaluated: a Python function (the default), a command, a model, or a command for all cases.",
)
def command(folder: Path, template: str) -> None:
    """Make a project in DIR (or here) that runs at once and offline, to be changed into your own.

    In a folder that has files already, what is missing is added, and nothing is overwritten.
    """
    result = scaffold(folder, template)
    print_lines(map(printable, _lines(folder, result)))


def _lines(folder: Path, result: ScaffoldResult) -> Iterator[str]:
    """Yield the files that were written and kept, and the next steps."""
    for path in result.written:
        yield f"written  {path}"
    for path in result.kept:
        yield f"kept     {path}"
    yield ""
    ignore_file = folder / IGNORE
    if ignore_file in result.kept:
        missing = missing_lines(ignore_file)
        if missing:
            yield f"Your {IGNORE} lacks: {' '.join(missing)}"
    if folder.resolve() != Path.cwd():
        yield f"Go there:  cd {shlex.quote(str(folder))}"
    yield from result.next_steps.splitlines()
