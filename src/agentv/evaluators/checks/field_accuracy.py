"""Compares the fields of an answer that is JSON with those of the expected answer."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.evaluators.checks.matching import parse_json, same, shorten
from agentv.formats.written_values import date_format, parse_date, parse_number
from agentv.judges.payload import reference_answer
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Json, Score

MAX_SHOWN = 20
MISSING: Any = object()
EACH = -1
"""The step that stands for every item of a list."""

Finite = Annotated[float, Meta(ge=0, le=1e15)]
Steps = tuple[str | int, ...]
Matches = Callable[[Any, Any], bool]
_STEP = re.compile(r"""(?:^|\.)([^.\[\]"']+)|\[(\d{1,9})\]|\[(\*)\]|\["([^"]*)"\]|\['([^']*)'\]""")


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field to compare, and how."""

    path: Annotated[str, Meta(min_length=1)]
    match: Literal["exact", "numeric_tolerance", "date"] = "exact"
    required: bool = True
    weight: Finite = 1.0
    tolerance: Finite = 0.0
    relative: bool = False
    formats: tuple[str, ...] = ()


class FieldAccuracy(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores how many of the fields are as they are in the expected answer."""

    fields: Annotated[tuple[Field, ...], Meta(min_length=1)]
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"

    def open(self, context: EvaluatorContext) -> Evaluator:
        checks = tuple(_open_field(index, field) for index, field in enumerate(self.fields))
        return _Comparison(checks, self.aggregation == "all_or_nothing")


class _Outcome(msgspec.Struct, frozen=True):
    """The result of one field; `is_absent` if the answer does not have it at all."""

    field: Field
    score: float
    pairs: Sequence[tuple[Any, Any]]
    misses: Sequence[str]
    is_absent: bool

    def details(self) -> Json:
        """Return the field as it is written to a results file; the values of a path with `[*]` are lists."""
        expected: Any = [None if value is MISSING else value for value, _ in self.pairs]
        actual: Any = [None if value is MISSING else value for _, value in self.pairs]
        if "[*]" not in self.field.path:
            (expected,), (actual,) = expected, actual
        return {"path": self.field.path, "score": self.score, "expected": expected, "actual": actual}


class _Check(msgspec.Struct, frozen=True):
    """A field that is ready to be compared."""

    field: Field
    steps: Steps
    matches: Matches

    def outcome(self, expected: Any, answer: Any) -> _Outcome | None:
        """Return the result of the field; None if it is not to be compared."""
        pairs = list(_pairs(self.steps, expected, answer))
        if not self.field.required:
            pairs = [pair for pair in pairs if pair[0] is not MISSING]
            if not pairs:
                return None
        misses = [miss for pair in pairs if (miss := self._miss(*pair))]
        score = 1 - len(misses) / len(pairs) if pairs else 1.0
        is_absent = bool(pairs) and all(given is MISSING for _, given in pairs)
        return _Outcome(self.field, score, pairs[:MAX_SHOWN], misses[:MAX_SHOWN], is_absent)

    def _miss(self, expected: Any, given: Any) -> str:
        path = self.field.path
        if expected is MISSING:
            return f"{path}: missing in the expected answer"
        if given is MISSING:
            return f"{path}: missing in the answer, expected {shorten(expected)}"
        return "" if self.matches(expected, given) else f"{path}: expected {shorten(expected)}, got {shorten(given)}"


def _open_field(index: int, field: Field) -> _Check:
    try:
        return _Check(field, _parse_path(field.path), _matches(field))
    except SettingError as error:
        raise SettingError(error.message, "fields", index, *error.steps, hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class _Comparison(Evaluator):
    waits: ClassVar[bool] = False

    checks: tuple[_Check, ...]
    is_all_or_nothing: bool

    async def evaluate(self, exchange: Exchange) -> Score:
        try:
            expected = parse_json(reference_answer(exchange.case))
        except ValueError as error:
            return Score(score=0.0, misses=(f"the expected answer is no JSON: {error}",), failed=True)
        try:
            answer = parse_json(exchange.response.text)
        except ValueError as error:
            return Score(score=0.0, misses=(f"the answer is no JSON: {error}",), missing_data=True)
        outcomes = [outcome for check in self.checks if (outcome := check.outcome(expected, answer))]
        details = [outcome.details() for outcome in outcomes]
        if not outcomes:
            return Score(score=0.0, misses=("the expected answer has none of the fields",), missing_data=True)
        return Score(
            score=_all_or_nothing(outcomes) if self.is_all_or_nothing else _weighted_average(outcomes),
            hits=tuple(f"{field['path']}: {shorten(field['actual'])}" for field in details if field["score"] == 1),
            misses=tuple(miss for outcome in outcomes for miss in outcome.misses),
            details=details,
        )


def _weighted_average(outcomes: Sequence[_Outcome]) -> float:
    total = sum(outcome.field.weight for outcome in outcomes)
    return sum(outcome.field.weight * outcome.score for outcome in outcomes) / total if total else 0.0


def _all_or_nothing(outcomes: Sequence[_Outcome]) -> float:
    """Return 1 if all is as expected, else 0; the answer may leave out what is not required."""
    met = all(not outcome.misses or (outcome.is_absent and not outcome.field.required) for outcome in outcomes)
    return 1.0 if met else 0.0


def _pairs(steps: Steps, expected: Any, given: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the values at the end of the path, in the expected answer and in the given one."""
    for number, step in enumerate(steps):
        if step == EACH:
            yield from _paired_items(steps[number + 1 :], expected, given)
            return
        expected, given = _at(expected, step), _at(given, step)
    yield expected, given


def _paired_items(steps: Steps, expected: Any, given: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the same for every item of two lists; what has no partner is paired with `MISSING`."""
    if not isinstance(expected, list):
        yield MISSING, given
    elif not isinstance(given, list) and not expected:
        yield expected, MISSING
    else:
        count = len(given) if isinstance(given, list) else 0
        for index in range(max(len(expected), count)):
            yield from _pairs(steps, _at(expected, index), _at(given, index))


def _at(value: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return value[step] if isinstance(value, list) and step < len(value) else MISSING
    return value.get(step, MISSING) if isinstance(value, dict) else MISSING


def _parse_path(path: str) -> Steps:
    """Return the steps of a path; raise `SettingError` if it is not valid."""
    steps: list[str | int] = []
    end = 0
    while end < len(path):
        found = _STEP.match(path, end)
        if not found:
            hint = """paths look like invoice.lines[0].amount, lines[*].amount or a["odd key"]"""
            raise SettingError(f"invalid path {path!r}", "path", hint=hint)
        end = found.end()
        name, index, each, *quoted = found.groups()
        steps.append(EACH if each else int(index) if index else name or next(filter(None, quoted), ""))
    return tuple(steps)


def _matches(field: Field) -> Matches:
    """Return the function that compares the values of a field; raise `SettingError` if other settings do not fit it."""
    if field.match != "numeric_tolerance" and (field.tolerance or field.relative):
        setting, hint = "tolerance" if field.tolerance else "relative", "set match: numeric_tolerance"
        raise SettingError(f"{field.path}: tolerance needs a match of its own", setting, hint=hint)
    if field.match != "date" and field.formats:
        raise SettingError(f"{field.path}: formats need a match of their own", "formats", hint="set match: date")
    if field.match == "exact":
        return same
    return _same_day(field) if field.match == "date" else _close(field)


def _close(field: Field) -> Matches:
    tolerance = Decimal(repr(field.tolerance))

    def matches(expected: Any, given: Any) -> bool:
        wanted, number = parse_number(expected), parse_number(given)
        if wanted is None or number is None:
            return False
        return abs(wanted - number) <= (tolerance * abs(wanted) if field.relative else tolerance)

    return matches


def _same_day(field: Field) -> Matches:
    try:
        formats = tuple(map(date_format, field.formats))
    except ValueError as error:
        hint = "for example DD/MM/YYYY, DD-MMM-YYYY or %d.%m.%Y"
        raise SettingError(f"{field.path}: {error}", "formats", hint=hint) from None

    def matches(expected: Any, given: Any) -> bool:
        wanted = parse_date(expected, formats)
        return wanted is not None and wanted == parse_date(given, formats)

    return matches
