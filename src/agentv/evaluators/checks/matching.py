"""What evaluators share when they compare: equal values, JSON in an answer, and the score of several checks."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from agentv.records import Score

Require = Literal["all", "any"]
FENCE = "```"


def score_checks(
    checks: Iterable[tuple[str, bool]], verbs: tuple[str, str], *, require: Require = "all", negate: bool = False
) -> Score:
    """Return the score of checks that hold or not; `verbs` are for the texts, as in `("contains", "contain")`."""
    hits: list[str] = []
    misses: list[str] = []
    for value, held in checks:
        (hits if held is not negate else misses).append(_point(value, held, verbs))
    passed = not misses if require == "all" else bool(hits)
    return Score(score=1.0 if passed else 0.0, hits=tuple(hits), misses=() if passed else tuple(misses))


def score_check(value: str, held: bool, verbs: tuple[str, str], *, negate: bool = False) -> Score:
    """Return the score of a single check, as `score_checks` does."""
    point = (_point(value, held, verbs),)
    return Score(score=1.0, hits=point) if held is not negate else Score(score=0.0, misses=point)


def _point(value: str, held: bool, verbs: tuple[str, str]) -> str:
    return f"{verbs[0]} {value!r}" if held else f"does not {verbs[1]} {value!r}"


def parse_json(text: str) -> Any:
    """Return the value of a text that is JSON, or has JSON in its only code fence; raise `ValueError` if it is not."""
    try:
        return _decode_json(text)
    except ValueError:
        if text.count(FENCE) != 2:
            raise
    inside = text.split(FENCE)[1]
    language, _, body = inside.partition("\n")
    return _decode_json(body if language.strip().isalnum() else inside)


def _decode_json(text: str) -> Any:
    try:
        return _decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise ValueError("it is empty") from None
        raise ValueError(f"{error.msg[:1].lower()}{error.msg[1:]}, line {error.lineno}, column {error.colno}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_decode = json.JSONDecoder(parse_constant=_refuse).decode
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: 1 is 1.0 but not true, and white space around a text is ignored."""
    if isinstance(one, str) and isinstance(other, str):
        return one.strip() == other.strip()
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if _is_list(one) and _is_list(other):
        return len(one) == len(other) and all(map(same, one, other))
    return same_scalar(one, other)


Match = Callable[[str, str], bool]
"""Takes a pattern and a text, and tells whether the pattern is found."""


def agrees(wanted: Any, given: Any, match: Match) -> bool:
    """Return whether `given` has all that is wanted: an object may have more fields, a list no more items.

    `{contains: text}` and `{regex: pattern}`, alone, are wanted of a text or a number; `match` finds patterns.
    """
    if isinstance(wanted, Mapping):
        if isinstance(given, str | int | float) and (rule := matcher(wanted)):
            text = given if isinstance(given, str) else _encode(given)
            return rule[1] in text if rule[0] == "contains" else match(rule[1], text)
        return isinstance(given, Mapping) and all(
            key in given and agrees(value, given[key], match) for key, value in wanted.items()
        )
    if _is_list(wanted):
        items = zip(wanted, given, strict=True) if _is_list(given) and len(wanted) == len(given) else None
        return items is not None and all(agrees(one, other, match) for one, other in items)
    return same_scalar(wanted, given)


def matcher(wanted: Any) -> tuple[str, str] | None:
    """Return `contains` or `regex` and its text, if that is all that an object has."""
    if not isinstance(wanted, Mapping) or len(wanted) != 1:
        return None
    ((name, text),) = wanted.items()
    return (name, text) if name in ("contains", "regex") and isinstance(text, str) else None


def same_scalar(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal, where true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def shorten(value: Any, most: int = 80) -> str:
    """Return a value as JSON, cut to `most` characters."""
    if isinstance(value, str) and len(value) > most:
        value = value[:most]
    text = _encode(value)
    return text if len(text) <= most else text[: most - 1] + "…"
