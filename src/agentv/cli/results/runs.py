"""`agentv runs`."""

from collections.abc import Sequence

import click
import msgspec

from agentv.cli.help import Command
from agentv.cli.messages import print_json, print_lines, print_warnings
from agentv.cli.params import format_option, verbose_option
from agentv.formats.printable import printable
from agentv.results.runs import Commit, RunRecord, read_runs

HEADINGS = (
    "run",
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


@click.command(cls=Command, examples=("agentv runs", "agentv runs --limit 5 --format json"))
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="Show the newest N runs (20).",
)
@format_option
@verbose_option
def command(limit: int, form: str, verbose: bool) -> None:
    """List the runs that were started in this folder, newest first.

    Their records are in .agentv/runs. Exit code 0; 2 for bad usage.
    """
    print_warnings(verbose)
    runs = []
    for run in read_runs()[:limit]:
        runs.append(msgspec.structs.replace(run, status=run.current_status))
    if form == "json":
        print_json(runs)
    elif runs:
        table = _table([HEADINGS, *map(_row, runs)])
        print_lines(map(printable, table))
    else:
        print_lines(["no runs yet: 'agentv eval' records each run in .agentv/runs"])


def _row(run: RunRecord) -> tuple[str, ...]:
    """Return the cells of a run, one per heading."""
    summary = run.summary
    pass_rate = ""
    if "pass_rate" in summary:
        pass_rate = f"{summary['pass_rate']:.0%}"
    cost = ""
    if "cost_usd" in summary:
        cost = f"${summary['cost_usd']:.4g}"
    targets = [str(target.get("name", "")) for target in run.targets]
    cases = [int(file.get("cases", 0)) for file in run.eval_files]
    return (
        run.run_id,
        run.started[:19].replace("T", " "),
        _commit_text(run.git),
        ", ".join(dict.fromkeys(targets)),
        run.shard or "",
        str(sum(cases)),
        _mean_text(summary),
        pass_rate,
        cost,
        run.status,
    )


def _commit_text(git: Commit | None) -> str:
    """Return the short hash of a commit, with a plus sign if there were uncommitted changes."""
    if not git:
        return ""
    text = git.commit[:9]
    if git.dirty:
        text += "+"
    return text


def _mean_text(summary: dict[str, float]) -> str:
    """Return the mean with its confidence interval, as far as they are known."""
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
