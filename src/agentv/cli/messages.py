"""What commands say: data on stdout, everything else on stderr, and no secret on either."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from agentv.errors import AgentvError
from agentv.formats.printable import printable
from agentv.notices import LOGGER
from agentv.records import Problem
from agentv.redact import clean
from agentv.system.atomic_files import write_atomically


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        kind = "warning: " if hasattr(record, "problem") else "" if hasattr(record, "is_plain") else "note: "
        tell(printable(clean(f"{kind}{record.getMessage()}")))


def print_warnings(verbose: bool) -> None:
    """Show the warnings of this run on stderr; with `verbose`, also those that only a verbose run gives."""
    for logger in (LOGGER, logging.getLogger("asyncio")):  # what targets leave undone must not go around the door
        if not any(isinstance(handler, _Echo) for handler in logger.handlers):
            logger.addHandler(_Echo())
    LOGGER.setLevel(logging.INFO if verbose else logging.WARNING)
    LOGGER.propagate = False


def tell(text: str) -> None:
    """Say something to the person at the terminal."""
    if sys.stderr is None:
        return  # nobody may be listening
    with contextlib.suppress(OSError, ValueError):
        print(clean(text), file=sys.stderr, flush=True)  # which is where a live view makes room for it


def tell_error(error: AgentvError) -> None:
    """Say what is wrong, and what to do."""
    tell(printable(clean(f"error: {error}")))
    if error.hint:
        tell(f"hint: {error.hint}")


def tell_problems(problems: Iterable[Problem]) -> None:
    """Say everything that is wrong."""
    for problem in problems:
        tell_error(AgentvError.of(problem))


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print to stdout, or to stderr. A reader who has seen enough, as in `| head -1`, or none at all, is no error."""
    for line in lines:
        try:
            click.echo(clean(line), err=err)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_blocks(blocks: Iterable[bytes], out: Path | None) -> None:
    """Write bytes to a file, or without one to stdout, where a reader may have seen enough, as with `print_lines`."""
    if out is not None:
        write_atomically(out, blocks)
    elif sys.stdout is not None:  # somebody may have closed it
        try:
            sys.stdout.buffer.writelines(blocks)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
