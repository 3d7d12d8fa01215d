"""`agentv view`."""

import getpass
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import CommandWithGroups, options
from agentv.cli.messages import configure_logging, print_lines, print_message, print_problems
from agentv.cli.params import PATH, VERBOSE
from agentv.files.printable import printable
from agentv.processes.interrupts import end_on_ctrl_c
from agentv.records import Problem
from agentv.results.runs import LABELS
from agentv.trust.review import MAX_NAME, ReviewDefaults, Selection
from agentv.view.review import ReviewStore
from agentv.view.serve import end_with_stdin, opened_browser, serving


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFlags:
    """The arguments and options of the command."""

    named: tuple[Path, ...]
    port: int
    no_browser: bool
    beside: bool
    verbose: bool
    review: bool
    labels: Path
    reviewer: str | None
    share: float | None
    failed: bool

    @property
    def review_defaults(self) -> ReviewDefaults:
        """The initial settings of the labelling page."""
        reviewer = self.reviewer
        if reviewer is None:
            reviewer = _user_name()
        only: Selection = "all"
        if self.failed:
            only = "failed"
        return ReviewDefaults(
            labels=self.labels,
            reviewer=reviewer[:MAX_NAME],
            only=only,
            share=self.share,
        )


the_labels = options("Labels")
the_server = options("The server")


@click.command(
    cls=CommandWithGroups,
    examples=(
        "agentv view",
        "agentv view results.jsonl",
        "agentv view --review results.jsonl --reviewer ann",
    ),
)
@click.argument("named", nargs=-1, type=PATH, metavar="[RESULTS_OR_FOLDER]...")
@the_labels(
    "--review",
    is_flag=True,
    help="Open the labelling page: answers in random order, without scores.",
)
@the_labels(
    "--labels",
    type=PATH,
    default=LABELS,
    metavar="FILE",
    help=f"Append labels to this file. [default: {LABELS}]",
)
@the_labels(
    "--reviewer",
    metavar="NAME",
    help="Name of the reviewer. [default: your user name]",
)
@the_labels(
    "--share",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="First show this share of the answers that others have labelled.",
)
@the_labels(
    "--failed",
    is_flag=True,
    help="Label only answers that did not pass (a chosen sample, not a random one).",
)
@the_server(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port to listen on. [default: any free port]",
)
@the_server("--no-browser", is_flag=True, help="Print the URL without opening a browser.")
@the_server("--beside", is_flag=True, hidden=True)
@the_server("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Browse, compare and label runs in a local web viewer.

    Without arguments, the viewer shows the runs in .agentv/results or, with --review, the answers of the
    newest run. It listens on 127.0.0.1 and requires the token in the URL. Press Ctrl-C to stop it.

    Exit code 0, or 2 if there are no results or no answers to label, a file is invalid or cannot be written,
    or the port is in use.
    """
    options = ViewFlags(**values)
    configure_logging(options.verbose)
    problems: list[Problem] = []

    def on_problems(found: Sequence[Problem]) -> None:
        problems.extend(found)
        print_problems(found)

    site = serving(
        options.named,
        options.port,
        ReviewStore(options.review_defaults),
        opens_review=options.review,
        on_problems=on_problems,
    )
    with end_on_ctrl_c() as ending, site as address:
        print_lines([f"Viewer: {address}"])
        if options.review:
            print_lines([printable(f"Labels: {options.labels}")])
        if options.beside:
            end_with_stdin(ending.end)
        else:
            print_message("press Ctrl-C to stop")
        if options.no_browser:
            ending.wait()
        else:
            with opened_browser(address) as is_open:
                if not is_open:
                    print_message("no browser found: open the URL yourself")
                ending.wait()
    if problems:
        sys.exit(2)


def _user_name() -> str:
    """Return the name of the user, or an empty string if the system does not know it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
