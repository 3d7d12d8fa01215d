"""Checks which tools an agent called, in which order and with what."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.evaluators.checks.matching import agrees, shorten
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Score, TraceEvent
from agentv.telemetry.trace import build_trace

MAX_MISSES = 50
Mode = Literal["any_order", "in_order", "exact"]


class Call(NamedTuple):
    """A call as it happened."""

    tool: str | None
    args: Any
    output: Any


class ExpectedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that should happen: what is left out, or is `any`, may be anything."""

    tool: Annotated[str, Meta(min_length=1)]
    args: Any = None
    input: Any = None
    output: Any = None

    @property
    def wanted_args(self) -> Any:
        return self.input if self.args is None else self.args

    def fits(self, call: Call) -> bool:
        """Return whether the call is the one that is expected."""
        return self.tool == call.tool and _is_met(self.wanted_args, call.args) and _is_met(self.output, call.output)

    def __str__(self) -> str:
        return self.tool if self.wanted_args in (None, "any") else f"{self.tool} {shorten(self.wanted_args)}"


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
        return self

    async def evaluate(self, exchange: Exchange) -> Score:
        trace = build_trace(exchange.response)
        if trace is None:
            if not exchange.response.output_messages:
                return Score(score=0.0, misses=("No trace available for evaluation",))
            if tools := self._needed_tools():
                return Score(score=0.0, misses=tuple(f"{tool} was never called" for tool in tools))
        calls = _calls(trace or ())
        if self.mode == "any_order":
            return _any_order(self.minimums or {}, calls)
        return (_in_order if self.mode == "in_order" else _exact)(self.expected or (), calls)

    def _needed_tools(self) -> list[str]:
        """Return the tools that have to be called, each once."""
        if self.mode == "any_order":
            return [tool for tool, least in (self.minimums or {}).items() if least]
        return list(dict.fromkeys(call.tool for call in self.expected or ()))


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


def _in_order(expected: Sequence[ExpectedCall], calls: Sequence[Call]) -> Score:
    found = _longest_run(expected, calls)
    hits = tuple(f"{call} found at call {found[index] + 1}" for index, call in enumerate(expected) if index in found)
    misses = tuple(f"{call} not found in order" for index, call in enumerate(expected) if index not in found)
    return Score(score=len(hits) / len(expected) if expected else 1.0, hits=hits, misses=misses)


def _longest_run(expected: Sequence[ExpectedCall], calls: Sequence[Call]) -> dict[int, int]:
    """Return the longest run of expected calls that were made in order: the number of the call that met each.

    For every length, the run that ends at the earliest expected call is kept, as it is the easiest to go on from.
    """
    by_tool: dict[str | None, list[int]] = {}
    for index in reversed(range(len(expected))):
        by_tool.setdefault(expected[index].tool, []).append(index)
    ends: list[int] = []
    runs: list[_Run | None] = [None]
    for number, call in enumerate(calls):
        for index in by_tool.get(call.tool, ()):  # the last first: one call meets one expected call only
            length = bisect_left(ends, index)
            if ends[length : length + 1] != [index] and expected[index].fits(call):
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


def _exact(expected: Sequence[ExpectedCall], calls: Sequence[Call]) -> Score:
    hits: list[str] = []
    misses: list[str] = []
    for number, (wanted, call) in enumerate(zip(expected, calls, strict=False), 1):
        if wanted.fits(call):
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


def _is_met(wanted: Any, given: Any) -> bool:
    return wanted is None or wanted == "any" or agrees(wanted, given)


def _describe(call: Call) -> str:
    name = call.tool or "a tool without a name"
    return name if call.args is None else f"{name} {shorten(call.args)}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
