"""Warnings and notes for the user.

They go through the `agentv` logger: the command line prints its records, and users of the library see them on stderr
as with any logger, or collect them with `collect_warnings()`.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from agentv.errors import placed
from agentv.records import Problem

LOGGER = logging.getLogger("agentv")
OnInnerRetry = Callable[[int, str], None]
"""Called with the number of the failed attempt and the reason."""
on_inner_retry: ContextVar[OnInnerRetry | None] = ContextVar("on_inner_retry", default=None)
"""The callback for retries that the target itself makes during the current call."""


def warn(problem: Problem) -> None:
    """Warn about a problem that did not stop the command."""
    _log(problem, logging.WARNING)


def mention(problem: Problem) -> None:
    """Report a problem to users who asked for verbose output."""
    _log(problem, logging.INFO)


def note(text: str) -> None:
    """Show a note to users who asked for verbose output."""
    LOGGER.info("%s", text)


def note_lines(title: str, text: str | None) -> None:
    """Show a title and a multi-line text to users who asked for verbose output. Do nothing if the text is empty."""
    if not text:
        return
    note(title)
    for line in text.splitlines():
        note(line)


def say(text: str) -> None:
    """Show a note that is not a warning."""
    LOGGER.warning("%s", text)


def tell(text: str) -> None:
    """Show a message about the results of a run. The command line prints it without a prefix."""
    LOGGER.warning("%s", text, extra={"is_plain": True})


def tell_inner_retry(attempt: int, reason: str) -> None:
    """Report that the target retries a failed request itself, to the callback of the current call."""
    callback = on_inner_retry.get()
    if callback is not None:
        callback(attempt, reason)


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
    text = placed(problem.message, problem.file, problem.line)
    if problem.hint:
        text = f"{text} ({problem.hint})"
    LOGGER.log(level, "%s", text, extra={"problem": problem})
