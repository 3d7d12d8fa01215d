"""The one channel for warnings.

It is the `agentv` logger: the command line prints what goes through it, a library user sees it on
stderr as with any logger, or collects it with `collect_warnings()`.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from agentv.errors import placed
from agentv.records import Problem

LOGGER = logging.getLogger("agentv")
OnInnerRetry = Callable[[int, str], None]
on_inner_retry: ContextVar[OnInnerRetry | None] = ContextVar("on_inner_retry", default=None)
"""Who is told, in this call of a target, that the target repeats a request of its own."""


def warn(problem: Problem) -> None:
    """Tell the user of something that was survived."""
    _send(problem, logging.WARNING)


def mention(problem: Problem) -> None:
    """Tell the user who asked for verbosity; nobody else hears it."""
    _send(problem, logging.INFO)


def note(text: str) -> None:
    """Tell the user who asked for verbosity how something came to be."""
    LOGGER.info("%s", text)


def note_lines(title: str, text: str | None) -> None:
    """Tell the user who asked for verbosity a text of several lines, if there is one."""
    if text:
        note(title)
        for line in text.splitlines():
            note(line)


def say(text: str) -> None:
    """Tell the user something that is no warning."""
    LOGGER.warning("%s", text)


def tell(text: str) -> None:
    """Tell the user what a run does with results; the command line prints it as it stands."""
    LOGGER.warning("%s", text, extra={"is_plain": True})


def tell_inner_retry(attempt: int, reason: str) -> None:
    """Tell whoever watches this call that the target repeats a request of its own, which has failed."""
    if (hears := on_inner_retry.get()) is not None:
        hears(attempt, reason)


def problem_of(record: logging.LogRecord) -> Problem:
    """The problem that a log record carries."""
    carried = getattr(record, "problem", None)
    return carried if isinstance(carried, Problem) else Problem(message=record.getMessage(), severity="warning")


@contextmanager
def collect_warnings(level: int = logging.WARNING) -> Iterator[list[Problem]]:
    """Collect the warnings of a block of code, in place of printing them.

    With `level=logging.INFO` what only a verbose run says is collected too.
    """
    found: list[Problem] = []
    handler = _Collector(found)
    before = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    LOGGER.propagate = False
    try:
        yield found
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before[0])
        LOGGER.propagate = before[1]


class _Collector(logging.Handler):
    def __init__(self, found: list[Problem]):
        super().__init__()
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(problem_of(record))


def _send(problem: Problem, level: int) -> None:
    text = placed(problem.message, problem.file, problem.line)
    LOGGER.log(level, "%s", f"{text} ({problem.hint})" if problem.hint else text, extra={"problem": problem})
