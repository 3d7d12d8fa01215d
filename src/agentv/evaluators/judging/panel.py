"""The judges of one evaluator: send a request to each of them and combine their judgements into one score.

Each judge of the panel is called `repeats` times. The score is the mean of the judgements. Each single judgement is
recorded in `details`, from which judge health is computed.
"""

import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.evaluators.concurrent import run_together
from agentv.evaluators.judging.prompt import prompts_of, with_new_fence
from agentv.evaluators.judging.reply import BadJudgement, JudgeCallFailed, JudgeReply, OffScale, ask_judge, failed_score
from agentv.files.yaml import Steps
from agentv.protocols import EvaluatorContext, JudgeTarget
from agentv.records import Json, ProviderRequest, Score, Verdict
from agentv.scoring import verdict_of

MAX_REPEATS = 100
Name = Annotated[str, Meta(min_length=1)]
JudgeNames = Name | Annotated[tuple[Name, ...], Meta(min_length=1)]
"""The name of one judge target, or of several."""
Repeats = Annotated[int, Meta(ge=1, le=MAX_REPEATS)]
Parse = Callable[[str], Score]
ScoresByJudge = Sequence[Sequence[Score]]
"""The usable judgements of each judge."""
Decide = Callable[[ScoresByJudge], Verdict | None]
"""Returns the explicit verdict of judges; None if their score decides."""


def no_verdict(_scores: ScoresByJudge) -> None:
    """Let the score decide."""


class Judgement(NamedTuple):
    """The outcome of calling one judge once."""

    judge: str
    score: Score
    reply: JudgeReply | None = None
    """How the reply was obtained; None if no reply was usable."""
    has_reply: bool = True
    """False if the judge could not be called."""

    @property
    def is_usable(self) -> bool:
        return self.reply is not None

    @property
    def verdict(self) -> Verdict:
        return self.score.verdict or verdict_of(self.score.score)


Judgements = Sequence[Judgement]
JudgeCall = Coroutine[Any, Any, Judgement]


@dataclass(frozen=True)
class JudgePanel:
    """The judges of an evaluator, and how many times each of them is called."""

    judges: Sequence[JudgeTarget]
    repeats: int = 1

    async def judge(
        self,
        request: ProviderRequest,
        parse: Parse,
        decide: Decide = no_verdict,
    ) -> Score:
        """Return the combined score of the judges; a failed score if no judge gave a usable judgement.

        `decide` gives the combined verdict, and that of each judge.
        """
        if len(self.judges) == 1 and self.repeats == 1:
            judgement = await _ask(self.judges[0], request, parse)
            judgements = [judgement]
        else:
            judgements = await run_together(self._calls(request, parse))
        score = self._combine(judgements, decide)
        return msgspec.structs.replace(score, evaluator_provider_request=prompts_of(request))

    def _calls(self, request: ProviderRequest, parse: Parse) -> Iterator[JudgeCall]:
        """Yield one call per judge and repeat. Each judge gets a fence of its own."""
        for index, judge in enumerate(self.judges):
            sent = request
            if index > 0:
                sent = with_new_fence(request)
            for repeat in range(1, self.repeats + 1):
                yield _ask(judge, sent, parse, repeat)

    def _combine(self, judgements: Judgements, decide: Decide) -> Score:
        """Return the mean of the usable judgements, with the texts of the judgement that is closest to it."""
        usable = _usable(judgements)
        details = self._details(judgements, decide)
        if not usable:
            failure = judgements[0].score
            return msgspec.structs.replace(failure, details=details or None)
        mean = _mean_of_judges(usable)
        verdict = decide(_scores_by_judge(usable))
        # The texts should explain the verdict.
        agreeing = [judgement for judgement in usable if judgement.score.verdict == verdict]
        closest = _closest(agreeing or usable, mean).score
        return msgspec.structs.replace(
            closest,
            score=mean,
            verdict=verdict,
            details=_merge_details(closest.details, details),
        )

    def _details(self, judgements: Judgements, decide: Decide) -> Json:
        """Return the single judgements and how many replies had problems; empty for one clean judgement."""
        details: Json = {}
        if len(self.judges) > 1:
            details["judges"] = self._details_by_judge(judgements, decide)
        elif self.repeats > 1:
            details["repeats"] = _scores(judgements)
        counts = _trouble_counts(judgements)
        if counts:
            details["judging"] = counts
        return details

    def _details_by_judge(self, judgements: Judgements, decide: Decide) -> list[Json]:
        listed = []
        for name, group in _by_judge(judgements).items():
            details = _judge_details(name, group, decide)
            if self.repeats > 1 and "error" not in details:
                details["repeats"] = _scores(group)
            listed.append(details)
        return listed


def open_panel(
    names: JudgeNames | None,
    repeats: int,
    context: EvaluatorContext,
    at: Steps = ("judge_target",),
) -> JudgePanel:
    """Return the panel of these judges; without names, the panel of the default judge.

    `at` are the steps to the setting. Raise `SettingError` if a judge is listed twice.
    """
    if names is None or isinstance(names, str):
        return JudgePanel((context.judge(names),), repeats)
    for index, name in enumerate(names):
        if name in names[:index]:
            hint = "to call the same judge several times, use judge_repeats"
            raise SettingError(f"judge_target lists {name!r} twice", *at, index, hint=hint)
    judges = tuple(context.judge(name) for name in names)
    return JudgePanel(judges, repeats)


async def _ask(
    judge: JudgeTarget,
    request: ProviderRequest,
    parse: Parse,
    repeat: int = 1,
) -> Judgement:
    """Call a judge and return its judgement. Without a usable reply, the judgement is marked as failed."""
    try:
        score, reply = await ask_judge(judge, request, parse, repeat)
    except BadJudgement as error:
        off_scale = None
        if isinstance(error, OffScale):
            off_scale = error.value
        failure = failed_score(str(error), off_scale)
        return Judgement(judge.name, failure, has_reply=not isinstance(error, JudgeCallFailed))
    return Judgement(judge.name, score, reply)


def _mean_of_judges(usable: Judgements) -> float:
    """Return the mean score. Each judge has the same weight, however many of its replies were usable."""
    if len(usable) == 1:
        return usable[0].score.score
    groups = _by_judge(usable)
    return _mean(_mean_score(group) for group in groups.values())


def _scores_by_judge(usable: Judgements) -> ScoresByJudge:
    groups = _by_judge(usable).values()
    return [[judgement.score for judgement in group] for group in groups]


def _merge_details(own: Any, panel: Json) -> Any:
    """Return the details of a judgement together with those of the panel."""
    if not panel:
        return own
    if own is None:
        return panel
    if isinstance(own, dict):
        return {**own, **panel}
    return {"own": own, **panel}


def _trouble_counts(judgements: Judgements) -> dict[str, int]:
    """Return how many replies were unusable, repaired, or needed a retry; kinds that did not occur are omitted."""
    call_failed = 0
    off_scale = 0
    unparsable = 0
    repaired = 0
    asked_again = 0
    for judgement in judgements:
        if not judgement.has_reply:
            call_failed += 1
            continue
        if judgement.score.off_scale is not None:
            off_scale += 1
            continue
        if judgement.reply is None:
            unparsable += 1
            continue
        if judgement.reply.is_repaired:
            repaired += 1
        if judgement.reply.tries > 1:
            asked_again += 1
    counts = {
        "call_failed": call_failed,
        "off_scale": off_scale,
        "unparsable": unparsable,
        "repaired": repaired,
        "asked_again": asked_again,
    }
    return {kind: count for kind, count in counts.items() if count}


def _judge_details(name: str, judgements: Judgements, decide: Decide) -> Json:
    """Return the judgement of one judge of a panel for the results file."""
    usable = _usable(judgements)
    if not usable:
        failure = judgements[0].score
        return {"judge": name, "error": failure.misses[0]}
    mean = _mean_score(usable)
    closest = _closest(usable, mean)
    return {
        "judge": name,
        "score": mean,
        "verdict": decide(_scores_by_judge(usable)) or verdict_of(mean),
        "reasoning": closest.score.reasoning,
    }


def _usable(judgements: Judgements) -> list[Judgement]:
    return [judgement for judgement in judgements if judgement.is_usable]


def _by_judge(judgements: Judgements) -> dict[str, list[Judgement]]:
    groups: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        group = groups.setdefault(judgement.judge, [])
        group.append(judgement)
    return groups


def _closest(judgements: Judgements, mean: float) -> Judgement:
    """Return the first judgement whose score is closest to the mean."""

    def distance(judgement: Judgement) -> float:
        return abs(judgement.score.score - mean)

    return min(judgements, key=distance)


def _scores(judgements: Judgements) -> list[float | None]:
    """Return the score of each judgement; None where it is unusable."""
    scores: list[float | None] = []
    for judgement in judgements:
        if judgement.is_usable:
            scores.append(judgement.score.score)
        else:
            scores.append(None)
    return scores


def _mean_score(judgements: Judgements) -> float:
    return _mean(judgement.score.score for judgement in judgements)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    mean = math.fsum(numbers) / len(numbers)
    return round(mean, 12)  # the mean of 0.7, 0.8 and 0.9 is 0.8, not slightly less
