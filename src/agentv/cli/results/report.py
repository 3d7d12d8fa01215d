"""`agentv report`."""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import Command, options
from agentv.cli.messages import print_lines, print_warnings
from agentv.formats.printable import printable
from agentv.report.page.write import PageOptions, default_path, write_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments and options of the command."""

    results: Path
    results_b: Path | None
    out: Path | None
    failed_only: bool
    no_traces: bool
    verbose: bool


the_output = options("The output")


@click.command(
    cls=Command,
    examples=(
        "agentv report results.jsonl",
        "agentv report old.jsonl new.jsonl --out page.html",
        "agentv report results.jsonl --failed-only",
    ),
)
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("results_b", required=False, type=click.Path(path_type=Path))
@the_output("--out", type=click.Path(path_type=Path), help="Write there; default: the results' name with .html.")
@the_output("--failed-only", is_flag=True, help="Leave out the cases that passed.")
@the_output("--no-traces", is_flag=True, help="Leave out the traces.")
@the_output("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(**values: Any) -> None:
    """Write results as one HTML file that opens in any browser and needs nothing else.

    With two files, the second is compared with the first. Exit code 0: the report is
    written; 2: a file that cannot be read, no results, two files that have no case in
    common, or a report of more than 400 MB.
    """
    options = Options(**values)
    print_warnings(options.verbose)
    gc.disable()  # there is nothing to find, in a million results
    files = [options.results, *([options.results_b] if options.results_b else [])]
    page = PageOptions(failed_only=options.failed_only, traces=not options.no_traces)
    written = write_report(files, options.out or default_path(files), page)
    cases = "1 case" if written.cases == 1 else f"{written.cases:,} cases"
    print_lines([printable(f"Report: {written.path} ({cases}, {_size(written.size)})")])


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"
