"""`agentv export`."""

import os
from pathlib import Path
from typing import get_args

import click

from agentv.cli.help import Command
from agentv.cli.messages import print_blocks, print_warnings
from agentv.cli.params import PATH, OneOf, verbose_option
from agentv.errors import OutputError
from agentv.report.export import Form, export_blocks


@click.command(
    cls=Command,
    examples=(
        "agentv export results.jsonl --to csv --out results.csv",
        "agentv export results.jsonl --to markdown",
    ),
)
@click.argument("results", type=PATH)
@click.option(
    "--to",
    "form",
    type=OneOf(get_args(Form)),
    required=True,
    help="What the table is written as.",
)
@click.option("--out", type=PATH, help="Write there and not to stdout.")
@verbose_option
def command(results: Path, form: Form, out: Path | None, verbose: bool) -> None:
    """Write results as a flat table: one row a result, one column an evaluator.

    Costs are in US dollars, durations in milliseconds. In CSV, a text that a spreadsheet
    would take for a formula has an apostrophe in front. Exit code 0; 2 for a file that
    cannot be read or has no results.
    """
    print_warnings(verbose)
    if out == Path("-"):
        out = None  # stdout
    if out is not None and os.path.realpath(out) == os.path.realpath(results):
        raise OutputError("--out is the results file", file=out, hint="name another file")
    print_blocks(export_blocks(results, form), out)
