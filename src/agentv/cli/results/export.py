"""`agentv export`."""

import os
from pathlib import Path
from typing import get_args

import click

from agentv.cli.help import Command
from agentv.cli.messages import print_blocks, print_warnings
from agentv.cli.params import OneOf
from agentv.errors import OutputError
from agentv.report.export import Form, export_blocks


@click.command(
    cls=Command,
    examples=(
        "agentv export results.jsonl --to csv --out results.csv",
        "agentv export results.jsonl --to markdown",
    ),
)
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--to", "form", type=OneOf(get_args(Form)), required=True, help="What the table is written as.")
@click.option("--out", type=click.Path(path_type=Path), help="Write there and not to stdout.")
@click.option("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(results: Path, form: Form, out: Path | None, verbose: bool) -> None:
    """Write results as a flat table: one row a result, one column an evaluator.

    Costs are in US dollars, durations in milliseconds. In CSV, a text that a spreadsheet
    would take for a formula has an apostrophe in front. Exit code 0; 2 for a file that
    cannot be read or has no results.
    """
    print_warnings(verbose)
    target = None if out is None or str(out) == "-" else out
    if target is not None and os.path.realpath(target) == os.path.realpath(results):
        raise OutputError("--out is the results file", file=target, hint="name another file")
    print_blocks(export_blocks(results, form), target)
