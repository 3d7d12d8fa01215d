"""`agentv report`."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import options
from agentv.cli.messages import print_lines, print_warnings
from agentv.cli.params import PATH, VERBOSE
from agentv.cli.results.run_files import VersusCommand
from agentv.formats.printable import printable
from agentv.report.page.write import PageOptions, default_path, write_report
from agentv.report.quantities import counted
from agentv.results.merging.merge import are_shards
from agentv.results.run_files import RunFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
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
    help="The files of a second run; those before are the shards of one, too.",
)
@the_output("--out", type=PATH, help="Write there; default: the results' name with .html.")
@the_output("--failed-only", is_flag=True, help="Leave out the cases that passed.")
@the_output("--no-traces", is_flag=True, help="Leave out the traces.")
@the_output("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Write results as one HTML file that opens in any browser and needs nothing else.

    With two files, the second is compared with the first; shards of one run, and three files
    or more, are shown as one. Exit code 0: the report is written; 2: a file that cannot be
    read, no results, shards that do not fit together, two runs that have no case in common,
    or a report of more than 400 MB.
    """
    options = Options(**values)
    print_warnings(options.verbose)
    gc.disable()  # a million results contain no cycles, and searching them for some is slow
    runs = options.runs
    if len(runs) > 2:
        raise click.UsageError("a report compares two runs: --vs can be given once")
    out = options.out or default_path(runs)
    page = PageOptions(
        failed_only=options.failed_only,
        traces=not options.no_traces,
    )
    written = write_report(runs, out, page)
    cases = counted(written.cases, "case", ",")
    print_lines([printable(f"Report: {written.path} ({cases}, {_size_text(written.size)})")])


def _size_text(size: int) -> str:
    if size >= 1e6:
        return f"{size / 1e6:,.1f} MB"
    return f"{size / 1e3:,.0f} kB"
