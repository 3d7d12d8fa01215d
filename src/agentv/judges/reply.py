"""The reply of a judge -> a score. Judges are language models and programs, and not all replies can be used."""

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.formats.wire import text_of
from agentv.judges.prompt import with_new_fence
from agentv.protocols import Provider
from agentv.records import ProviderRequest, Score
from agentv.system.cpu_limit import call_with_cpu_limit, can_limit_cpu
from agentv.system.threads import describe_error

T = TypeVar("T")
TRIES = 3
MAX_CHARACTERS = 200_000
MAX_REPAIR_CHARACTERS = 20_000
REPAIR_SECONDS = 1.0
MAX_REPAIR_CHARACTERS_WITHOUT_ALARM = 2_000
"""The limit where nothing can stop the repair, whose time grows faster than the text."""
MAX_POINTS = 4
EXCERPT_CHARACTERS = 200


class BadJudgement(ValueError):
    """The reply of a judge cannot be used as a judgement."""


class JudgeReply(NamedTuple):
    """How a reply was come by that can be used: in how many tries, and whether its JSON had to be repaired."""

    tries: int
    is_repaired: bool


async def ask_judge(
    judge: Provider, request: ProviderRequest, parse: Callable[[str], T], repeat: int = 1
) -> tuple[T, JudgeReply]:
    """Return the judge's reply, parsed; raise `BadJudgement` if no try gives one that can be parsed.

    The judge is asked again if `parse` raises `BadJudgement`, or if its target fails in a way that may pass. If it is
    to judge the same several times, `repeat` tells these apart: attempts count on, so that no cache takes them for one.
    """
    reasons: list[str] = []
    for number in range(1, TRIES + 1):
        attempt = (repeat - 1) * TRIES + number
        try:
            sent = request
            if attempt > 1:
                sent = msgspec.structs.replace(with_new_fence(request), attempt=attempt)
            text = (await judge.invoke(sent)).text
            return parse(text), JudgeReply(number, needs_repair(text))
        except BadJudgement as error:
            reasons.append(str(error))
        except ProviderError as error:
            reasons.append(error.message)
            if not error.may_pass:
                break
    raise BadJudgement(f"the judge gave no judgement in {len(reasons)} of {TRIES} tries: {reasons[-1]}")


def find_object(text: str, field: str) -> dict[str, Any]:
    """Return the JSON object with this field in a model's reply; raise `BadJudgement` if there is not exactly one.

    It may stand alone, in a code fence, or in prose. Single quotes, trailing commas and the like are repaired. A reply
    that is not valid JSON and has the field more than once is refused: it may quote the answer that it judges.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadJudgement(f"the judge said {len(text)} characters, more than {MAX_CHARACTERS}")
    objects, is_valid = _find_objects(text)
    found = [value for value in objects if field in value]
    if not is_valid:
        if len(re.findall(rf"['\"]?\b{field}\b['\"]?\s*:", text)) > 1:
            raise BadJudgement(
                f"what the judge said is no JSON, and speaks of {field!r} more than once: {_excerpt(text)}"
            )
        found = found or [value for value in _repair(text) if field in value]
    if not found:
        raise BadJudgement(f"no JSON object with {field!r} in what the judge said: {_excerpt(text)}")
    if any(value != found[0] for value in found):
        raise BadJudgement(f"the judge gave {len(found)} different judgements: {_excerpt(text)}")
    return found[0]


def needs_repair(text: str) -> bool:
    """Return whether what a judge said is not valid JSON, where it has braces at all."""
    return not _find_objects(text)[1]


def _find_objects(text: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the outermost JSON objects in a text, and whether every brace belongs to one of them."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    is_valid = True
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            found.append(value)
        except (ValueError, RecursionError):
            is_valid = False
            end = text.find("}", at)  # what is inside of it may be a quotation
        at = text.find("{", end) if end >= 0 else -1
    return found, is_valid


def _repair(text: str) -> list[dict[str, Any]]:
    """Return the object in a text that is almost JSON; an empty list if it cannot be repaired."""
    from json_repair import repair_json

    start, end = text.find("{"), text.rfind("}")
    part = text[start : end + 1 if end > start else None]
    if start < 0 or len(part) > (MAX_REPAIR_CHARACTERS if can_limit_cpu() else MAX_REPAIR_CHARACTERS_WITHOUT_ALARM):
        return []
    try:
        repair = partial(repair_json, part, return_objects=True)
        value: Any = call_with_cpu_limit(REPAIR_SECONDS, repair) if can_limit_cpu() else repair()
    except (ValueError, RecursionError, IndexError, TimeoutError):
        return []
    return [value] if isinstance(value, dict) else []


def parse_score(raw: Mapping[str, Any], max_points: int | None = None) -> Score:
    """Return the score that an object describes; raise `BadJudgement` if it has none that is a number.

    At most `max_points` hits and as many misses are kept.
    """
    if "score" not in raw:
        raise BadJudgement(f"no 'score' in {_excerpt(text_of(dict(raw)))}")
    reasoning = raw.get("reasoning")
    return Score(
        score=finite_number(raw["score"]),
        hits=_points(raw.get("hits"))[:max_points],
        misses=_points(raw.get("misses"))[:max_points],
        reasoning="" if reasoning is None else text_of(reasoning),
        details=raw.get("details"),
    )


def parse_reply(text: str) -> Score:
    """Return the score in a model's reply; raise `BadJudgement` if there is none."""
    return parse_score(find_object(text, "score"), MAX_POINTS)


def finite_number(value: Any) -> float:
    """Return `value` as a finite float; raise `BadJudgement` if it is not a number."""
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise BadJudgement(f"the score is {_excerpt(repr(value))}, which is no number between 0 and 1")


def _points(value: Any) -> tuple[str, ...]:
    """Return hits or misses as texts; what is not text becomes JSON."""
    if value is None:
        return ()
    return tuple(map(text_of, value)) if isinstance(value, list | tuple) else (text_of(value),)


def check_score(score: Score) -> Score:
    """Return the score, cut to lie between 0 and 1, with texts that can be written to a file.

    Raise `BadJudgement` if it is no `Score`, or not a number.
    """
    if not isinstance(score, Score):  # a package's code is not checked by us
        raise BadJudgement(f"it returned {type(score).__name__}, and no Score")
    number = finite_number(score.score)
    if score.details is not None or score.verdict is not None or not _is_plain(score):
        score = _make_plain(score, number)
    if 0 <= score.score <= 1:
        return score
    note = f"the score {number} was cut to lie between 0 and 1"
    cut = min(1.0, max(0.0, score.score))
    return msgspec.structs.replace(score, score=cut, misses=(*score.misses, note))


def _is_plain(score: Score) -> bool:
    """Return whether the texts of a score can be written to a file as they are."""
    if type(score.hits) is not tuple or type(score.misses) is not tuple:
        return False
    try:
        text = "".join((*score.hits, *score.misses, score.reasoning))
    except TypeError:  # not all of them are texts
        return False
    return text.isascii() or replace_surrogates(text) == text


def replace_surrogates(text: str) -> str:
    """Return the text with `?` for lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _make_plain(score: Score, number: float) -> Score:
    """Return the score with nothing in it that cannot be written to a file."""
    details = score.details
    try:
        msgspec.json.encode(details, enc_hook=str)
    except (ValueError, TypeError, RecursionError) as error:
        details = f"cannot be written down: {describe_error(error)}"
    return msgspec.structs.replace(
        score,
        score=number,
        hits=tuple(replace_surrogates(text_of(hit)) for hit in score.hits),
        misses=tuple(replace_surrogates(text_of(miss)) for miss in score.misses),
        reasoning=replace_surrogates(text_of(score.reasoning)),
        details=details,
        verdict=score.verdict if score.verdict in ("pass", "borderline", "fail") else None,
    )


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT_CHARACTERS else f"{text[:EXCERPT_CHARACTERS]}…"
