"""Kinds of values that options take."""

import math
from pathlib import Path
from typing import Any

import click

from agentv.errors import closest


class Amount(click.FloatRange):
    """A number that is one: `nan` and `inf` are not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


class OneOf(click.Choice):  # type: ignore[type-arg]  # it is generic only in newer versions of click
    """One of a few words; a slip is told the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if close := closest(str(value), map(str, self.choices), cutoff=0.5):
                error.add_note(f"did you mean {close!r}?")
            raise


def target_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The names of the targets that `--target` may be given, for a shell to complete."""
    from agentv.errors import AgentvError
    from agentv.targets.read import find_targets, read_targets

    paths = ctx.params.get("paths") or ctx.args  # which are not told apart yet, as the option lacks its value
    first = Path(paths[0] if paths else ".")
    folder = first if first.is_dir() else first.parent
    try:
        names = read_targets(find_targets(folder, ctx.params.get("targets"))).names
    except AgentvError:
        return []  # whoever runs the command will be told
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]
