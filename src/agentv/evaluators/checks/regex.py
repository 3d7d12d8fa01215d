"""Checks an answer against regular expressions.

Some expressions take ages on some texts, so that every check has a limit of CPU time. An alarm does that at no cost;
where there is none, or the text is so long that the alarm would come late, an interpreter of its own does the search.
"""

import json
import re
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar

from msgspec import Meta

from agentv.errors import AgentvError, SettingError
from agentv.evaluators.checks.matching import Require, score_checks
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Score
from agentv.system.cpu_limit import call_with_cpu_limit, can_limit_cpu
from agentv.system.threads import run_in_thread

SECONDS = 1.0
LAST_RESORT_SECONDS = 300.0
"""Of wall-clock time, for an interpreter that does not get to work at all."""
LONG_TEXT = 100_000
SHORT_TEXT = 3000
SEARCH = """
import json, re, signal, sys
seconds, texts, searches = json.load(sys.stdin)
signal.signal(signal.SIGPROF, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_PROF, seconds)
print(json.dumps([re.search(pattern, texts[text], flags) is not None for pattern, flags, text in searches]))
"""
_INTERPRETERS = threading.Semaphore(4)  # at once: more would only slow each other down


class Regex(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Passes when the pattern is found somewhere in the answer, or all or any of several are."""

    value: str | Annotated[tuple[str, ...], Meta(min_length=1)]
    require: Require = "all"
    negate: bool = False
    case_sensitive: bool = True

    def open(self, context: EvaluatorContext) -> Evaluator:
        flags = 0 if self.case_sensitive else re.IGNORECASE
        values = (self.value,) if isinstance(self.value, str) else self.value
        return _Patterns(tuple(compile_pattern(value, "value", flags=flags) for value in values), self)


@dataclass(frozen=True, slots=True)
class _Patterns(Evaluator):
    waits: ClassVar[bool] = False

    patterns: tuple[re.Pattern[str], ...]
    settings: Regex

    async def evaluate(self, exchange: Exchange) -> Score:
        text = exchange.response.text
        found = await search_all([(pattern, text) for pattern in self.patterns])
        checks = ((pattern.pattern, held) for pattern, held in zip(self.patterns, found, strict=True))
        settings = self.settings
        return score_checks(checks, ("matches", "match"), require=settings.require, negate=settings.negate)


def compile_pattern(pattern: str, *at: str | int, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern; raise `SettingError` if it is invalid. `at` are the steps to the setting."""
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # which is for authors of Python
            return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "a backslash before it makes . or ( plain"
        raise SettingError(f"invalid pattern {pattern!r}: {error}", *at, hint=hint) from None


Search = tuple[re.Pattern[str], str]
"""A pattern, and the text that it is searched for in."""


async def search_all(searches: Sequence[Search]) -> list[bool]:
    """Return which patterns are found; raise `AgentvError` if that takes more than a second of CPU time."""
    longest = max((len(text) for _, text in searches), default=0)
    try:
        if longest <= SHORT_TEXT and all(_is_simple(pattern.pattern) for pattern, _ in searches):
            return _search(searches)
        if longest <= LONG_TEXT and can_limit_cpu():
            return call_with_cpu_limit(SECONDS, lambda: _search(searches))
        found: list[bool] = await run_in_thread(lambda: _search_in_process(searches))
    except (TimeoutError, subprocess.TimeoutExpired):
        values = ", ".join(dict.fromkeys(repr(pattern.pattern) for pattern, _ in searches))
        raise AgentvError(f"no end to matching {values} within {SECONDS:g} s") from None
    return found


def _search(searches: Sequence[Search]) -> list[bool]:
    return [pattern.search(text) is not None for pattern, text in searches]


def _search_in_process(searches: Sequence[Search]) -> list[bool]:
    """The same in another interpreter, which can be ended."""
    command = [sys.executable, "-I", "-S", "-c", SEARCH]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(text for _, text in searches))}
    tasks = [[pattern.pattern, pattern.flags & re.IGNORECASE, numbers[text]] for pattern, text in searches]
    task = json.dumps([SECONDS, [*numbers], tasks]).encode()
    with _INTERPRETERS:
        run = subprocess.run(command, input=task, capture_output=True, timeout=LAST_RESORT_SECONDS, check=False)
    if run.returncode == -signal.SIGPROF:
        raise TimeoutError
    run.check_returncode()
    found: list[bool] = json.loads(run.stdout)
    return found


@cache
def _is_simple(pattern: str) -> bool:
    """Return whether a search takes at most quadratic time, as with no more than one repetition or choice."""
    return sum(pattern.count(sign) for sign in "*+{?|") <= 1
