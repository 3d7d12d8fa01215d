"""What a judge said -> a score. Judges are language models and programs, and say all sorts of things."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from agentv.errors import ProviderError
from agentv.protocols import Provider
from agentv.records import ProviderRequest, Score
from agentv.wire import text_of

T = TypeVar("T")
TRIES = 3
MAX_CHARACTERS = 1_000_000
MOST_POINTS = 4
EXCERPT = 200


class BadJudgement(ValueError):
    """A judge said something that is no judgement."""


async def judged(judge: Provider, request: ProviderRequest, read: Callable[[str], T]) -> T:
    """What the judge says to the request, as `read` understands it; asked again if that cannot be understood."""
    reasons: list[str] = []
    for _ in range(TRIES):
        try:
            return read((await judge.invoke(request)).text)
        except BadJudgement as error:
            reasons.append(str(error))
        except ProviderError as error:
            reasons.append(error.message)
            if not error.may_pass:
                break
    raise BadJudgement(f"the judge gave no judgement in {len(reasons)} of {TRIES} tries: {reasons[-1]}")


def object_in(text: str, field: str) -> dict[str, Any]:
    """The JSON object with this field in what a language model said: alone, in a code fence, or in prose.

    Single quotes, trailing commas and the like are mended. Two objects that say different things are none.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadJudgement(f"the judge said {len(text)} characters, more than {MAX_CHARACTERS}")
    found = [value for value in _objects(text) if field in value] or [v for v in _mended(text) if field in v]
    if not found:
        raise BadJudgement(f"no JSON object with {field!r} in what the judge said: {_excerpt(text)}")
    if any(value != found[0] for value in found):
        raise BadJudgement(f"the judge gave {len(found)} different judgements: {_excerpt(text)}")
    return found[0]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text that are in order, each with what is inside of it."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if isinstance(value, dict):
                yield value
        at = text.find("{", end)


def _mended(text: str) -> list[dict[str, Any]]:
    from json_repair import repair_json

    start, end = text.find("{"), text.rfind("}")
    if start < 0:
        return []
    try:
        value: Any = repair_json(text[start : end + 1 if end > start else None], return_objects=True)
    except (ValueError, RecursionError, IndexError):
        return []
    return [entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, dict)]


def score_from(raw: Mapping[str, Any], most: int | None = None) -> Score:
    """The score that an object describes, with at most so many hits and misses."""
    if "score" not in raw:
        raise BadJudgement(f"no 'score' in {_excerpt(text_of(dict(raw)))}")
    reasoning = raw.get("reasoning")
    return Score(
        score=number_from(raw["score"]),
        hits=_points(raw.get("hits"))[:most],
        misses=_points(raw.get("misses"))[:most],
        reasoning="" if reasoning is None else text_of(reasoning),
        details=raw.get("details"),
    )


def number_from(value: Any) -> float:
    """A score as a number; what is none is no judgement."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadJudgement(f"the score is {_excerpt(repr(value))}, which is no number between 0 and 1")
    return float(value)


def _points(value: Any) -> tuple[str, ...]:
    """Hits or misses: texts, and what else there is as JSON."""
    if value is None:
        return ()
    return tuple(map(text_of, value)) if isinstance(value, list | tuple) else (text_of(value),)


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"
