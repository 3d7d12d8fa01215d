"""`agentv report`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import options
from agentv.cli.messages import configure_logging, print_lines
from agentv.cli.params import PATH, VERBOSE
from agentv.cli.results.run_files import VersusCommand
from agentv.files.printable import printable
from agentv.report.page.write import PageOptions, default_path, write_report
from agentv.results.locate import results_file
from agentv.results.run_files import RunFiles, are_shards, check_one_run, files_of
from agentv.text import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFlags:
    """The arguments and options of the command."""

    results: tuple[Path, ...]
    vs: tuple[tuple[Path, ...], ...]
    out: Path | None
    failed_only: bool
    no_traces: bool
    verbose: bool

    @property
    def runs(self) -> Sequence[RunFiles]:
        """The files of each run. Two files without --vs are two runs, unless they are shards of one run."""
        if self.vs:
            return [self.results, *self.vs]
        if len(self.results) == 2 and not are_shards(self.results):
            return self.results
        return [self.results]


what_is_shown = options("What is shown")
the_output = options("The output")


@click.command(
    cls=VersusCommand,
    examples=(
        "agentv report results.jsonl",
        "agentv report old.jsonl new.jsonl --out page.html",
        "agentv report results.jsonl --failed-only",
        "agentv report old-*.jsonl --vs new-*.jsonl",
    ),
)
@click.argument("results", nargs=-1, required=True, type=PATH)
@what_is_shown(
    "--vs",
    multiple=True,
    metavar="FILE...",
    help="Separate two runs that consist of several shard files: A1 A2 --vs B1 B2.",
)
@the_output("--out", type=PATH, help="Write the report to this file. [default: the name of the results with .html]")
@the_output("--failed-only", is_flag=True, help="Omit cases that passed.")
@the_output("--no-traces", is_flag=True, help="Omit traces.")
@the_output("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Write a self-contained HTML report of one run or two compared runs.

    RESULTS are results files, or names or ids of runs.
    With two files, the report compares the second run with the first. Shards of one run are combined.

    \b
    Exit codes:
      0  the report was written
      2  a file is unreadable or empty, the runs have no
         case in common, or the report exceeds 400 MB
    """
    options = ReportFlags(**values)
    configure_logging(options.verbose)
    options = replace(
        options,
        results=tuple(map(results_file, options.results)),
        vs=tuple(tuple(map(results_file, run)) for run in options.vs),
    )
    runs = options.runs
    if len(runs) > 2:
        raise click.UsageError("a report compares two runs: use --vs only once")
    for run in runs:
        check_one_run(files_of(run))
    out = options.out or default_path(runs)
    page = PageOptions(
        failed_only=options.failed_only,
        traces=not options.no_traces,
    )
    written = write_report(runs, out, page)
    cases = plural(written.cases, "case", separator=",")
    print_lines([printable(f"Report: {written.path} ({cases}, {_size_text(written.size)})")])


def _size_text(size: int) -> str:
    if size >= 1e6:
        return f"{size / 1e6:,.1f} MB"
    return f"{size / 1e3:,.0f} kB"
