"""`agentv export`."""

import os
from pathlib import Path
from typing import get_args

import click

from agentv.cli.help import CommandWithGroups
from agentv.cli.messages import configure_logging, print_blocks
from agentv.cli.params import PATH, OneOf, verbose_option
from agentv.errors import OutputError
from agentv.filters.match import Filter
from agentv.report.export import Form, export_blocks


@click.command(
    cls=CommandWithGroups,
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
    help="Output format.",
)
@click.option(
    "--filter",
    "filters",
    metavar="EXPR",
    multiple=True,
    help="Export only the results that match, such as 'tag:smoke verdict:fail'. Repeatable; all must match.",
)
@click.option("--out", type=PATH, help="Write the table to this file. [default: stdout]")
@verbose_option
def command(results: Path, form: Form, filters: tuple[str, ...], out: Path | None, verbose: bool) -> None:
    """Export results as a table with one row per result.

    Each evaluator, metadata key and variable has a column. Costs are in US dollars, durations
    in milliseconds. In CSV, cells that a spreadsheet would interpret as a formula are prefixed
    with an apostrophe.

    Exit code 0, or 2 if the file cannot be read, has no results or none matches.
    """
    configure_logging(verbose)
    if out == Path("-"):
        out = None  # stdout
    if out is not None and os.path.realpath(out) == os.path.realpath(results):
        raise OutputError("--out is the results file", file=out, hint="choose another file")
    condition = Filter.parse(filters, "results")
    print_blocks(export_blocks(results, form, condition), out)
