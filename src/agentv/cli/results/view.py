"""`agentv view`."""

import gc
import getpass
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import Command, options
from agentv.cli.messages import print_lines, print_warnings, tell, tell_problems
from agentv.cli.params import PATH, VERBOSE
from agentv.formats.printable import printable
from agentv.processes.interrupts import end_on_ctrl_c
from agentv.records import Problem
from agentv.results.labels.file import LABELS
from agentv.view.review import MAX_NAME, ReviewDefaults, ReviewDesk, Selection
from agentv.view.serve import end_with_stdin, opened_browser, serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
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
        """The initial settings of the page for labels."""
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
    cls=Command,
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
    help="Begin with the page for labels: answers, blind and in random order.",
)
@the_labels(
    "--labels",
    type=PATH,
    default=LABELS,
    metavar="FILE",
    help=f"Append labels to this file ({LABELS}).",
)
@the_labels(
    "--reviewer",
    metavar="NAME",
    help="Who labels; else your user name. The page can change it.",
)
@the_labels(
    "--share",
    type=click.FloatRange(0, 1),
    metavar="X",
    help="Begin with this part of what others labelled.",
)
@the_labels(
    "--failed",
    is_flag=True,
    help="Label only answers that did not pass: a chosen sample, not a random one.",
)
@the_server(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Listen there; else at a free port.",
)
@the_server("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@the_server("--beside", is_flag=True, hidden=True)
@the_server("--verbose", is_flag=True, help=VERBOSE)
def command(**values: Any) -> None:
    """Show runs in a browser: all of them, one as it grows, any two compared; label answers.

    Without a name, the runs in .agentv/results; with --review, the newest of them. The viewer listens on
    127.0.0.1 and needs the token that is in the address. Ctrl-C ends it. Exit code 0; 2: no results, a
    line of a named file that is no result, a port that is taken, no answers to label, or a file of
    labels that is none or cannot be written.
    """
    options = Options(**values)
    print_warnings(options.verbose)
    gc.freeze()  # the modules loaded so far stay for good: spare the collector from looking at them
    problems: list[Problem] = []

    def on_problems(found: Sequence[Problem]) -> None:
        problems.extend(found)
        tell_problems(found)

    site = serving(
        options.named,
        options.port,
        ReviewDesk(options.review_defaults),
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
            tell("Ctrl-C ends it")
        if options.no_browser:
            ending.wait()
        else:
            with opened_browser(address) as is_open:
                if not is_open:
                    tell("no browser was found: open the address in one")
                ending.wait()
    if problems:
        sys.exit(2)


def _user_name() -> str:
    """Return the name of the user, or an empty string if the system does not know it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
