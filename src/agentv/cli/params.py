"""Types and options that several commands share."""

import math
from pathlib import Path
from typing import Any

import click

from agentv.errors import closest

PATH = click.Path(path_type=Path)
VERBOSE = "Print debug output and full tracebacks."
"""The help text of `--verbose`."""


class Amount(click.FloatRange):
    """A finite number: `nan` and `inf` are rejected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class OneOf(click.Choice):  # type: ignore[type-arg]  # it is generic only in newer versions of click
    """A choice. The error for an invalid value suggests the closest one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            close = closest(str(value), map(str, self.choices), cutoff=0.5)
            if close:
                error.add_note(f"did you mean {close!r}?")
            raise


TEXT_OR_JSON = OneOf(["text", "json"])
verbose_option = click.option("--verbose", is_flag=True, help=VERBOSE)
format_option = click.option(
    "--format",
    "form",
    type=TEXT_OR_JSON,
    default="text",
    help="Output format. [default: text]",
)


def target_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the value of `--target`. Return nothing without a valid targets file."""
    from agentv.errors import AgentvError
    from agentv.targets.find import find_targets
    from agentv.targets.read import read_targets

    # Click has not assigned the arguments to parameters yet while the option has no value.
    paths = ctx.params.get("paths") or ctx.args or ["."]
    folder = Path(paths[0])
    if not folder.is_dir():
        folder = folder.parent
    try:
        file = find_targets(folder, ctx.params.get("targets"))
        names = read_targets(file).names
    except AgentvError:
        return []  # running the command reports the error
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]
