"""Compares the fields of a JSON answer with those of the expected answer."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.evaluators.checks.matching import CheckSettings, no_data_score, parse_json, same, short_json
from agentv.evaluators.judging.payload import reference_answer
from agentv.evaluators.judging.reply import NOT_APPLICABLE, failed_score
from agentv.files.written_values import date_format, parse_date, parse_number
from agentv.protocols import Evaluator, EvaluatorContext
from agentv.records import EvalCase, Exchange, Json, Score

MAX_SHOWN = 20
MISSING: Any = object()
EACH = -1
"""The step of a path that stands for every item of a list: `[*]`."""

Finite = Annotated[float, Meta(ge=0, le=1e15)]
Steps = tuple[str | int, ...]
Pair = tuple[Any, Any]
"""An expected value and the actual value; either may be `MISSING`."""
Matches = Callable[[Any, Any], bool]
_STEP = re.compile(r"""(?:^|\.)([^.\[\]"']+)|\[(\d{1,9})\]|\[(\*)\]|\["([^"]*)"\]|\['([^']*)'\]""")


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field to compare, and how."""

    path: Annotated[str, Meta(min_length=1)]
    """The path of the field, such as `vendor.name`, `items[0].price` or `items[*].price`."""
    match: Literal["exact", "numeric_tolerance", "date"] = "exact"
    """How to compare the values."""
    required: bool = True
    """Whether the case is not judged if its expected answer lacks the field."""
    weight: Finite = 1.0
    """The weight of the field in the score."""
    tolerance: Finite = 0.0
    """The largest accepted difference, with `numeric_tolerance`."""
    relative: bool = False
    """Whether the tolerance is a share of the expected value."""
    formats: tuple[str, ...] = ()
    """The accepted formats of dates."""


class FieldAccuracy(CheckSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score how many of the fields match the expected answer."""

    fields: Annotated[tuple[Field, ...], Meta(min_length=1)]
    """The fields to compare."""
    aggregation: Literal["weighted_average", "all_or_nothing"] = "weighted_average"
    """How the scores of the fields are combined."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        checks = [_open_field(index, field) for index, field in enumerate(self.fields)]
        return _Comparison(
            checks=tuple(checks),
            is_all_or_nothing=self.aggregation == "all_or_nothing",
        )

    def unmet(self, case: EvalCase) -> Iterator[SettingError]:
        try:
            expected = _expected_value(case)
        except ValueError:
            expected = MISSING
        for index, field in enumerate(self.fields):
            if not _open_field(index, field).has_any(expected):
                message = f"no case of this evaluator has {field.path!r} in its expected answer"
                hint = "correct the path, or remove the field"
                yield SettingError(message, "fields", index, "path", hint=hint)


class _Outcome(msgspec.Struct, frozen=True):
    """The result of one field. `is_absent` means that the answer does not have the field at all."""

    field: Field
    score: float
    pairs: Sequence[Pair]
    misses: Sequence[str]
    is_absent: bool

    def details(self) -> Json:
        """Return the field for a results file. The values of a path with `[*]` are lists."""
        expected: Any = [_none_if_missing(value) for value, _ in self.pairs]
        actual: Any = [_none_if_missing(value) for _, value in self.pairs]
        if "[*]" not in self.field.path:
            expected = expected[0]
            actual = actual[0]
        return {
            "path": self.field.path,
            "score": self.score,
            "expected": expected,
            "actual": actual,
        }


def _none_if_missing(value: Any) -> Any:
    if value is MISSING:
        return None
    return value


class _Check(msgspec.Struct, frozen=True):
    """A field that is ready to be compared."""

    field: Field
    steps: Steps
    matches: Matches

    def has_all(self, expected: Any) -> bool:
        """Return whether the expected answer has the field, in every item of a list if the path has `[*]`."""
        return all(value is not MISSING for value, _ in _pairs(self.steps, expected, expected))

    def has_any(self, expected: Any) -> bool:
        """Return whether the expected answer has the field, or a list that could have items with it."""
        values = [value for value, _ in _pairs(self.steps, expected, expected)]
        return not values or any(value is not MISSING for value in values)

    def outcome(self, expected: Any, answer: Any) -> _Outcome:
        """Return the result of a field that the expected answer has."""
        pairs = list(_pairs(self.steps, expected, answer))
        if not self.field.required:
            pairs = [pair for pair in pairs if pair[0] is not MISSING]
        misses: list[str] = []
        for wanted, given in pairs:
            miss = self._miss(wanted, given)
            if miss:
                misses.append(miss)
        is_absent = bool(pairs) and all(given is MISSING for _, given in pairs)
        score = 1.0
        if pairs:
            score = 1 - len(misses) / len(pairs)
        return _Outcome(
            field=self.field,
            score=score,
            pairs=pairs[:MAX_SHOWN],
            misses=misses[:MAX_SHOWN],
            is_absent=is_absent,
        )

    def _miss(self, expected: Any, given: Any) -> str:
        """Return why two values do not match; empty if they do."""
        path = self.field.path
        if expected is MISSING:
            return f"{path}: missing in the expected answer"
        if given is MISSING:
            return f"{path}: missing in the answer, expected {short_json(expected)}"
        # Equal values match however they are compared: null and "" are neither a number nor a date.
        if same(expected, given) or self.matches(expected, given):
            return ""
        return f"{path}: expected {short_json(expected)}, got {short_json(given)}"


def _open_field(index: int, field: Field) -> _Check:
    """Return the check of a field; raise `SettingError` if its settings are invalid."""
    try:
        steps = _parse_path(field.path)
        matches = _matches(field)
    except SettingError as error:
        steps_to_field = ("fields", index, *error.steps)
        raise SettingError(error.message, *steps_to_field, hint=error.hint) from None
    return _Check(field, steps, matches)


@dataclass(frozen=True, slots=True)
class _Comparison(Evaluator):
    """Compares the fields of each answer."""

    waits: ClassVar[bool] = False

    checks: tuple[_Check, ...]
    is_all_or_nothing: bool

    async def evaluate(self, exchange: Exchange) -> Score:
        try:
            expected = _expected_value(exchange.case)
        except ValueError as error:
            return failed_score(f"the expected answer is not valid JSON: {error}")
        checks: list[_Check] = []
        for check in self.checks:
            if check.field.required and not check.has_all(expected):
                return failed_score(
                    f"{check.field.path}: missing in the expected answer; "
                    "if the field is optional, set 'required: false'"
                )
            if check.has_any(expected):
                checks.append(check)
        if not checks:
            reasoning = "the expected answer has none of the fields"
            return msgspec.structs.replace(NOT_APPLICABLE, reasoning=reasoning)
        try:
            answer = parse_json(exchange.response.text)
        except ValueError as error:
            return no_data_score(f"the answer is not valid JSON: {error}")
        return self._combine([check.outcome(expected, answer) for check in checks])

    def _combine(self, outcomes: Sequence[_Outcome]) -> Score:
        hits: list[str] = []
        misses: list[str] = []
        details: list[Json] = []
        for outcome in outcomes:
            field = outcome.details()
            details.append(field)
            misses += outcome.misses
            if outcome.score == 1:
                hits.append(f"{outcome.field.path}: {short_json(field['actual'])}")
        score = _weighted_average(outcomes)
        if self.is_all_or_nothing:
            score = _all_or_nothing(outcomes)
        return Score(
            score=score,
            hits=tuple(hits),
            misses=tuple(misses),
            details=details,
        )


def _expected_value(case: EvalCase) -> Any:
    """Return the value of the expected answer; `MISSING` if the case has none. Raise `ValueError` if it is not JSON."""
    text = reference_answer(case)
    if not text.strip():
        return MISSING
    return parse_json(text)


def _weighted_average(outcomes: Sequence[_Outcome]) -> float:
    total_weight = sum(outcome.field.weight for outcome in outcomes)
    if not total_weight:
        return 0.0
    weighted = sum(outcome.field.weight * outcome.score for outcome in outcomes)
    return weighted / total_weight


def _all_or_nothing(outcomes: Sequence[_Outcome]) -> float:
    """Return 1 if every field matches, else 0. The answer may omit fields that are not required."""
    for outcome in outcomes:
        may_be_omitted = outcome.is_absent and not outcome.field.required
        if outcome.misses and not may_be_omitted:
            return 0.0
    return 1.0


def _pairs(steps: Steps, expected: Any, given: Any) -> Iterator[Pair]:
    """Yield the values at the end of a path, in the expected answer and in the given one."""
    for number, step in enumerate(steps):
        if step == EACH:
            rest = steps[number + 1 :]
            yield from _item_pairs(rest, expected, given)
            return
        expected = _at(expected, step)
        given = _at(given, step)
    yield expected, given


def _item_pairs(steps: Steps, expected: Any, given: Any) -> Iterator[Pair]:
    """Yield the pairs for every item of two lists. An item without a counterpart is paired with `MISSING`."""
    if not isinstance(expected, list):
        yield MISSING, given
        return
    given_count = 0
    if isinstance(given, list):
        given_count = len(given)
    elif not expected:
        # Nothing to compare item by item, but an empty list was expected.
        yield expected, MISSING
        return
    for index in range(max(len(expected), given_count)):
        yield from _pairs(steps, _at(expected, index), _at(given, index))


def _at(value: Any, step: str | int) -> Any:
    """Return the value that a step leads to; `MISSING` if there is none."""
    if isinstance(step, str):
        if isinstance(value, dict):
            return value.get(step, MISSING)
    elif isinstance(value, list) and step < len(value):
        return value[step]
    return MISSING


def _parse_path(path: str) -> Steps:
    """Return the steps of a path; raise `SettingError` if it is invalid."""
    steps: list[str | int] = []
    end = 0
    while end < len(path):
        found = _STEP.match(path, end)
        if not found:
            hint = """valid paths: invoice.lines[0].amount, lines[*].amount or a["odd key"]"""
            raise SettingError(f"invalid path {path!r}", "path", hint=hint)
        end = found.end()
        steps.append(_parse_step(found))
    return tuple(steps)


def _parse_step(found: re.Match[str]) -> str | int:
    """Return the step that one match of `_STEP` describes."""
    name, index, each, in_double_quotes, in_single_quotes = found.groups()
    if each:
        return EACH
    if index:
        return int(index)
    return name or in_double_quotes or in_single_quotes or ""


def _matches(field: Field) -> Matches:
    """Return the function that compares two values of a field; raise `SettingError` if its settings conflict."""
    if field.match != "numeric_tolerance" and (field.tolerance or field.relative):
        setting = "relative"
        if field.tolerance:
            setting = "tolerance"
        message = f"{field.path}: 'tolerance' requires 'match'"
        raise SettingError(message, setting, hint="set match: numeric_tolerance")
    if field.match != "date" and field.formats:
        raise SettingError(f"{field.path}: 'formats' requires 'match'", "formats", hint="set match: date")
    if field.match == "numeric_tolerance":
        return _within_tolerance(field)
    if field.match == "date":
        return _same_day(field)
    return same


def _within_tolerance(field: Field) -> Matches:
    """Return a function that compares two numbers."""
    tolerance = Decimal(repr(field.tolerance))

    def matches(expected: Any, given: Any) -> bool:
        wanted = parse_number(expected)
        number = parse_number(given)
        if wanted is None or number is None:
            return False
        allowed = tolerance
        if field.relative:
            allowed = tolerance * abs(wanted)
        return abs(wanted - number) <= allowed

    return matches


def _same_day(field: Field) -> Matches:
    """Return a function that compares two dates; raise `SettingError` if a format is invalid."""
    try:
        formats = tuple(map(date_format, field.formats))
    except ValueError as error:
        hint = "for example DD/MM/YYYY, DD-MMM-YYYY or %d.%m.%Y"
        raise SettingError(f"{field.path}: {error}", "formats", hint=hint) from None

    def matches(expected: Any, given: Any) -> bool:
        wanted = parse_date(expected, formats)
        return wanted is not None and wanted == parse_date(given, formats)

    return matches
