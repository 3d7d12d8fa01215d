"""The judges of one evaluator: a request -> one score, whoever is asked and however often.

Each judge of the panel is asked `repeats` times. Judgements become one score by their mean; what each of them was is
in `details`, where the health of the judges is read from.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.formats.yaml import Steps
from agentv.judges.deferral import settle
from agentv.judges.prompt import prompts_of, with_new_fence
from agentv.judges.reply import BadJudgement, JudgeReply, ask_judge
from agentv.protocols import EvaluatorContext, JudgeTarget
from agentv.records import ProviderRequest, Score, Verdict
from agentv.scoring import verdict_of

MAX_REPEATS = 100
Name = Annotated[str, Meta(min_length=1)]
JudgeNames = Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
"""One target that judges, or several."""
Repeats = Annotated[int, Meta(ge=1, le=MAX_REPEATS)]
Parse = Callable[[str], Score]


class Judgement(NamedTuple):
    """What one judge said when it was asked once."""

    judge: str
    score: Score
    reply: JudgeReply | None = None
    """How its reply was come by; None if there is none that can be used."""

    @property
    def is_usable(self) -> bool:
        return self.reply is not None

    @property
    def verdict(self) -> Verdict:
        return self.score.verdict or verdict_of(self.score.score)


class JudgePanel:
    """The judges that an evaluator asks, and how often it asks each of them."""

    def __init__(self, judges: Sequence[JudgeTarget], repeats: int = 1):
        self.judges, self.repeats = judges, repeats

    async def judge(self, request: ProviderRequest, parse: Parse) -> Score:
        """Return what the judges make of an answer; a score that has failed if none of them gave a judgement."""
        if len(self.judges) == self.repeats == 1:
            judgements = [await _ask(self.judges[0], request, parse, 1)]
        else:
            requests = [request, *(with_new_fence(request) for _ in self.judges[1:])]
            judgements = await settle(
                _ask(judge, sent, parse, number)
                for judge, sent in zip(self.judges, requests, strict=True)
                for number in range(1, self.repeats + 1)
            )
        score = _combine(judgements, has_panel=len(self.judges) > 1, has_repeats=self.repeats > 1)
        return msgspec.structs.replace(score, evaluator_provider_request=prompts_of(request))


def open_panel(
    names: JudgeNames | None, repeats: int, context: EvaluatorContext, at: Steps = ("judge_target",)
) -> JudgePanel:
    """Return the panel of these judges; raise `SettingError` if one is named twice. `at` are the steps to the names."""
    if names is None or isinstance(names, str):
        return JudgePanel((context.judge(names),), repeats)
    for index, name in enumerate(names):
        if name in names[:index]:
            hint = "to ask one judge several times, use judge_repeats"
            raise SettingError(f"judge_target: {name!r} stands twice", *at, index, hint=hint)
    return JudgePanel(tuple(context.judge(name) for name in names), repeats)


async def _ask(judge: JudgeTarget, request: ProviderRequest, parse: Parse, number: int) -> Judgement:
    try:
        score, reply = await ask_judge(judge, request, parse, number)
    except BadJudgement as error:
        return Judgement(judge.name, Score(score=0.0, misses=(str(error),), failed=True))
    return Judgement(judge.name, score, reply)


def _combine(judgements: Sequence[Judgement], *, has_panel: bool, has_repeats: bool) -> Score:
    """Return the mean of the judgements that can be used, in the words of the one that is nearest to it."""
    usable = [judgement for judgement in judgements if judgement.is_usable]
    more = dict(_details(judgements, has_panel=has_panel, has_repeats=has_repeats))
    if not usable:
        return msgspec.structs.replace(judgements[0].score, details=more or None)
    mean = usable[0].score.score
    if len(usable) > 1:
        mean = _mean(_mean(map(_score_of, group)) for group in _by_judge(usable).values())
    nearest = min(usable, key=lambda judgement: abs(judgement.score.score - mean)).score
    fails = sum(judgement.score.verdict == "fail" for judgement in usable)
    own = nearest.details
    if more:
        details = {**own, **more} if isinstance(own, dict) else more if own is None else {"own": own, **more}
    else:
        details = own
    return msgspec.structs.replace(
        nearest, score=mean, verdict="fail" if 2 * fails > len(usable) else None, details=details
    )


def _details(judgements: Sequence[Judgement], *, has_panel: bool, has_repeats: bool) -> Iterator[tuple[str, Any]]:
    """Yield what is to be known of single judgements; nothing if there is one, and it came at once."""
    if has_panel:
        groups = _by_judge(judgements)
        yield "judges", [_judge_details(name, group, has_repeats) for name, group in groups.items()]
    elif has_repeats:
        yield "repeats", [_score_of(judgement) for judgement in judgements]
    counts = {
        "unparsable": sum(not judgement.is_usable for judgement in judgements),
        "repaired": sum(judgement.reply is not None and judgement.reply.is_repaired for judgement in judgements),
        "asked_again": sum(judgement.reply is not None and judgement.reply.tries > 1 for judgement in judgements),
    }
    if any(counts.values()):
        yield "judging", {name: count for name, count in counts.items() if count}


def _judge_details(name: str, judgements: Sequence[Judgement], has_repeats: bool) -> dict[str, Any]:
    usable = [judgement for judgement in judgements if judgement.is_usable]
    found: dict[str, Any] = {"judge": name}
    if not usable:
        return {**found, "error": judgements[0].score.misses[0]}
    mean = _mean(map(_score_of, usable))
    nearest = min(usable, key=lambda judgement: abs(judgement.score.score - mean))
    verdict = nearest.verdict if len(usable) == 1 else verdict_of(mean)
    found |= {"score": mean, "verdict": verdict, "reasoning": nearest.score.reasoning}
    return {**found, "repeats": [_score_of(judgement) for judgement in judgements]} if has_repeats else found


def _by_judge(judgements: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    groups: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        groups.setdefault(judgement.judge, []).append(judgement)
    return groups


def _score_of(judgement: Judgement) -> float | None:
    """Return the score of a judgement, cut to lie between 0 and 1; None if it cannot be used."""
    return min(1.0, max(0.0, judgement.score.score)) if judgement.is_usable else None


def _mean(values: Any) -> float:
    numbers = [*values]
    return round(math.fsum(numbers) / len(numbers), 12)
