"""Print the output of commands: data to stdout, everything else to stderr. Secrets are masked in both."""

import contextlib
import errno
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from agentv.errors import AgentvError, InternalError, SeveralProblems, placed
from agentv.files.atomic_files import write_atomically
from agentv.files.printable import printable
from agentv.log import LOGGER, problem_text
from agentv.records import Problem
from agentv.redact import clean
from agentv.report.layout import terminal_width, wrap
from agentv.text import short_path

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a file on a disk that is full."""


class _StderrHandler(logging.Handler):
    """Print log records to stderr. In a terminal, lines are broken between words."""

    def emit(self, record: logging.LogRecord) -> None:
        message = f"note: {record.getMessage()}"
        problem = getattr(record, "problem", None)
        if isinstance(problem, Problem):
            message = f"warning: {problem_text(_with_short_path(problem))}"
        elif hasattr(record, "is_plain"):
            message = record.getMessage()
        message = printable(clean(message))
        width = terminal_width(sys.stderr)
        if width is None:
            print_message(message)
            return
        for line in message.splitlines():
            print_message("\n".join(wrap(line, width)))


def _with_short_path(problem: Problem) -> Problem:
    """Return a problem with its file relative to the current folder."""
    if problem.file is None:
        return problem
    return msgspec.structs.replace(problem, file=Path(short_path(problem.file)))


def configure_logging(verbose: bool) -> None:
    """Print the warnings of this command to stderr. With `verbose`, print notes as well."""
    # asyncio logs what targets leave behind, such as exceptions that were never retrieved.
    for logger in (LOGGER, logging.getLogger("asyncio")):
        if not any(isinstance(handler, _StderrHandler) for handler in logger.handlers):
            logger.addHandler(_StderrHandler())
    level = logging.WARNING
    if verbose:
        level = logging.INFO
    LOGGER.setLevel(level)
    LOGGER.propagate = False


def print_message(text: str) -> None:
    """Print a message to stderr."""
    if sys.stderr is None:  # a process may be started without stderr
        return
    with contextlib.suppress(OSError, ValueError):
        # A live view replaces `sys.stderr` to make room for lines, so it must be looked up here.
        print(clean(text), file=sys.stderr, flush=True)


def print_error(error: AgentvError) -> None:
    """Print an error and its hint to stderr, and for users who asked for verbose output the traceback of a bug."""
    if isinstance(error, InternalError) and "--verbose" in sys.argv:
        print_message("".join(traceback.format_exception(error.__cause__)))
    print_message(printable(clean(f"error: {_text_of(error)}")))
    if error.hint:
        print_message(f"hint: {error.hint}")


def _text_of(error: AgentvError) -> str:
    """Return the text of an error, with its file relative to the current folder."""
    if error.file is None or isinstance(error, SeveralProblems):
        return str(error)
    return placed(error.message, Path(short_path(error.file)), error.line, error.column)


def print_problems(problems: Iterable[Problem]) -> None:
    """Print all problems to stderr."""
    for problem in problems:
        print_error(AgentvError.of(problem))


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines to stdout, or to stderr with `err`. A closed pipe, as in `| head -1`, is not an error."""
    for line in lines:
        try:
            click.echo(clean(line), err=err)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in FULL and not err:
                print_message(f"warning: the output is incomplete: {error.strerror}")
            with contextlib.suppress(OSError, ValueError, AttributeError):
                _discard_stdout()


def print_json(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> None:
    """Print a value to stdout as indented JSON."""
    encoded = msgspec.json.encode(value, enc_hook=enc_hook)
    indented = msgspec.json.format(encoded, indent=2)
    print_lines([indented.decode()])


def print_blocks(blocks: Iterable[bytes], out: Path | None) -> None:
    """Write bytes to a file, or to stdout without one. A closed pipe is not an error."""
    if out is not None:
        write_atomically(out, blocks)
        return
    if sys.stdout is None:  # a process may be started without stdout
        return
    try:
        sys.stdout.buffer.writelines(blocks)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Redirect stdout to the null device, so that later writes and the flush at exit do not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
