"""Arguments that name the files of several runs: `A1 A2 --vs B1 B2`."""

from collections.abc import Sequence
from pathlib import Path

import click

from agentv.cli.help import Command

VS = "--vs"


class VersusCommand(Command):
    """A command in which `--vs` stands between the files of one run and those of the next.

    All files before the first `--vs` are one run; so are all that follow each `--vs`. Click knows no option with any
    number of values, so the parameter `vs` is set here: to a tuple of paths for each run.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        valued = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag
            for name in param.opts
        }
        rest, runs = split_runs(args, valued - {VS})
        if any(not run for run in runs):
            raise click.UsageError("--vs needs a results file behind it", ctx)
        left = super().parse_args(ctx, rest)
        ctx.params["vs"] = tuple(tuple(map(Path, run)) for run in runs)
        return left


def split_runs(args: Sequence[str], valued: set[str]) -> tuple[list[str], list[list[str]]]:
    """Return the arguments without those that belong to a `--vs`, and for each `--vs` those that do.

    `valued` are the options that are followed by a value, which is no file.
    """
    rest: list[str] = []
    runs: list[list[str]] = []
    before = ""
    for arg in args:
        if arg == VS:
            runs.append([])
        elif arg.startswith(f"{VS}="):
            runs.append([arg.removeprefix(f"{VS}=")])
        elif runs and before not in valued and (not arg.startswith("-") or arg == "-"):
            runs[-1].append(arg)
        else:
            rest.append(arg)
        before = arg
    return rest, runs
