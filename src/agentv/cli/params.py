"""Types and options that several commands share."""

import math
from pathlib import Path
from typing import Any

import click

from agentv.errors import closest

PATH = click.Path(path_type=Path)
VERBOSE = "Say more, and show the traceback of a bug."
"""The help text of `--verbose`."""


class Amount(click.FloatRange):
    """A finite number: `nan` and `inf` are rejected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


class OneOf(click.Choice):  # type: ignore[type-arg]  # it is generic only in newer versions of click
    """One of a few words. The error for any other word suggests the closest."""

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
    help="json is for tools.",
)


def target_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the completions of the value of `--target`. Without a valid targets file, there are none."""
    from agentv.errors import AgentvError
    from agentv.targets.read import find_targets, read_targets

    # While the option lacks its value, click has not assigned the arguments to parameters yet.
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
