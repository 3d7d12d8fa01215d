"""Checks which tools an agent called, in which order and with which arguments."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.evaluators.checks.matching import ANYTHING, CheckSettings, Match, agrees, no_data_score, rule_of, short_json
from agentv.evaluators.checks.regex import compile_pattern, search_all
from agentv.evaluators.judging.reply import failed_score
from agentv.files.yaml import Steps
from agentv.protocols import Evaluator, EvaluatorContext
from agentv.records import Exchange, ProviderResponse, Score, TraceEvent
from agentv.results.messages import SHORTENED, is_shortened
from agentv.results.trace import build_trace
from agentv.text import plural

MAX_MISSES = 50
AT_LEAST = ", at least "
EXPECTED = " expected"
HINTS = {
    "minimums": "for example: minimums: {search: 1}",
    "expected": "for example: expected: [{tool: search}]",
}
Mode = Literal["any_order", "in_order", "exact"]
Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]


class Call(NamedTuple):
    """A tool call in a trace."""

    tool: str | None
    args: Any
    output: Any

    def __str__(self) -> str:
        name = self.tool or "an unnamed tool"
        if self.args is None:
            return name
        return f"{name} {short_json(self.args)}"


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call that should happen. Fields that are omitted or `any` match everything."""

    tool: Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
    """The name of the tool, or several names of which any matches."""
    args: Any = None
    """The expected arguments."""
    input: Any = None
    """Alias of args."""
    output: Any = None
    """The expected result of the call."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that match."""
        if isinstance(self.tool, str):
            return (self.tool,)
        return self.tool

    @property
    def wanted_args(self) -> Any:
        """The expected arguments; `input` is an alias of `args`."""
        if self.args is None:
            return self.input
        return self.args

    def fits(self, call: Call, match: Match) -> bool:
        """Return whether a call is the expected one."""
        return (
            call.tool in self.tools
            and _is_met(self.wanted_args, call.args, match)
            and _is_met(self.output, call.output, match)
        )

    def __str__(self) -> str:
        name = " or ".join(self.tools)
        if self.wanted_args in (None, ANYTHING):
            return name
        return f"{name} {short_json(self.wanted_args)}"


Expected = Sequence[ExpectedCall]
Calls = Sequence[Call]


def _is_met(wanted: Any, given: Any, match: Match) -> bool:
    if wanted is None:
        return True
    return agrees(wanted, given, match)


class ToolTrajectory(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score how many of the expected tool calls are in the trace."""

    waits: ClassVar[bool] = False

    mode: Mode
    """How the expected calls are compared with the trace."""
    minimums: dict[str, Count] | None = None
    """The minimum number of calls of each tool, with `any_order`."""
    expected: tuple[ExpectedCall, ...] | None = None
    """The expected calls, with `in_order` and `exact`."""

    @classmethod
    def negated_miss(cls, hit: str) -> str:
        called, found, least = hit.removesuffix(EXPECTED).rpartition(AT_LEAST)
        if not found:
            return super().negated_miss(hit)
        if least == "1":
            return f"{called}, expected 0 times"
        return f"{called}, expected fewer than {least}"

    def open(self, context: EvaluatorContext) -> Evaluator:
        needed = "expected"
        other = "minimums"
        if self.mode == "any_order":
            needed = "minimums"
            other = "expected"
        if getattr(self, needed) is None:
            raise ConfigError(f"mode {self.mode!r} needs {needed!r}", hint=HINTS[needed])
        if getattr(self, other) is not None:
            raise ConfigError(f"mode {self.mode!r} does not support {other!r}", hint=f"use {needed!r}")
        patterns = self._compile_patterns()
        if patterns:
            return _WithPatterns(self, patterns)
        return self

    def _compile_patterns(self) -> dict[str, re.Pattern[str]]:
        """Return all patterns in the expected calls; raise `SettingError` if one is invalid."""
        compiled = {}
        for index, call in enumerate(self.expected or ()):
            for field in ("args", "input", "output"):
                wanted = getattr(call, field)
                for steps, pattern in _patterns(wanted):
                    compiled[pattern] = compile_pattern(
                        pattern,
                        "expected",
                        index,
                        field,
                        *steps,
                    )
        return compiled

    async def evaluate(self, exchange: Exchange) -> Score:
        # Without patterns in the settings, nothing ever calls `match`.
        return self.score(exchange, lambda _pattern, _text: False)

    def score(self, exchange: Exchange, match: Match) -> Score:
        """Return the score of an answer; `match` searches for patterns."""
        response = exchange.response
        trace = build_trace(response)
        if response.trace_complete is False:
            return failed_score(_incomplete(response))
        if trace is None and not response.output_messages:
            return no_data_score("No trace available for evaluation")
        if trace is None:
            # The messages of the answer are known, and have no tool calls.
            needed = self._needed_tools()
            if needed:
                misses = tuple(f"{tool} was never called" for tool in needed)
                return Score(score=0.0, misses=misses)
        return self._score_calls(_calls(trace or ()), match)

    def _score_calls(self, calls: Calls, match: Match) -> Score:
        if self._compares_values() and any(is_shortened(call.args) or is_shortened(call.output) for call in calls):
            return failed_score(SHORTENED)
        if self.mode == "any_order":
            return _score_any_order(self.minimums or {}, calls)
        expected = self.expected or ()
        if self.mode == "in_order":
            return _score_in_order(expected, calls, match)
        return _score_exact(expected, calls, match)

    def _compares_values(self) -> bool:
        """Return whether inputs or outputs of tools are compared, in addition to names."""
        return any(call.wanted_args is not None or call.output is not None for call in self.expected or ())

    def _needed_tools(self) -> list[str]:
        """Return the tools that have to be called, without duplicates."""
        if self.mode == "any_order":
            minimums = self.minimums or {}
            return [tool for tool, least in minimums.items() if least]
        expected = self.expected or ()
        names = [" or ".join(call.tools) for call in expected]
        return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class _WithPatterns(Evaluator):
    """Scores expected calls that contain patterns. All searches run first, together within one time limit."""

    waits: ClassVar[bool] = False

    settings: ToolTrajectory
    patterns: Mapping[str, re.Pattern[str]]

    async def evaluate(self, exchange: Exchange) -> Score:
        searches = self._searches(exchange)
        compiled = [(self.patterns[pattern], text) for pattern, text in searches]
        found = await search_all(compiled)
        outcomes = dict(zip(searches, found, strict=True))

        def match(pattern: str, text: str) -> bool:
            return outcomes[pattern, text]

        return self.settings.score(exchange, match)

    def _searches(self, exchange: Exchange) -> list[tuple[str, str]]:
        """Return the patterns that scoring may need, each with the text to search, without duplicates."""
        searches: dict[tuple[str, str], None] = {}

        def record(pattern: str, text: str) -> bool:
            searches[pattern, text] = None
            return True  # so that the comparison continues with the remaining patterns of the call

        calls = _calls(build_trace(exchange.response) or ())
        for expected in self.settings.expected or ():
            for call in calls:
                expected.fits(call, record)
        return list(searches)


def _incomplete(response: ProviderResponse) -> str:
    """Return why the tool calls of a response cannot be judged."""
    for dropped in response.dropped or ():
        if dropped.kind == "tool_calls":
            calls = plural(dropped.count, "tool call has", "tool calls have")
            return f"{calls} no readable name, for example {dropped.example}: the trace is incomplete"
    return "the trace is incomplete: some tool calls are missing"


def _patterns(wanted: Any) -> Iterator[tuple[Steps, str]]:
    """Yield the patterns in an expected value, each with the steps to it."""
    rule = rule_of(wanted)
    if rule is not None:
        if rule.kind == "regex":
            yield ("regex",), rule.text
        return
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(wanted, dict):
        inner = wanted.items()
    elif isinstance(wanted, list):
        inner = enumerate(wanted)
    for step, value in inner:
        for steps, pattern in _patterns(value):
            yield (step, *steps), pattern


def _calls(trace: Sequence[TraceEvent]) -> list[Call]:
    """Return the tool calls of a trace. A call without an output gets that of the next result with its id."""
    results: dict[str, Any] = {}
    calls: list[Call] = []
    for event in reversed(trace):
        if event.type == "tool_result" and event.id:
            results[event.id] = event.output
        elif event.type == "tool_call":
            output = event.output
            if output is None:
                output = results.get(event.id or "")
            calls.append(Call(event.name, event.input, output))
    calls.reverse()
    return calls


def _score_any_order(minimums: Mapping[str, int], calls: Calls) -> Score:
    """Score how many tools were called at least as often as required."""
    counts = Counter(call.tool for call in calls)
    hits: list[str] = []
    misses: list[str] = []
    for tool, least in minimums.items():
        point = f"{tool} called {_times(counts[tool])}{AT_LEAST}{least}{EXPECTED}"
        if counts[tool] >= least:
            hits.append(point)
        else:
            misses.append(point)
    return _share_score(hits, misses, len(minimums))


def _score_in_order(expected: Expected, calls: Calls, match: Match) -> Score:
    """Score how many of the expected calls were made in order, with any other calls in between."""
    found = _longest_run(expected, calls, match)
    hits: list[str] = []
    misses: list[str] = []
    for index, call in enumerate(expected):
        if index in found:
            hits.append(f"{call} found at call {found[index] + 1}")
        else:
            misses.append(f"{call} not found in order")
    return _share_score(hits, misses, len(expected))


class _Run(NamedTuple):
    """A linked list: an expected call, the number of the call that met it, and the run before it."""

    expected_index: int
    call_number: int
    before: "_Run | None"


def _longest_run(
    expected: Expected,
    calls: Calls,
    match: Match,
) -> dict[int, int]:
    """Return the longest run of expected calls that were made in order.

    The result maps the index of each expected call in the run to the number of the call that met it. This is the
    longest common subsequence, found by patience sorting: for every length, keep the run that ends at the earliest
    expected call, as it is the easiest to extend.
    """
    indexes_by_tool = _indexes_by_tool(expected)
    ends: list[int] = []  # at position n: the last index of the best run of length n + 1; always sorted
    runs: list[_Run | None] = [None]  # at position n: the best run of length n
    for call_number, call in enumerate(calls):
        for index in indexes_by_tool.get(call.tool, ()):
            length = bisect_left(ends, index)
            is_longest = length == len(ends)
            if not is_longest and ends[length] == index:
                continue  # an earlier call has met it already
            if not expected[index].fits(call, match):
                continue
            run = _Run(index, call_number, runs[length])
            if is_longest:
                ends.append(index)
                runs.append(run)
            else:
                ends[length] = index
                runs[length + 1] = run
    found: dict[int, int] = {}
    rest = runs[-1]
    while rest is not None:
        found[rest.expected_index] = rest.call_number
        rest = rest.before
    return found


def _indexes_by_tool(expected: Expected) -> dict[str | None, list[int]]:
    """Return the indexes of the expected calls of each tool, in descending order.

    The order matters: with the last index first, one call cannot extend a run that it has just extended itself.
    """
    indexes: dict[str | None, list[int]] = {}
    for index in reversed(range(len(expected))):
        for tool in set(expected[index].tools):
            indexes.setdefault(tool, []).append(index)
    return indexes


def _score_exact(expected: Expected, calls: Calls, match: Match) -> Score:
    """Score how many of the calls are exactly the expected ones, position by position."""
    hits: list[str] = []
    misses: list[str] = []
    pairs = zip(expected, calls, strict=False)
    for number, (wanted, call) in enumerate(pairs, 1):
        if wanted.fits(call, match):
            hits.append(f"call {number} is {wanted}")
        else:
            misses.append(f"call {number}: expected {wanted}, got {call}")
    common = min(len(expected), len(calls))
    for number, wanted in enumerate(expected[common:], common + 1):
        misses.append(f"call {number}: expected {wanted}, got none")
    for number, call in enumerate(calls[common:], common + 1):
        misses.append(f"call {number}: {call} was not expected")
    if len(misses) > MAX_MISSES:
        omitted = len(misses) - MAX_MISSES
        misses = [*misses[:MAX_MISSES], f"and {omitted} more"]
    total = max(len(expected), len(calls))
    return _share_score(hits, misses, total)


def _share_score(
    hits: Sequence[str],
    misses: Sequence[str],
    total: int,
) -> Score:
    """Return the share of hits as a score; 1 if nothing was expected."""
    score = 1.0
    if total:
        score = len(hits) / total
    return Score(
        score=score,
        hits=tuple(hits),
        misses=tuple(misses),
    )


def _times(number: int) -> str:
    if number == 1:
        return "once"
    return f"{number} times"
