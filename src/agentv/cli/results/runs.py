"""`agentv runs`."""

from collections.abc import Sequence

import click

from agentv.cli.help import CommandWithGroups
from agentv.cli.messages import configure_logging, print_json, print_lines
from agentv.cli.params import format_option, verbose_option
from agentv.errors import ConfigError, nearest
from agentv.files.printable import printable
from agentv.results.runs import RunRecord, read_runs

HEADINGS = (
    "run",
    "name",
    "started",
    "commit",
    "targets",
    "shard",
    "cases",
    "mean",
    "pass rate",
    "cost",
    "status",
)


@click.command(
    cls=CommandWithGroups,
    examples=("agentv runs", "agentv runs nightly", "agentv runs --limit 5 --format json"),
)
@click.argument("name", required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="Show the newest N runs. [default: 20]",
)
@format_option
@verbose_option
def command(name: str | None, limit: int, form: str, verbose: bool) -> None:
    """List the runs in this folder, or those called NAME, newest first.

    Run records are stored in .agentv/runs. Exit code 2 if no run has this NAME.
    """
    configure_logging(verbose)
    runs = read_runs()
    if name is not None:
        runs = _called(name, runs)
    runs = runs[:limit]
    if form == "json":
        print_json(runs)
    elif runs:
        table = _table([HEADINGS, *map(_row, runs)])
        print_lines(map(printable, table))
    else:
        print_lines(["no runs yet: 'agentv eval' records each run in .agentv/runs"])


def _called(name: str, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs with this name. Raise `ConfigError` if there are none."""
    found = [run for run in runs if run.name == name]
    if not found:
        names = {run.name for run in runs if run.name}
        hint = "'agentv eval --name' names a run"
        if names:
            hint = nearest(name, names, "names")
        raise ConfigError(f"no run is called {name!r}", hint=hint)
    return found


def _row(run: RunRecord) -> tuple[str, ...]:
    """Return the cells of a run, one per heading."""
    summary = run.summary
    pass_rate = ""
    if "pass_rate" in summary:
        pass_rate = f"{summary['pass_rate']:.0%}"
    cost = ""
    if "cost_usd" in summary:
        cost = f"${summary['cost_usd']:.4g}"
    commit = ""
    if run.git is not None:
        commit = run.git.label
    targets = [str(target.get("name", "")) for target in run.targets]
    cases = [int(file.get("cases", 0)) for file in run.eval_files]
    return (
        run.run_id,
        run.name or "",
        run.started[:19].replace("T", " "),
        commit,
        ", ".join(dict.fromkeys(targets)),
        run.shard or "",
        str(sum(cases)),
        _mean_text(summary),
        pass_rate,
        cost,
        _status_text(run),
    )


def _status_text(run: RunRecord) -> str:
    if run.has_only_errors:
        return f"{run.status}, only errors"
    return run.status


def _mean_text(summary: dict[str, float]) -> str:
    """Return the mean with its confidence interval, if they are known."""
    if "mean" not in summary:
        return ""
    mean = f"{summary['mean']:.3f}"
    if "ci_lower" not in summary:
        return mean
    return f"{mean} ({summary['ci_lower']:.3f} to {summary['ci_upper']:.3f})"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table. Columns that are empty in all rows but the heading are omitted."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    padded = []
    for column in columns:
        width = max(map(len, column))
        padded.append([cell.ljust(width) for cell in column])
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
