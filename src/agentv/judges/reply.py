"""What a judge said -> a score. Judges are language models and programs, and say all sorts of things."""

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.formats.wire import text_of
from agentv.protocols import Provider
from agentv.records import ProviderRequest, Score
from agentv.system.cpu_limit import call_with_cpu_limit, can_limit_cpu
from agentv.system.threads import describe_error

T = TypeVar("T")
TRIES = 3
MAX_CHARACTERS = 200_000
MOST_MENDED = 20_000
MEND_SECONDS = 1.0
MOST_MENDED_UNBOUNDED = 2_000
"""Where nothing can end the mending: its time grows faster than the text."""
MOST_POINTS = 4
EXCERPT = 200


class BadJudgement(ValueError):
    """A judge said something that is no judgement."""


async def judged(judge: Provider, request: ProviderRequest, read: Callable[[str], T]) -> T:
    """What the judge says to the request, as `read` understands it; asked again if that cannot be understood."""
    reasons: list[str] = []
    for number in range(1, TRIES + 1):
        try:
            asked = request if number == 1 else msgspec.structs.replace(request, attempt=number)
            return read((await judge.invoke(asked)).text)
        except BadJudgement as error:
            reasons.append(str(error))
        except ProviderError as error:
            reasons.append(error.message)
            if not error.may_pass:
                break
    raise BadJudgement(f"the judge gave no judgement in {len(reasons)} of {TRIES} tries: {reasons[-1]}")


def object_in(text: str, field: str) -> dict[str, Any]:
    """The JSON object with this field in what a language model said: alone, in a code fence, or in prose.

    Single quotes, trailing commas and the like are mended. What is not in order, and speaks of the field more than
    once, may be quoting the answer that it judges: it is refused, and so are objects that say different things.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadJudgement(f"the judge said {len(text)} characters, more than {MAX_CHARACTERS}")
    objects, in_order = _objects(text)
    found = [value for value in objects if field in value]
    if not in_order:
        if len(re.findall(rf"['\"]?\b{field}\b['\"]?\s*:", text)) > 1:
            raise BadJudgement(
                f"what the judge said is no JSON, and speaks of {field!r} more than once: {_excerpt(text)}"
            )
        found = found or [value for value in _mended(text) if field in value]
    if not found:
        raise BadJudgement(f"no JSON object with {field!r} in what the judge said: {_excerpt(text)}")
    if any(value != found[0] for value in found):
        raise BadJudgement(f"the judge gave {len(found)} different judgements: {_excerpt(text)}")
    return found[0]


def _objects(text: str) -> tuple[list[dict[str, Any]], bool]:
    """The JSON objects in a text, none of them inside of another, and whether every brace belongs to one."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    in_order = True
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            found.append(value)
        except (ValueError, RecursionError):
            in_order = False
            end = text.find("}", at)  # what is inside of it may be a quotation
        at = text.find("{", end) if end >= 0 else -1
    return found, in_order


def _mended(text: str) -> list[dict[str, Any]]:
    from json_repair import repair_json

    start, end = text.find("{"), text.rfind("}")
    part = text[start : end + 1 if end > start else None]
    if start < 0 or len(part) > (MOST_MENDED if can_limit_cpu() else MOST_MENDED_UNBOUNDED):
        return []
    try:
        mend = partial(repair_json, part, return_objects=True)
        value: Any = call_with_cpu_limit(MEND_SECONDS, mend) if can_limit_cpu() else mend()
    except (ValueError, RecursionError, IndexError, TimeoutError):
        return []
    return [value] if isinstance(value, dict) else []


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
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise BadJudgement(f"the score is {_excerpt(repr(value))}, which is no number between 0 and 1")


def _points(value: Any) -> tuple[str, ...]:
    """Hits or misses: texts, and what else there is as JSON."""
    if value is None:
        return ()
    return tuple(map(text_of, value)) if isinstance(value, list | tuple) else (text_of(value),)


def sound(score: Score) -> Score:
    """The score within 0 and 1; one that is no number at all is a failure."""
    if not isinstance(score, Score):  # a package's code is not checked by us
        raise BadJudgement(f"it returned {type(score).__name__}, and no Score")
    number = number_from(score.score)
    texts = (*score.hits, *score.misses, score.reasoning)
    is_plain = type(score.hits) is tuple and type(score.misses) is tuple and all(_is_plain(text) for text in texts)
    if not is_plain or score.details is not None or score.verdict is not None:
        score = _tidied(score, number)
    if 0 <= score.score <= 1:
        return score
    note = f"the score {number} was cut to lie between 0 and 1"
    cut = min(1.0, max(0.0, score.score))
    return msgspec.structs.replace(score, score=cut, misses=(*score.misses, note))


def _is_plain(text: Any) -> bool:
    """Whether a text can be written down as it is."""
    return isinstance(text, str) and (text.isascii() or writable(text) == text)


def writable(text: str) -> str:
    """The text without halves of characters, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _tidied(score: Score, number: float) -> Score:
    """The score as it can be written down, whatever somebody's code has put into it."""
    details = score.details
    try:
        msgspec.json.encode(details, enc_hook=str)
    except (ValueError, TypeError, RecursionError) as error:
        details = f"cannot be written down: {describe_error(error)}"
    return msgspec.structs.replace(
        score,
        score=number,
        hits=tuple(writable(text_of(hit)) for hit in score.hits),
        misses=tuple(writable(text_of(miss)) for miss in score.misses),
        reasoning=writable(text_of(score.reasoning)),
        details=details,
        verdict=score.verdict if score.verdict in ("pass", "borderline", "fail") else None,
    )


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"
