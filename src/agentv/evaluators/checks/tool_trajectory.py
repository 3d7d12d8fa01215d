"""Checks which tools an agent called, in which order and with what."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.evaluators.checks.matching import Match, agrees, matcher, shorten
from agentv.evaluators.checks.regex import compile_pattern, search_all
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Score, TraceEvent
from agentv.telemetry.trace import build_trace

MAX_MISSES = 50
Mode = Literal["any_order", "in_order", "exact"]
Name = Annotated[str, Meta(min_length=1)]


class Call(NamedTuple):
    """A call as it happened."""

    tool: str | None
    args: Any
    output: Any


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that should happen: what is left out, or is `any`, may be anything."""

    tool: Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
    """Its name, or several of which any will do."""
    args: Any = None
    input: Any = None
    output: Any = None

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that will do."""
        return (self.tool,) if isinstance(self.tool, str) else self.tool

    @property
    def wanted_args(self) -> Any:
        return self.input if self.args is None else self.args

    def fits(self, call: Call, match: Match) -> bool:
        """Return whether the call is the one that is expected."""
        return (
            call.tool in self.tools
            and _is_met(self.wanted_args, call.args, match)
            and _is_met(self.output, call.output, match)
        )

    def __str__(self) -> str:
        name = " or ".join(self.tools)
        return name if self.wanted_args in (None, "any") else f"{name} {shorten(self.wanted_args)}"


class ToolTrajectory(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores how much of the expected tool calls is in the trace."""

    waits: ClassVar[bool] = False

    mode: Mode
    minimums: dict[str, Annotated[int, Meta(ge=0)]] | None = None
    expected: tuple[ExpectedCall, ...] | None = None

    def open(self, context: EvaluatorContext) -> Evaluator:
        needed, other = ("minimums", "expected") if self.mode == "any_order" else ("expected", "minimums")
        if getattr(self, needed) is None:
            raise ConfigError(f"mode {self.mode!r} needs {needed!r}", hint=HINTS[needed])
        if getattr(self, other) is not None:
            raise ConfigError(f"mode {self.mode!r} has no use for {other!r}", hint=f"it takes {needed!r}")
        patterns = {
            pattern: compile_pattern(pattern, "expected", index, field, *steps)
            for index, call in enumerate(self.expected or ())
            for field in ("args", "input", "output")
            for steps, pattern in _patterns(getattr(call, field))
        }
        return _WithPatterns(self, patterns) if patterns else self

    async def evaluate(self, exchange: Exchange) -> Score:
        return self.score(exchange, lambda _pattern, _text: False)

    def score(self, exchange: Exchange, match: Match) -> Score:
        """Return the score of an answer; `match` finds patterns."""
        trace = build_trace(exchange.response)
        if exchange.response.trace_complete is False:
            return Score(
                score=0.0, misses=("the trace is not complete: nobody knows which tools were called",), failed=True
            )
        if trace is None:
            if not exchange.response.output_messages:
                return Score(score=0.0, misses=("No trace available for evaluation",), missing_data=True)
            if tools := self._needed_tools():
                return Score(score=0.0, misses=tuple(f"{tool} was never called" for tool in tools))
        calls = _calls(trace or ())
        if self.mode == "any_order":
            return _any_order(self.minimums or {}, calls)
        return (_in_order if self.mode == "in_order" else _exact)(self.expected or (), calls, match)

    def _needed_tools(self) -> list[str]:
        """Return the tools that have to be called, each once."""
        if self.mode == "any_order":
            return [tool for tool, least in (self.minimums or {}).items() if least]
        return list(dict.fromkeys(" or ".join(call.tools) for call in self.expected or ()))


@dataclass(frozen=True, slots=True)
class _WithPatterns(Evaluator):
    """Scores calls of which patterns are expected: those are all searched for first, within their time limit."""

    waits: ClassVar[bool] = False

    settings: ToolTrajectory
    patterns: Mapping[str, re.Pattern[str]]

    async def evaluate(self, exchange: Exchange) -> Score:
        needed: dict[tuple[str, str], None] = {}

        def note(pattern: str, text: str) -> bool:
            needed[pattern, text] = None
            return True  # so that what else is expected of the call is looked at, too

        calls = _calls(build_trace(exchange.response) or ())
        for expected in self.settings.expected or ():
            for call in calls:
                expected.fits(call, note)
        found = await search_all([(self.patterns[pattern], text) for pattern, text in needed])
        held = dict(zip(needed, found, strict=True))
        return self.settings.score(exchange, lambda pattern, text: held[pattern, text])


def _patterns(wanted: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the patterns in an expected value, each with the steps to it."""
    if (rule := matcher(wanted)) is not None:
        if rule[0] == "regex":
            yield ("regex",), rule[1]
        return
    inner = wanted.items() if isinstance(wanted, dict) else enumerate(wanted) if isinstance(wanted, list) else ()
    for step, value in inner:
        for steps, pattern in _patterns(value):
            yield (step, *steps), pattern


HINTS = {"minimums": "for example: minimums: {search: 1}", "expected": "for example: expected: [{tool: search}]"}


def _calls(trace: Sequence[TraceEvent]) -> list[Call]:
    """Return the tool calls; a call without an output gets that of the next result with its id."""
    results: dict[str, Any] = {}
    calls: list[Call] = []
    for event in reversed(trace):
        if event.type == "tool_result" and event.id:
            results[event.id] = event.output
        elif event.type == "tool_call":
            output = results.get(event.id or "") if event.output is None else event.output
            calls.append(Call(event.name, event.input, output))
    return calls[::-1]


def _any_order(minimums: Mapping[str, int], calls: Sequence[Call]) -> Score:
    made = Counter(call.tool for call in calls)
    points = {
        tool: f"{tool} called {_times(made[tool])}, at least {least} expected" for tool, least in minimums.items()
    }
    hits = tuple(points[tool] for tool, least in minimums.items() if made[tool] >= least)
    misses = tuple(points[tool] for tool, least in minimums.items() if made[tool] < least)
    return Score(score=len(hits) / len(minimums) if minimums else 1.0, hits=hits, misses=misses)


def _in_order(expected: Sequence[ExpectedCall], calls: Sequence[Call], match: Match) -> Score:
    found = _longest_run(expected, calls, match)
    hits = tuple(f"{call} found at call {found[index] + 1}" for index, call in enumerate(expected) if index in found)
    misses = tuple(f"{call} not found in order" for index, call in enumerate(expected) if index not in found)
    return Score(score=len(hits) / len(expected) if expected else 1.0, hits=hits, misses=misses)


def _longest_run(expected: Sequence[ExpectedCall], calls: Sequence[Call], match: Match) -> dict[int, int]:
    """Return the longest run of expected calls that were made in order: the number of the call that met each.

    For every length, the run that ends at the earliest expected call is kept, as it is the easiest to go on from.
    """
    by_tool: dict[str | None, list[int]] = {}
    for index in reversed(range(len(expected))):
        for tool in set(expected[index].tools):
            by_tool.setdefault(tool, []).append(index)
    ends: list[int] = []
    runs: list[_Run | None] = [None]
    for number, call in enumerate(calls):
        for index in by_tool.get(call.tool, ()):  # the last first: one call meets one expected call only
            length = bisect_left(ends, index)
            if ends[length : length + 1] != [index] and expected[index].fits(call, match):
                ends[length : length + 1] = [index]
                runs[length + 1 : length + 2] = [_Run(index, number, runs[length])]
    found: dict[int, int] = {}
    run = runs[-1]
    while run:
        found[run.place] = run.number
        run = run.before
    return found


class _Run(NamedTuple):
    """An expected call, the number of the call that met it, and what was met before."""

    place: int
    number: int
    before: "_Run | None"


def _exact(expected: Sequence[ExpectedCall], calls: Sequence[Call], match: Match) -> Score:
    hits: list[str] = []
    misses: list[str] = []
    for number, (wanted, call) in enumerate(zip(expected, calls, strict=False), 1):
        if wanted.fits(call, match):
            hits.append(f"call {number} is {wanted}")
        else:
            misses.append(f"call {number}: expected {wanted}, got {_describe(call)}")
    misses += [f"call {number}: expected {expected[number - 1]}, got none" for number in _numbers(calls, expected)]
    misses += [
        f"call {number}: {_describe(calls[number - 1])} was not expected" for number in _numbers(expected, calls)
    ]
    if len(misses) > MAX_MISSES:
        misses[MAX_MISSES:] = [f"and {len(misses) - MAX_MISSES} more"]
    most = max(len(expected), len(calls))
    return Score(score=len(hits) / most if most else 1.0, hits=tuple(hits), misses=tuple(misses))


def _numbers(shorter: Sequence[Any], longer: Sequence[Any]) -> range:
    return range(len(shorter) + 1, len(longer) + 1)


def _is_met(wanted: Any, given: Any, match: Match) -> bool:
    return wanted is None or wanted == "any" or agrees(wanted, given, match)


def _describe(call: Call) -> str:
    name = call.tool or "a tool without a name"
    return name if call.args is None else f"{name} {shorten(call.args)}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
