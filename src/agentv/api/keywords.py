"""Messages in the words of Python code.

Everything below the Python functions names options by their flags. These messages are rewritten here, where they leave
agentv: `--eval-id` becomes `ids`, and `--resume` becomes `resume=True`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import msgspec

from agentv.errors import AgentvError, SeveralProblems
from agentv.log import use_wording
from agentv.redact import clean
from agentv.run.options import option_fields

_FLAG = re.compile(r"'agentv [^']*'|--[a-z][a-z-]*[a-z]")
"""A flag, or a quoted command line, which is not changed."""
_OTHERS = {
    "--evaluator": "evaluator",
    "--fail-under": "fail_under",
    "--labels": "labels",
    "--min-pass-rate": "min_pass_rate",
    "--verbose": "the logger 'agentv' at level INFO",
}
"""The flags that are not declared as options of a run."""


@contextmanager
def keyword_messages() -> Iterator[None]:
    """Name options by their keywords, and mask secrets, in the warnings and errors of a block of code."""
    with use_wording(in_keywords):
        try:
            yield
        except AgentvError as error:
            _reword(error)
            raise


def in_keywords(text: str) -> str:
    """Return a message with the keywords of options instead of their flags."""
    if "--" not in text:
        return text
    return _FLAG.sub(_keyword, text)


def _keyword(found: re.Match[str]) -> str:
    return _keywords().get(found[0], found[0])


@cache
def _keywords() -> Mapping[str, str]:
    """Return how Python code writes each flag."""
    found = dict(_OTHERS)
    for name, field in option_fields().items():
        written = name
        if isinstance(field.default, bool):
            written = f"{name}={not field.default}"
        found[field.option.flag] = written
    return found


def _reword(error: AgentvError) -> None:
    """Rewrite an error in place: it keeps its class, its cause and where it was raised."""
    error.message = _shown(error.message)
    error.args = (error.message, *error.args[1:])
    if isinstance(error, SeveralProblems):
        problems = []
        for problem in error.problems:
            message = _shown(problem.message)
            problems.append(msgspec.structs.replace(problem, message=message, hint=_shown(problem.hint)))
        error.problems = problems
    if error.hint:
        error.hint = _shown(error.hint)
        error.__notes__ = [_shown(note) for note in error.__notes__]


def _shown(text: str) -> str:
    return clean(in_keywords(text))
