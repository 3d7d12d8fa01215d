"""`agentv init`."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from agentv.cli.help import CommandWithGroups
from agentv.cli.messages import print_lines
from agentv.cli.params import PATH, OneOf
from agentv.files.printable import printable
from agentv.project.scaffold import DEFAULT, TEMPLATES, ScaffoldResult, missing_lines, scaffold

IGNORE = ".gitignore"


@click.command(
    cls=CommandWithGroups,
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
    help="What to evaluate: a Python function, a command, a model, or a command that answers all cases at once. "
    f"[default: {DEFAULT}]",
)
def command(folder: Path, template: str) -> None:
    """Create a sample project in DIR (default: the current folder) that runs offline.

    In an existing project, only missing files are added. Nothing is overwritten.
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
            yield f"Add to {IGNORE}: {' '.join(missing)}"
    if folder.resolve() != Path.cwd():
        yield f"Change to the folder:  cd {shlex.quote(str(folder))}"
    yield from result.next_steps.splitlines()
