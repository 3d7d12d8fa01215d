"""Parse arguments that name the files of several runs: `A1 A2 --vs B1 B2`."""

from collections.abc import Sequence
from pathlib import Path

import click

from agentv.cli.help import CommandWithGroups

VS = "--vs"


class VersusCommand(CommandWithGroups):
    """A command with `--vs` as a separator between the files of different runs.

    All files before the first `--vs` are one run, and all files after each `--vs` are another. Click does not support
    options with a variable number of values, so the parameter `vs` is set here, with one tuple of paths per run.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest, runs = split_runs(args, self._options_with_value())
        if not all(runs):
            raise click.UsageError("--vs must be followed by a results file", ctx)
        left = super().parse_args(ctx, rest)
        ctx.params["vs"] = tuple(tuple(map(Path, run)) for run in runs)
        return left

    def _options_with_value(self) -> set[str]:
        """Return the names of the options that take a value, without `--vs`."""
        names: set[str] = set()
        for param in self.params:
            if isinstance(param, click.Option) and not param.is_flag:
                names.update(param.opts)
        return names - {VS}


def split_runs(args: Sequence[str], valued: set[str]) -> tuple[list[str], list[list[str]]]:
    """Split the arguments into those before any `--vs`, options included, and the files after each `--vs`.

    `valued` are the options that take a value. The argument after such an option is not a file.
    """
    rest: list[str] = []
    runs: list[list[str]] = []
    previous = ""
    for arg in args:
        is_file = previous not in valued and (arg == "-" or not arg.startswith("-"))
        if arg == VS:
            runs.append([])
        elif arg.startswith(f"{VS}="):
            runs.append([arg.removeprefix(f"{VS}=")])
        elif runs and is_file:
            runs[-1].append(arg)
        else:
            rest.append(arg)
        previous = arg
    return rest, runs
