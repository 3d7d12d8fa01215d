"""Parses the replies of judges into scores. Judges are language models and programs, and not all replies are usable."""

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
from agentv.processes.command import shorten
from agentv.protocols import Provider
from agentv.records import Json, ProviderRequest, Score
from agentv.system.cpu_limit import call_with_cpu_limit, can_limit_cpu
from agentv.system.threads import describe_error

T = TypeVar("T")
TRIES = 3
MAX_CHARACTERS = 200_000
MAX_REPAIR_CHARACTERS = 20_000
REPAIR_SECONDS = 1.0
MAX_REPAIR_CHARACTERS_WITHOUT_ALARM = 2_000
"""The limit where a repair cannot be interrupted. Its time grows faster than the length of the text."""
MAX_POINTS = 4
EXCERPT_CHARACTERS = 200


class BadJudgement(ValueError):
    """The reply of a judge is not a usable judgement."""


def failed_score(reason: str) -> Score:
    """Return the score of an answer that could not be judged."""
    return Score(
        score=0.0,
        misses=(reason,),
        failed=True,
    )


class JudgeReply(NamedTuple):
    """How a usable reply was obtained: in how many tries, and whether its JSON had to be repaired."""

    tries: int
    is_repaired: bool


async def ask_judge(
    judge: Provider,
    request: ProviderRequest,
    parse: Callable[[str], T],
    repeat: int = 1,
) -> tuple[T, JudgeReply]:
    """Call a judge and return its parsed reply; raise `BadJudgement` if no try gives a reply that can be parsed.

    Retry if `parse` raises `BadJudgement` or if the call fails with a transient error. If the same answer is judged
    several times, `repeat` is the number of the judgement: it offsets the attempts, so that the cache keeps them apart.
    """
    reasons: list[str] = []
    for number in range(1, TRIES + 1):
        attempt = (repeat - 1) * TRIES + number
        sent = request
        if attempt > 1:
            sent = with_new_fence(request)
            sent = msgspec.structs.replace(sent, attempt=attempt)
        try:
            response = await judge.invoke(sent)
            parsed = parse(response.text)
        except BadJudgement as error:
            reasons.append(str(error))
        except ProviderError as error:
            reasons.append(error.message)
            if not error.may_pass:
                break
        else:
            return parsed, JudgeReply(number, needs_repair(response.text))
    raise BadJudgement(f"the judge gave no judgement in {len(reasons)} of {TRIES} tries: {reasons[-1]}")


def find_object(text: str, field: str) -> Json:
    """Return the JSON object with this field in a model's reply; raise `BadJudgement` if there is not exactly one.

    The object may be the whole reply, or be in a code fence or in prose. Single quotes, trailing commas and the like
    are repaired. A reply that is not valid JSON and has the field more than once is rejected: it may quote the answer
    that it judges.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadJudgement(f"the judge said {len(text)} characters, more than {MAX_CHARACTERS}")
    objects, is_valid = _find_objects(text)
    found = [value for value in objects if field in value]
    if not is_valid:
        mentions = re.findall(rf"['\"]?\b{field}\b['\"]?\s*:", text)
        if len(mentions) > 1:
            raise BadJudgement(
                f"what the judge said is no JSON, and speaks of {field!r} more than once: {_excerpt(text)}"
            )
        if not found:
            found = [value for value in _repair(text) if field in value]
    if not found:
        raise BadJudgement(f"no JSON object with {field!r} in what the judge said: {_excerpt(text)}")
    first = found[0]
    if any(value != first for value in found):
        raise BadJudgement(f"the judge gave {len(found)} different judgements: {_excerpt(text)}")
    return first


def needs_repair(text: str) -> bool:
    """Return whether a reply contains braces that are not part of valid JSON."""
    _, is_valid = _find_objects(text)
    return not is_valid


def _find_objects(text: str) -> tuple[list[Json], bool]:
    """Return the outermost JSON objects in a text, and whether every brace belongs to one of them."""
    decoder = json.JSONDecoder()
    found: list[Json] = []
    is_valid = True
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            is_valid = False
            # Skip what is inside: it may be a quotation.
            end = text.find("}", start)
            if end < 0:
                break
        else:
            found.append(value)
        start = text.find("{", end)
    return found, is_valid


def _repair(text: str) -> list[Json]:
    """Return the object in a text that is almost JSON; an empty list if it cannot be repaired."""
    from json_repair import repair_json

    start = text.find("{")
    if start < 0:
        return []
    part = text[start:]
    end = text.rfind("}")
    if end > start:
        part = text[start : end + 1]
    repair = partial(repair_json, part, return_objects=True)
    value: Any = None
    try:
        if can_limit_cpu():
            if len(part) <= MAX_REPAIR_CHARACTERS:
                value = call_with_cpu_limit(REPAIR_SECONDS, repair)
        elif len(part) <= MAX_REPAIR_CHARACTERS_WITHOUT_ALARM:
            value = repair()
    except (ValueError, RecursionError, IndexError, TimeoutError):
        return []
    if isinstance(value, dict):
        return [value]
    return []


def parse_score(raw: Mapping[str, Any], max_points: int | None = None) -> Score:
    """Return the score that an object describes; raise `BadJudgement` if its `score` is missing or not a number.

    Keep at most `max_points` hits and as many misses.
    """
    if "score" not in raw:
        raise BadJudgement(f"no 'score' in {_excerpt(text_of(dict(raw)))}")
    number = finite_number(raw["score"])
    hits = _points(raw.get("hits"))
    misses = _points(raw.get("misses"))
    reasoning = raw.get("reasoning")
    if reasoning is None:
        reasoning = ""
    return Score(
        score=number,
        hits=hits[:max_points],
        misses=misses[:max_points],
        reasoning=text_of(reasoning),
        details=raw.get("details"),
    )


def parse_reply(text: str) -> Score:
    """Return the score in a model's reply; raise `BadJudgement` if there is none."""
    return parse_score(find_object(text, "score"), MAX_POINTS)


def finite_number(value: Any) -> float:
    """Return `value` as a finite float; raise `BadJudgement` if it is not a number."""
    if type(value) is float and math.isfinite(value):  # nearly always, once per score
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
    """Return hits or misses as texts; values that are not text are converted to JSON."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(map(text_of, value))
    return (text_of(value),)


def check_score(score: Score) -> Score:
    """Return the score, clamped to the range from 0 to 1, with texts that can be encoded as UTF-8.

    Raise `BadJudgement` if it is not a `Score`, or if its score is not a number.
    """
    if not isinstance(score, Score):  # evaluators of other packages may return anything
        raise BadJudgement(f"it returned {type(score).__name__}, and no Score")
    number = finite_number(score.score)
    if score.details is not None or score.verdict is not None or not _is_encodable(score):
        score = _make_encodable(score, number)
    if 0 <= score.score <= 1:
        return score
    note = f"the score {number} was cut to lie between 0 and 1"
    return msgspec.structs.replace(
        score,
        score=min(1.0, max(0.0, score.score)),
        misses=(*score.misses, note),
    )


def _is_encodable(score: Score) -> bool:
    """Return whether the texts of a score can be written to a file unchanged."""
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


def _make_encodable(score: Score, number: float) -> Score:
    """Return the score with everything replaced that cannot be written to a file."""
    details = score.details
    try:
        msgspec.json.encode(details, enc_hook=str)
    except (ValueError, TypeError, RecursionError) as error:
        details = f"cannot be written down: {describe_error(error)}"
    verdict = score.verdict
    if verdict not in ("pass", "borderline", "fail"):
        verdict = None
    return msgspec.structs.replace(
        score,
        score=number,
        hits=tuple(_encodable_text(hit) for hit in score.hits),
        misses=tuple(_encodable_text(miss) for miss in score.misses),
        reasoning=_encodable_text(score.reasoning),
        details=details,
        verdict=verdict,
    )


def _encodable_text(value: Any) -> str:
    return replace_surrogates(text_of(value))


def _excerpt(text: str) -> str:
    return shorten(text, EXCERPT_CHARACTERS)
