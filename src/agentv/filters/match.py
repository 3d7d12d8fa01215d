"""Match filters with cases and results."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, NamedTuple, Self

from agentv.files.wire import text_of
from agentv.filters.keys import KEYS, On
from agentv.filters.parse import Operator, Term, number_of, parse_terms
from agentv.records import EvalCase

EQUAL_WITHIN = 0.005
"""How close a score must be to equal another, such as `score:0.33`."""
NO_MATCH = "matching is case-sensitive; a field that is absent matches nothing"
"""The hint if a filter selects nothing."""
_WILDCARDS = frozenset("*?")
Row = Any
"""A `CaseRow`, an `EvalResult`, or a view of a result with the fields that the filter reads."""
Test = Callable[[Any], bool]
_Read = Callable[[Row], Iterable[Any]]
"""Return the values of a row, one of which must match."""
_Compare = Callable[[float, float], bool]
_COMPARE: Mapping[Operator, _Compare] = {
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


class CaseRow(NamedTuple):
    """What filters read of a case."""

    eval_id: str
    dataset: str
    target: str
    """The target that answers the case."""
    tags: Sequence[str]
    vars: Mapping[str, Any] | None
    metadata: Mapping[str, Any] | None

    @classmethod
    def of(cls, case: EvalCase, target: str) -> Self:
        return cls(
            eval_id=case.id,
            dataset=case.dataset,
            target=target,
            tags=case.tags,
            vars=case.vars,
            metadata=case.metadata,
        )


class Filter:
    """A list of terms that must all hold. Several filters are combined into one that has all of their terms."""

    def __init__(self, terms: Sequence[Term]):
        self.terms = tuple(terms)
        self._tests = [_matcher(term) for term in terms]

    @classmethod
    def parse(cls, texts: Iterable[str], on: On) -> Self:
        """Return the filter that these texts describe together. Raise `ConfigError` if one is invalid."""
        terms: list[Term] = []
        for text in texts:
            parsed = parse_terms(text, on)
            terms.extend(parsed)
        return cls(terms)

    def __bool__(self) -> bool:
        """Return whether there are any terms."""
        return bool(self.terms)

    def __str__(self) -> str:
        return " ".join(map(str, self.terms))

    def __reduce__(self) -> tuple[Any, ...]:
        return Filter, (self.terms,)

    def split(self) -> "tuple[Filter, Filter]":
        """Return the terms about cases, and those that only results have."""
        about_cases = []
        others = []
        for term in self.terms:
            key = KEYS[term.key]
            if key.on == "cases":
                about_cases.append(term)
            else:
                others.append(term)
        return Filter(about_cases), Filter(others)

    def matches(self, row: Row) -> bool:
        """Return whether all terms hold for a row."""
        return all(test(row) for test in self._tests)


def _matcher(term: Term) -> Test:
    """Return a test for rows. A term about an absent field does not hold, and its negation does."""
    read = _reader(term)
    test = _value_test(term)
    is_negated = term.is_negated

    def holds(row: Row) -> bool:
        values = read(row)
        is_found = any(map(test, values))
        return is_found != is_negated

    return holds


# ---- values ----


def _value_test(term: Term) -> Test:
    """Return a test for one of the values that a term is about."""
    number = number_of(term.value)
    compare = _COMPARE.get(term.operator)
    kind = KEYS[term.key].values
    if compare is not None:
        assert number is not None
        return _comparison(compare, number)
    if kind == "any":
        return _any_test(term.value, number)
    is_of_evaluator = term.name != ""  # the value is a score if it is a number, otherwise a verdict
    if number is not None and (kind == "number" or is_of_evaluator):
        tolerance = 0.0
        if term.key in ("score", "evaluator"):
            tolerance = EQUAL_WITHIN
        return _equality(number, tolerance)
    if kind == "choice" or is_of_evaluator:
        return _text_test(term.value)
    return _glob_test(term.value)


def _comparison(compare: _Compare, number: float) -> Test:
    def holds(value: Any) -> bool:
        found = _as_number(value)
        if found is None:
            return False
        return compare(found, number)

    return holds


def _equality(number: float, tolerance: float) -> Test:
    def is_equal(value: Any) -> bool:
        found = _as_number(value)
        if found is None:
            return False
        return abs(found - number) <= tolerance

    return is_equal


def _any_test(pattern: str, number: float | None) -> Test:
    """Return a test for a value of any type. Numbers are compared as numbers: `3.0` matches 3."""
    matches_text = _glob_test(pattern)

    def has_text(value: Any) -> bool:
        text = _as_text(value)
        return matches_text(text)

    if number is None:
        return has_text

    def has_number_or_text(value: Any) -> bool:
        if isinstance(value, str):
            return matches_text(value)
        if _as_number(value) == number:
            return True
        return has_text(value)

    return has_number_or_text


def _text_test(wanted: str) -> Test:
    return lambda text: text == wanted


def _glob_test(pattern: str) -> Test:
    """Return a test for texts. `*` matches any text and `?` any character; a text always matches itself."""
    if _WILDCARDS.isdisjoint(pattern):
        return _text_test(pattern)
    regex = re.escape(pattern)
    regex = regex.replace(r"\*", ".*")
    regex = regex.replace(r"\?", ".")
    compiled = re.compile(regex, re.DOTALL)

    def is_match(text: str) -> bool:
        if text == pattern:
            return True
        return compiled.fullmatch(text) is not None

    return is_match


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, str):  # a column of a CSV file
        return number_of(value)
    return None


def _as_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        whole = int(value)
        return str(whole)  # as JavaScript writes it
    return text_of(value)


# ---- fields ----


def _reader(term: Term) -> _Read:
    """Return the function that reads the values for a term."""
    if term.key == "metadata":
        return lambda row: _values_at(row.metadata, term.name)
    if term.key == "vars":
        return lambda row: _values_at(row.vars, term.name)
    if term.key == "evaluator" and term.name:
        if number_of(term.value) is None:
            return lambda row: _evaluator_verdicts(row, term.name)
        return lambda row: _evaluator_scores(row, term.name)
    return _READERS[term.key]


def _values_at(mapping: Mapping[str, Any] | None, name: str) -> Sequence[Any]:
    """Return the values of a key, or of a path such as `customer.country`; a list has several."""
    if mapping is None:
        return ()
    if name in mapping:
        return _flatten(mapping[name])
    value: Any = mapping
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return ()
        value = value[part]
    return _flatten(value)


def _flatten(value: Any) -> Sequence[Any]:
    """Return a value, or the items of a list, without those that are null."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        return (value,)
    found: list[Any] = []
    for item in value:
        values = _flatten(item)
        found.extend(values)
    return found


def _evaluator_scores(row: Row, name: str) -> Iterator[float]:
    for part in row.evaluator_results or ():
        if part.name == name and part.score is not None:
            yield part.score


def _evaluator_verdicts(row: Row, name: str) -> Iterator[str]:
    for part in row.evaluator_results or ():
        if part.name == name and part.score is not None:
            yield part.verdict
            if part.failed:
                yield "error"


def _verdicts(row: Row) -> Iterator[str]:
    yield row.verdict
    if row.error is not None:
        yield "error"


def _unless_empty(name: str) -> list[str]:
    """Return a name that results of other tools may lack."""
    if not name:
        return []
    return [name]


def _has_error(row: Row) -> list[str]:
    has_error = row.error is not None
    return _yes_or_no(has_error)


def _has_note(row: Row) -> list[str]:
    is_truncated = row.stop_reason == "length"
    return _yes_or_no(row.note or is_truncated)


def _yes_or_no(value: object) -> list[str]:
    if value:
        return ["yes"]
    return ["no"]


def _tags(row: Row) -> Iterable[str]:
    return row.tags or ()


def _names_of_evaluators(row: Row) -> Iterator[str]:
    for part in row.evaluator_results or ():
        yield part.name


def _duration(row: Row) -> Iterator[float]:
    metrics = row.execution_metrics
    if metrics is not None and metrics.duration_ms is not None:
        yield metrics.duration_ms


def _cost(row: Row) -> Iterator[float]:
    metrics = row.execution_metrics
    if metrics is not None and metrics.cost_usd is not None:
        yield metrics.cost_usd


def _score(row: Row) -> Iterator[float]:
    if row.failure != "machine":  # nothing was scored
        yield row.score


_READERS: Mapping[str, _Read] = {
    "id": lambda row: [row.eval_id],
    "tag": _tags,
    "dataset": lambda row: _unless_empty(row.dataset),
    "target": lambda row: _unless_empty(row.target),
    "verdict": _verdicts,
    "score": _score,
    "evaluator": _names_of_evaluators,
    "error": _has_error,
    "note": _has_note,
    "duration": _duration,
    "cost": _cost,
}
"""How to read each field. An absent one has no values."""
