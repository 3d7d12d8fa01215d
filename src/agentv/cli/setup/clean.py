"""`agentv clean`."""

import click

from agentv.cli.help import CommandWithGroups
from agentv.cli.messages import configure_logging, print_lines
from agentv.cli.params import Amount, verbose_option
from agentv.files.printable import printable
from agentv.project.clean import clean_state
from agentv.text import plural


@click.command(
    cls=CommandWithGroups,
    examples=("agentv clean --keep-days 30 --dry-run", "agentv clean --keep-runs 20"),
)
@click.option(
    "--keep-days",
    type=Amount(min=0),
    metavar="N",
    help="Keep runs that started in the last N days.",
)
@click.option(
    "--keep-runs",
    type=click.IntRange(min=0),
    metavar="N",
    help="Keep the newest N runs.",
)
@click.option("--dry-run", is_flag=True, help="List the files without removing them.")
@verbose_option
def command(keep_days: float | None, keep_runs: int | None, dry_run: bool, verbose: bool) -> None:
    """Remove old results, backups, records, dumps, logs and cached responses in .agentv.

    Pass --keep-days, --keep-runs or both; a run is kept if either option keeps it. Labels, active runs and
    uncollected batches are never removed.

    Exit code 0, or 2 for invalid usage or if a file cannot be removed.
    """
    configure_logging(verbose)
    if keep_days is None and keep_runs is None:
        raise click.UsageError("pass --keep-days, --keep-runs or both")
    removal = clean_state(keep_days, keep_runs, is_dry_run=dry_run)
    if dry_run:
        print_lines(printable(str(path)) for path in removal.paths)
    verb = "removed"
    if dry_run:
        verb = "would remove"
    runs = plural(removal.runs, "run")
    kept = plural(removal.kept_runs, "run")
    print_lines([f"{verb} {runs} ({removal.size / 1e6:.1f} MB), kept {kept}"])
