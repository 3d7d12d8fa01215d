"""Shared by the checks: compare JSON values, find JSON in an answer, and score several checks."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from msgspec import Meta

from agentv.protocols import EvaluatorSettings
from agentv.records import Score
from agentv.redact import clean
from agentv.text import quote_text, truncate_to_width

Values = str | Annotated[tuple[str, ...], Meta(min_length=1)]
"""One text, or several texts, all or any of which must match."""
Require = Literal["all", "any"]
Verbs = tuple[str, str]
"""A verb for hits and for misses, as in `("contains", "contain")`: contains 'a', does not contain 'b'."""
FENCE = "```"
ANYTHING = "any"
"""An expected value that every value matches."""


class CheckSettings(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the settings of checks, whose hits state what occurred."""

    @classmethod
    def negated_miss(cls, hit: str) -> str:
        return f"{hit}, which must not occur"


def score_point(passed: bool, point: str) -> Score:
    """Return 1 with the point as a hit, or 0 with the point as a miss."""
    if passed:
        return Score(score=1.0, hits=(point,))
    return Score(score=0.0, misses=(point,))


def no_data_score(reason: str) -> Score:
    """Return the score of an answer that lacks the data to be scored."""
    return Score(
        score=0.0,
        misses=(reason,),
        missing_data=True,
    )


def score_checks(
    checks: Iterable[tuple[str, bool]],
    verbs: Verbs,
    *,
    require: Require = "all",
    negate: bool = False,
) -> Score:
    """Return the score of several checks, each of them a value and whether it held."""
    hits: list[str] = []
    misses: list[str] = []
    for value, held in checks:
        point = _point(value, held, verbs)
        is_hit = held != negate
        if is_hit:
            hits.append(point)
        else:
            misses.append(point)
    passed = bool(hits)
    if require == "all":
        passed = not misses
    if passed:
        return Score(score=1.0, hits=tuple(hits))
    return Score(
        score=0.0,
        hits=tuple(hits),
        misses=tuple(misses),
    )


def score_check(
    value: str,
    held: bool,
    verbs: Verbs,
    *,
    negate: bool = False,
) -> Score:
    """Return the score of a single check, as `score_checks` does."""
    point = _point(value, held, verbs)
    return score_point(held is not negate, point)


def _point(value: str, held: bool, verbs: Verbs) -> str:
    third_person, infinitive = verbs
    if held:
        return f"{third_person} {quote_text(value)}"
    return f"does not {infinitive} {quote_text(value)}"


def parse_json(text: str) -> Any:
    """Return the value of a text that is JSON, or has JSON in its only code fence; raise `ValueError` otherwise."""
    try:
        return _decode_json(text)
    except ValueError:
        if text.count(FENCE) != 2:
            raise
    fenced = text.split(FENCE)[1]
    language, _, body = fenced.partition("\n")
    if language.strip().isalnum():
        return _decode_json(body)
    return _decode_json(fenced)


def _decode_json(text: str) -> Any:
    """Return the value of a JSON text; raise `ValueError` with the location of the error if it is invalid."""
    try:
        return _decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise ValueError("it is empty") from None
        message = error.msg[:1].lower() + error.msg[1:]
        raise ValueError(f"{message}, line {error.lineno}, column {error.colno}") from None


def _refuse(constant: str) -> NoReturn:
    """Reject `NaN` and `Infinity`, which Python's decoder accepts by default."""
    raise ValueError(f"{constant} is not valid JSON")


_decode = json.JSONDecoder(parse_constant=_refuse).decode
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: 1 equals 1.0 but not true; white space around texts is ignored."""
    if isinstance(one, str) and isinstance(other, str):
        return one.strip() == other.strip()
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return _same_fields(one, other)
    if _is_list(one) and _is_list(other):
        return _same_items(one, other)
    return same_scalar(one, other)


def _same_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one.keys() != other.keys():
        return False
    return all(same(value, other[key]) for key, value in one.items())


def _same_items(one: Sequence[Any], other: Sequence[Any]) -> bool:
    if len(one) != len(other):
        return False
    return all(map(same, one, other))


Match = Callable[[str, str], bool]
"""Takes a pattern and a text, and returns whether the pattern is found."""


class Rule(NamedTuple):
    """A condition on a text: that it contains `text`, or that the pattern `text` is found in it."""

    kind: Literal["contains", "regex"]
    text: str


def agrees(wanted: Any, given: Any, match: Match) -> bool:
    """Return whether `given` has everything in `wanted`. Objects may have more fields, lists must be of equal length.

    `any` matches every value. `{contains: text}` and `{regex: pattern}`, with no other field, are conditions on a text
    or a number. `match` searches for patterns.
    """
    if wanted == ANYTHING:
        return True
    if isinstance(wanted, Mapping):
        if isinstance(given, str | int | float):
            rule = rule_of(wanted)
            return rule is not None and _follows(rule, given, match)
        return _has_fields(wanted, given, match)
    if _is_list(wanted):
        return _has_items(wanted, given, match)
    return same_scalar(wanted, given)


def _follows(rule: Rule, given: str | float, match: Match) -> bool:
    text = given
    if not isinstance(text, str):
        text = _encode(text)
    if rule.kind == "contains":
        return rule.text in text
    return match(rule.text, text)


def _has_fields(wanted: Mapping[str, Any], given: Any, match: Match) -> bool:
    if not isinstance(given, Mapping):
        return False
    for key, value in wanted.items():
        if key not in given:
            return False
        if not agrees(value, given[key], match):
            return False
    return True


def _has_items(wanted: Sequence[Any], given: Any, match: Match) -> bool:
    if not _is_list(given) or len(wanted) != len(given):
        return False
    pairs = zip(wanted, given, strict=True)
    return all(agrees(one, other, match) for one, other in pairs)


def rule_of(wanted: Any) -> Rule | None:
    """Return the rule that an object with the single field `contains` or `regex` describes; None for other values."""
    if not isinstance(wanted, Mapping) or len(wanted) != 1:
        return None
    ((name, text),) = wanted.items()
    if name in ("contains", "regex") and isinstance(text, str):
        return Rule(name, text)
    return None


def same_scalar(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal, where true is not 1."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def short_json(value: Any, most: int = 80) -> str:
    """Return a value as JSON, truncated to `most` characters. Secrets are masked before they could be cut."""
    if isinstance(value, str) and len(value) > most:
        value = clean(value)[:most]  # encoding a long text only to truncate it would be slow
    text = clean(_encode(value))
    return truncate_to_width(text, most)
