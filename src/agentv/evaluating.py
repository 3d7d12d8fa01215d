"""The evaluators that a case asks for -> instances of them, and their scores of an answer."""

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.digests import digest
from agentv.errors import AgentvError, ConfigError
from agentv.evaluators import evaluator_type
from agentv.protocols import Evaluator
from agentv.records import EvalCase, EvaluatorResult, Exchange, Json, Score
from agentv.scoring import verdict_of
from agentv.shapes import converted, label

MOST_KEPT = 256
JUDGED = ("llm_judge", "rubric")
"""The kinds that ask a language model."""


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What every evaluator has."""

    type: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)] | None = None
    weight: Annotated[float, Meta(ge=0)] = 1.0


class Judge(msgspec.Struct, frozen=True):
    """An evaluator at work: its name, its weight, and what does the work."""

    name: str
    kind: str
    weight: float
    evaluator: Evaluator

    async def result(self, exchange: Exchange) -> EvaluatorResult:
        """Its score; one that breaks scores 0 and says why."""
        try:
            score = _sound(await self.evaluator.evaluate(exchange))
        except Exception as error:
            reason = str(error) if isinstance(error, AgentvError) else f"{type(error).__name__}: {error}"
            score = Score(score=0.0, misses=(f"the evaluator failed: {reason}",), failed=True)
        return EvaluatorResult(
            name=self.name,
            type=self.kind,
            score=score.score,
            weight=self.weight,
            verdict=verdict_of(score.score),
            hits=score.hits,
            misses=score.misses,
            reasoning=score.reasoning or None,
            details=score.details,
            evaluator_provider_request=score.evaluator_provider_request,
            failed=score.failed,
        )


class Judges(msgspec.Struct, frozen=True):
    """All the evaluators of a case."""

    judges: tuple[Judge, ...]
    digest: str

    async def results(self, exchange: Exchange) -> tuple[EvaluatorResult, ...]:
        """What each makes of the exchange; they work side by side."""
        if len(self.judges) == 1:
            return (await self.judges[0].result(exchange),)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(judge.result(exchange)) for judge in self.judges]
        return tuple(task.result() for task in tasks)


class Unjudged:
    """Stands for a language model's judgement in a dry run, which asks nobody."""

    async def evaluate(self, _exchange: Exchange) -> Score:
        return Score(score=0.0, misses=("dry run: no judge was asked",))


class JudgeBench:
    """Makes the evaluators of cases; those that are set up alike share one set."""

    def __init__(self, *, dry_run: bool = False):
        self._dry_run = dry_run
        self._made: dict[bytes, Judges] = {}
        self._failed: dict[bytes, ConfigError] = {}
        self._last: tuple[object, Judges] | None = None

    def judges(self, case: EvalCase) -> Judges:
        """The evaluators of a case. What is wrong with their settings is a `ConfigError`."""
        asked = case.execution.evaluators
        plain = bool(asked) and not case.rubrics
        if plain and self._last is not None and self._last[0] is asked:  # most cases share their file's
            return self._last[1]
        configs = _configs(case)
        key = msgspec.json.encode(configs)
        if key in self._failed:
            raise self._failed[key]  # once for all the cases that share it
        if key not in self._made:
            try:
                made = [self._judge(config, number, case) for number, config in enumerate(configs)]
            except ConfigError as error:
                self._failed[key] = error
                raise
            if len(self._made) >= MOST_KEPT:  # cases may each have evaluators of their own
                self._made.clear()
            self._made[key] = Judges(tuple(made), digest(configs))
        if plain:
            self._last = asked, self._made[key]
        return self._made[key]

    def _judge(self, config: Json, number: int, case: EvalCase) -> Judge:
        heading = converted(config, Heading)
        if isinstance(heading, list):
            raise _wrong(heading[0], number, case)
        if self._dry_run and heading.type in JUDGED:
            evaluator: Any = Unjudged()
        else:
            try:
                kind = evaluator_type(heading.type)
            except ConfigError as error:
                unasked = "" if case.evaluators or case.rubrics else ", which is meant when no evaluators are set up"
                hint = f"set up 'evaluators:', or use --dry-run; {error.hint}" if heading.type in JUDGED else error.hint
                message = f"case {case.id!r}: {error.message}{unasked}"
                raise ConfigError(message, file=case.file.path, line=case.line, hint=hint) from None
            settings = {name: value for name, value in config.items() if name not in ("type", "name", "weight")}
            evaluator = converted(settings, kind)
            if isinstance(evaluator, list):
                raise _wrong(evaluator[0], number, case)
        return Judge(heading.name or heading.type, heading.type, heading.weight, evaluator)


def _configs(case: EvalCase) -> Sequence[Json]:
    configs = list(case.evaluators)
    if case.rubrics:
        configs.append({"type": "rubric", "rubrics": case.rubrics})
    return configs or [{"type": case.evaluator}]


def _wrong(misfit: Any, number: int, case: EvalCase) -> ConfigError:
    where = label(("evaluators", number, *misfit.steps))
    message = f"case {case.id!r}: {where}: {misfit.message}"
    return ConfigError(message, file=case.file.path, line=case.line, hint=misfit.hint)


def _sound(score: Score) -> Score:
    """The score within 0 and 1; one that is no number at all is a failure."""
    if not math.isfinite(score.score):
        raise ValueError(f"the score {score.score} is no number between 0 and 1")
    if 0 <= score.score <= 1:
        return score
    note = f"the score {score.score} was cut to lie between 0 and 1"
    cut = min(1.0, max(0.0, score.score))
    return msgspec.structs.replace(score, score=cut, misses=(*score.misses, note))
