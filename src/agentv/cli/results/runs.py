"""`agentv runs`."""

from collections.abc import Sequence

import click
import msgspec

from agentv.cli.help import Command
from agentv.cli.messages import print_lines, print_warnings
from agentv.cli.params import OneOf
from agentv.formats.printable import printable
from agentv.results.runs import RunRecord, read_runs

HEADINGS = ("run", "started", "commit", "targets", "shard", "cases", "mean", "pass rate", "cost", "status")


@click.command(cls=Command, examples=("agentv runs", "agentv runs --limit 5 --format json"))
@click.option("--limit", type=click.IntRange(min=1), default=20, metavar="N", help="Show the newest N runs (20).")
@click.option("--format", "form", type=OneOf(["text", "json"]), default="text", help="json is for tools.")
@click.option("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(limit: int, form: str, verbose: bool) -> None:
    """List the runs that were started in this folder, newest first.

    Their records are in .agentv/runs. Exit code 0; 2 for bad usage.
    """
    print_warnings(verbose)
    runs = [msgspec.structs.replace(run, status=run.current_status) for run in read_runs()[:limit]]
    if form == "json":
        print_lines([msgspec.json.format(msgspec.json.encode(runs), indent=2).decode()])
    elif runs:
        print_lines(map(printable, _table([HEADINGS, *map(_row, runs)])))
    else:
        print_lines(["no runs yet: 'agentv eval' records each run in .agentv/runs"])


def _row(run: RunRecord) -> tuple[str, ...]:
    summary = run.summary
    mean = _interval(summary)
    rate = f"{summary['pass_rate']:.0%}" if "pass_rate" in summary else ""
    cost = f"${summary['cost_usd']:.4g}" if "cost_usd" in summary else ""
    commit = f"{run.git.commit[:9]}{'+' if run.git.dirty else ''}" if run.git else ""
    targets = ", ".join(dict.fromkeys(str(target.get("name", "")) for target in run.targets))
    cases = str(sum(int(file.get("cases", 0)) for file in run.eval_files))
    started = run.started[:19].replace("T", " ")
    return run.run_id, started, commit, targets, run.shard or "", cases, mean, rate, cost, run.status


def _interval(summary: dict[str, float]) -> str:
    if "mean" not in summary:
        return ""
    if "ci_lower" not in summary:
        return f"{summary['mean']:.3f}"
    return f"{summary['mean']:.3f} ({summary['ci_lower']:.3f} to {summary['ci_upper']:.3f})"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows with their columns aligned; a column that is empty in all of them is left out."""
    used = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in used]
    return [
        "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*used, strict=True)
    ]
