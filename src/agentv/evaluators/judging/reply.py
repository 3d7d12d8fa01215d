"""Parses the replies of judges into scores. Judges are language models and programs, and not all replies are usable."""

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from agentv.errors import ProviderError
from agentv.evaluators.judging.prompt import with_new_fence
from agentv.files.encode import to_json
from agentv.files.wire import text_of
from agentv.processes.cpu_limit import call_with_cpu_limit, can_limit_cpu
from agentv.processes.threads import describe_error
from agentv.protocols import Provider
from agentv.records import Json, ProviderRequest, ProviderResponse, Score, Verdict
from agentv.redact import clean
from agentv.results.messages import SHORTENED, are_shortened
from agentv.text import has_surrogates, replace_surrogates, truncate

T = TypeVar("T")
TRIES = 3
MAX_CHARACTERS = 200_000
MAX_REPAIR_CHARACTERS = 20_000
REPAIR_SECONDS = 1.0
MAX_REPAIR_CHARACTERS_WITHOUT_ALARM = 2_000
"""The limit where a repair cannot be interrupted. Its time grows faster than the length of the text."""
MAX_POINTS = 4
EXCERPT_CHARACTERS = 200


ROUNDING = 1e-9
"""How far a rounding error may put a score outside the range from 0 to 1."""


class BadJudgement(ValueError):
    """The reply of a judge is not a usable judgement."""


class OffScale(BadJudgement):
    """The score of a judge is outside the range from 0 to 1."""

    def __init__(self, value: float, message: str = ""):
        super().__init__(message or f"the score is {value:.12g}, which is not between 0 and 1")
        self.value = value


class JudgeCallFailed(BadJudgement):
    """A judge could not be called."""


def require_whole_messages(response: ProviderResponse) -> None:
    """Raise `BadJudgement` if the messages come from a results file that has shortened them."""
    if response.output_messages is not None and are_shortened(response.output_messages):
        raise BadJudgement(SHORTENED)


def failed_score(reason: str, off_scale: float | None = None) -> Score:
    """Return the score of an answer that could not be judged, for example because of a score that is off the scale."""
    return Score(
        score=0.0,
        misses=(reason,),
        failed=True,
        off_scale=off_scale,
    )


NOT_APPLICABLE = Score(score=0.0, applicable=False)


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
    last: BadJudgement | ProviderError | None = None
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
            last = error
        except ProviderError as error:
            last = error
            if not error.may_pass:
                break
        else:
            return parsed, JudgeReply(number, needs_repair(response.text))
    raise _unusable(last, number)


def _unusable(last: BadJudgement | ProviderError | None, tries: int) -> BadJudgement:
    """Return the error to raise when a judge gave no judgement in this many attempts."""
    message = f"the judge returned no usable judgement in {tries} of {TRIES} attempts: {last}"
    if isinstance(last, OffScale):
        return OffScale(last.value, message)
    if isinstance(last, ProviderError):
        return JudgeCallFailed(message)
    return BadJudgement(message)


def find_object(text: str, field: str) -> Json:
    """Return the JSON object with this field in a model's reply; raise `BadJudgement` if there is not exactly one.

    The object may be the whole reply, or be in a code fence or in prose. Single quotes, trailing commas and the like
    are repaired. A reply that is not valid JSON and has the field more than once is rejected: it may quote the answer
    that it judges.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadJudgement(f"the judge's reply has {len(text)} characters, more than the limit of {MAX_CHARACTERS}")
    objects, is_valid = _find_objects(text)
    found = [value for value in objects if field in value]
    if not is_valid:
        mentions = re.findall(rf"['\"]?\b{field}\b['\"]?\s*:", text)
        if len(mentions) > 1:
            raise BadJudgement(
                f"the judge's reply is not valid JSON and contains {field!r} more than once: {_excerpt(text)}"
            )
        if not found:
            found = [value for value in _repair(text) if field in value]
    if not found:
        raise BadJudgement(f"the judge's reply contains no JSON object with {field!r}: {_excerpt(text)}")
    first = found[0]
    if any(value != first for value in found):
        raise BadJudgement(f"the judge's reply contains {len(found)} different judgements: {_excerpt(text)}")
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
            # Skip its content, which may be a quotation.
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


def parse_score(raw: Mapping[str, Any]) -> Score:
    """Return the score that a program or a function describes, with the verdict that it gives.

    A score of None means that the evaluator does not apply to the case. Raise `BadJudgement` if the score is missing or
    is not a number from 0 to 1, or if the verdict is not one.
    """
    if raw.get("score", "") is None:
        return msgspec.structs.replace(_describe(raw, 0.0), applicable=False)
    score = _parse(raw)
    verdict = raw.get("verdict")
    if verdict is None:
        return score
    return msgspec.structs.replace(score, verdict=check_verdict(verdict))


def _parse(raw: Mapping[str, Any], max_points: int | None = None) -> Score:
    if "score" not in raw:
        raise BadJudgement(f"no 'score' in {_excerpt(text_of(dict(raw)))}")
    number = score_number(raw["score"])
    return _describe(raw, number, max_points)


def _describe(raw: Mapping[str, Any], number: float, max_points: int | None = None) -> Score:
    """Return a score with at most `max_points` hits and as many misses."""
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
    return _parse(find_object(text, "score"), MAX_POINTS)


def _written(value: Any) -> str:
    """Return a value that is not a score, as a script or a model wrote it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return repr(value)


def score_number(value: Any) -> float:
    """Return a score as a float from 0 to 1.

    Raise `OffScale` if it is outside, and `BadJudgement` if it is not a number.
    """
    if type(value) is float and 0 <= value <= 1:  # nearly always, once per score
        return value
    value = plain_value(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadJudgement(f"the score is {_excerpt(_written(value))}, which is not a number")
    number = _as_float(value)
    if not math.isfinite(number):
        raise BadJudgement(f"the score is {_excerpt(repr(value))}, which is not between 0 and 1")
    if not -ROUNDING <= number <= 1 + ROUNDING:
        raise OffScale(number)
    return min(1.0, max(0.0, number))


def plain_value(value: Any) -> Any:
    """Return a numpy scalar as the Python value that it holds, and anything else unchanged."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def check_verdict(value: Any) -> Verdict:
    """Return a verdict that an evaluator gives itself; raise `BadJudgement` if it is not one."""
    if value not in get_args(Verdict):
        raise BadJudgement(f"the verdict is {_excerpt(repr(value))}, which is not 'pass', 'borderline' or 'fail'")
    verdict: Verdict = value
    return verdict


def _points(value: Any) -> tuple[str, ...]:
    """Return hits or misses as texts; values that are not text are converted to JSON."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(map(text_of, value))
    return (text_of(value),)


def check_score(score: Score) -> Score:
    """Return the score of an evaluator, with texts that can be encoded as UTF-8.

    Raise `BadJudgement` if it is not a `Score`, if its score is not a number from 0 to 1, or if its verdict is not one.
    """
    if not isinstance(score, Score):  # evaluators of other packages may return anything
        raise BadJudgement(f"the evaluator returned {type(score).__name__} instead of a Score")
    number = 0.0
    if score.applicable:
        number = score_number(score.score)
    if score.verdict is not None:
        check_verdict(score.verdict)
    # nearly always, nothing has to be replaced; `score_number` returns a valid float unchanged
    has_same_number = number is score.score
    if score.details is not None or not has_same_number or not _is_encodable(score):
        return _make_encodable(score, number)
    return score


def _is_encodable(score: Score) -> bool:
    """Return whether the texts of a score can be written to a file unchanged."""
    if type(score.hits) is not tuple or type(score.misses) is not tuple:
        return False
    try:
        text = "".join((*score.hits, *score.misses, score.reasoning))
    except TypeError:  # not all of them are texts
        return False
    return not has_surrogates(text)


def _make_encodable(score: Score, number: float) -> Score:
    """Return the score with everything replaced that cannot be written to a file."""
    details = score.details
    try:
        to_json(details)
    except (ValueError, TypeError, RecursionError) as error:
        details = f"cannot be written as JSON: {describe_error(error)}"
    return msgspec.structs.replace(
        score,
        score=number,
        hits=tuple(_encodable_text(hit) for hit in score.hits),
        misses=tuple(_encodable_text(miss) for miss in score.misses),
        reasoning=_encodable_text(score.reasoning),
        details=details,
    )


def _encodable_text(value: Any) -> str:
    return replace_surrogates(text_of(value))


def _excerpt(text: str) -> str:
    return truncate(clean(text), EXCERPT_CHARACTERS)
