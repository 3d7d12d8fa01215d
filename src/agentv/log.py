"""Warnings and notes for the user: warn, info and debug.

They go through the `agentv` logger: the command line prints its records, and users of the library see them on stderr
as with any logger, or collect them with `collect_warnings()`. Secrets are masked here, because handlers of others do
not mask them.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from agentv.errors import AgentvError, placed
from agentv.records import Problem
from agentv.redact import clean

LOGGER = logging.getLogger("agentv")
Wording = Callable[[str], str]
"""Rewrites a message for its readers."""
_wording: ContextVar[Wording] = ContextVar("_wording", default=str)


@contextmanager
def use_wording(wording: Wording) -> Iterator[None]:
    """Rewrite all messages of a block of code. They name options by their flags, which Python code does not have."""
    token = _wording.set(wording)
    try:
        yield
    finally:
        _wording.reset(token)


def reworded(text: str) -> str:
    """Return a message as `use_wording` rewrites it."""
    return _wording.get()(text)


def warn(problem: Problem) -> None:
    """Warn about a problem that did not stop the command."""
    _log(problem, logging.WARNING)


def warn_about(error: AgentvError) -> None:
    """Report an error as a warning: it does not stop the command."""
    problem = Problem.of(error)
    warn(msgspec.structs.replace(problem, severity="warning"))


def info(text: str, prefix: bool = True) -> None:
    """Show a note that is not a warning. The command line prints it after "note: ", or alone without `prefix`."""
    text = _loggable(reworded(text))
    if prefix:
        LOGGER.warning("%s", text)
    else:
        LOGGER.warning("%s", text, extra={"is_plain": True})


def debug(message: str | Problem) -> None:
    """Show a note or a problem to users who asked for verbose output."""
    if isinstance(message, Problem):
        _log(message, logging.INFO)
    elif LOGGER.isEnabledFor(logging.INFO):
        LOGGER.info("%s", _loggable(reworded(message)))


def debug_lines(title: str, text: str | None) -> None:
    """Show a title and a multi-line text to users who asked for verbose output. Do nothing if the text is empty."""
    if not text:
        return
    debug(title)
    # Secrets are masked before the text is split: one of several lines would not be recognised afterwards.
    for line in clean(text).splitlines():
        debug(line)


def ignore(problem: object) -> None:
    """Do nothing, as a callback for problems that are reported elsewhere."""


def problem_of(record: logging.LogRecord) -> Problem:
    """Return the problem attached to a log record, or a warning with the record's message."""
    problem = getattr(record, "problem", None)
    if isinstance(problem, Problem):
        return problem
    return Problem(message=record.getMessage(), severity="warning")


@contextmanager
def collect_warnings(level: int = logging.WARNING) -> Iterator[list[Problem]]:
    """Collect the warnings of a block of code instead of printing them.

    With `level=logging.INFO`, also collect messages that are shown only in verbose output.
    """
    found: list[Problem] = []
    handler = _Collector(found)
    level_before = LOGGER.level
    propagate_before = LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    LOGGER.propagate = False
    try:
        yield found
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level_before)
        LOGGER.propagate = propagate_before


class _Collector(logging.Handler):
    """Append the problem of each log record to a list."""

    def __init__(self, found: list[Problem]):
        super().__init__()
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(problem_of(record))


def _log(problem: Problem, level: int) -> None:
    if not LOGGER.isEnabledFor(level):
        return
    problem = msgspec.structs.replace(
        problem,
        message=clean(reworded(problem.message)),
        hint=clean(reworded(problem.hint)),
    )
    LOGGER.log(level, "%s", _loggable(problem_text(problem)), extra={"problem": problem})


def problem_text(problem: Problem) -> str:
    """Return a problem in one line: its place, its message and its hint."""
    text = placed(problem.message, problem.file, problem.line, problem.column)
    if problem.hint:
        text = f"{text} ({problem.hint})"
    return text


def _loggable(text: str) -> str:
    """Return the text without secrets, and with undecodable bytes of paths escaped: handlers may write UTF-8."""
    return clean(text).encode("utf-8", "backslashreplace").decode()
