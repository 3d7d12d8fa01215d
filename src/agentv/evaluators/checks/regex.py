"""Checks an answer against regular expressions.

Some expressions take exponential time on some texts, so every check has a limit of CPU time. An alarm enforces it at no
cost. Where alarms are not available, or the text is so long that the alarm would come late, a separate interpreter
runs the search.
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
from functools import cache, partial
from typing import ClassVar

from agentv.errors import AgentvError, SettingError
from agentv.evaluators.checks.matching import CheckSettings, Require, Values, score_checks
from agentv.processes.cpu_limit import call_with_cpu_limit, can_limit_cpu
from agentv.processes.threads import run_in_thread
from agentv.protocols import Evaluator, EvaluatorContext
from agentv.records import Exchange, Score
from agentv.text import quote_text

SECONDS = 1.0
LAST_RESORT_SECONDS = 300.0
"""The limit of wall-clock time, for an interpreter that gets no CPU time at all."""
LONG_TEXT = 100_000
SHORT_TEXT = 3000
SEARCH = """
import json, re, signal, sys
seconds, texts, searches = json.load(sys.stdin)
signal.signal(signal.SIGPROF, signal.SIG_DFL)
signal.setitimer(signal.ITIMER_PROF, seconds)
print(json.dumps([re.search(pattern, texts[text], flags) is not None for pattern, flags, text in searches]))
"""
_INTERPRETERS = threading.Semaphore(4)  # more at once would only slow each other down


class Regex(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pass if the pattern is found in the answer. `require` sets whether all or any of several patterns must."""

    value: Values
    """A pattern, or a list of patterns, as in Python's `re.search`."""
    require: Require = "all"
    """Whether all patterns must match, or any of them."""
    negate: bool = False
    """Pass if the pattern does not match."""
    case_sensitive: bool = True
    """Whether matching is case-sensitive."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        flags = 0
        if not self.case_sensitive:
            flags = re.IGNORECASE
        values = self.value
        if isinstance(values, str):
            values = (values,)
        patterns = tuple(compile_pattern(value, "value", flags=flags) for value in values)
        return _Patterns(patterns, self)


@dataclass(frozen=True, slots=True)
class _Patterns(Evaluator):
    """Searches each answer for compiled patterns."""

    waits: ClassVar[bool] = False

    patterns: tuple[re.Pattern[str], ...]
    settings: Regex

    async def evaluate(self, exchange: Exchange) -> Score:
        text = exchange.response.text
        searches = [(pattern, text) for pattern in self.patterns]
        found = await search_all(searches)
        values = [pattern.pattern for pattern in self.patterns]
        return score_checks(
            zip(values, found, strict=True),
            ("matches", "match"),
            require=self.settings.require,
            negate=self.settings.negate,
        )


def compile_pattern(
    pattern: str,
    *at: str | int,
    flags: int = 0,
) -> re.Pattern[str]:
    """Return the compiled pattern; raise `SettingError` if it is invalid. `at` are the steps to the setting."""
    try:
        # A FutureWarning is meant for authors of Python code, not for authors of eval files.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "escape special characters such as . and ( with a backslash"
        raise SettingError(f"invalid pattern {quote_text(pattern)}: {error}", *at, hint=hint) from None


Search = tuple[re.Pattern[str], str]
"""A pattern, and the text that is searched for it."""


async def search_all(searches: Sequence[Search]) -> list[bool]:
    """Return for each search whether its pattern is found; raise `AgentvError` if they take over a second of CPU time.

    Simple patterns on short texts need no limit. For all others, use an alarm if possible, else an interpreter.
    """
    lengths = [len(text) for _, text in searches]
    longest = max(lengths, default=0)
    try:
        if longest <= SHORT_TEXT and all(_is_simple(pattern.pattern) for pattern, _ in searches):
            return _search(searches)
        if longest <= LONG_TEXT and can_limit_cpu():
            return call_with_cpu_limit(SECONDS, partial(_search, searches))
        found: list[bool] = await run_in_thread(partial(_search_in_process, searches))
    except (TimeoutError, subprocess.TimeoutExpired):
        patterns = dict.fromkeys(quote_text(pattern.pattern) for pattern, _ in searches)
        raise AgentvError(f"matching {', '.join(patterns)} took longer than {SECONDS:g} s") from None
    return found


def _search(searches: Sequence[Search]) -> list[bool]:
    return [pattern.search(text) is not None for pattern, text in searches]


def _search_in_process(searches: Sequence[Search]) -> list[bool]:
    """Do the same as `_search` in another interpreter; raise `TimeoutError` if that had to be killed."""
    # Each text is sent once, however many patterns are searched for in it.
    numbers: dict[str, int] = {}
    tasks = []
    for pattern, text in searches:
        number = numbers.setdefault(text, len(numbers))
        flags = pattern.flags & re.IGNORECASE
        tasks.append([pattern.pattern, flags, number])
    request = json.dumps([SECONDS, list(numbers), tasks])
    with _INTERPRETERS:
        run = subprocess.run(
            [sys.executable, "-I", "-S", "-c", SEARCH],
            input=request.encode(),
            capture_output=True,
            timeout=LAST_RESORT_SECONDS,
            check=False,
        )
    if run.returncode == -signal.SIGPROF:
        raise TimeoutError
    run.check_returncode()
    found: list[bool] = json.loads(run.stdout)
    return found


@cache
def _is_simple(pattern: str) -> bool:
    """Return whether a search takes at most quadratic time: the pattern has at most one repetition or alternative."""
    operators = sum(pattern.count(sign) for sign in "*+{?|")
    return operators <= 1
