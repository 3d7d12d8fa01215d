"""`agentv view`."""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agentv.cli.help import Command, options
from agentv.cli.messages import print_lines, print_warnings, tell
from agentv.processes.interrupts import end_on_ctrl_c
from agentv.view.serve import end_with_stdin, opened_browser, serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The arguments and options of the command."""

    named: tuple[Path, ...]
    port: int
    no_browser: bool
    beside: bool
    verbose: bool


the_server = options("The server")


@click.command(
    cls=Command,
    examples=("agentv view", "agentv view results.jsonl", "agentv view old.jsonl new.jsonl --port 8000 --no-browser"),
)
@click.argument("named", nargs=-1, type=click.Path(path_type=Path), metavar="[RESULTS_OR_FOLDER]...")
@the_server("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Listen there; else at a free port.")
@the_server("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@the_server("--beside", is_flag=True, hidden=True)
@the_server("--verbose", is_flag=True, help="Say more, and show the traceback of a bug.")
def command(**values: Any) -> None:
    """Show runs in a browser: all of them, one as it grows, any two compared.

    Without a name, the runs in .agentv/results. The viewer listens on 127.0.0.1 and needs the token
    that is in the address. Ctrl-C ends it. Exit code 0; 2: no results, or a port that is taken.
    """
    options = Options(**values)
    print_warnings(options.verbose)
    gc.freeze()
    with end_on_ctrl_c() as ending, serving(options.named, options.port) as address:
        print_lines([f"Viewer: {address}"])
        if options.beside:
            end_with_stdin(ending.end)
        else:
            tell("Ctrl-C ends it")
        if options.no_browser:
            ending.wait()
            return
        with opened_browser(address) as is_open:
            if not is_open:
                tell("no browser was found: open the address in one")
            ending.wait()
