"""The evaluators that a case asks for -> instances of them, and their scores of an answer.

They are built while a run is planned, to find what is wrong and who is needed to judge, and again when it starts.
"""

import asyncio
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import AgentvError, ConfigError
from agentv.evaluators import evaluator_type
from agentv.formats.conversion import Misfit, converted, field_names, label
from agentv.formats.fingerprint import digest
from agentv.judges.reply import BadJudgement, sound, writable
from agentv.judges.target import JudgeSource, NeededJudges
from agentv.notices import warn
from agentv.protocols import Evaluator, JudgeTarget
from agentv.providers.settings import target_digest
from agentv.records import EvalCase, EvaluatorResult, Exchange, Json, Problem, Score
from agentv.scoring import verdict_of
from agentv.system.entry_points import open_settings
from agentv.system.threads import describe_error

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
            score = sound(await self.evaluator.evaluate(exchange))
        except Exception as error:
            reason = str(error) if isinstance(error, AgentvError | BadJudgement) else describe_error(error)
            score = Score(score=0.0, misses=(writable(f"the evaluator failed: {reason}"),), failed=True)
        return EvaluatorResult(
            name=self.name,
            type=self.kind,
            score=score.score,
            weight=self.weight,
            verdict=score.verdict or verdict_of(score.score),
            hits=score.hits,
            misses=score.misses,
            reasoning=score.reasoning or None,
            details=score.details,
            evaluator_provider_request=score.evaluator_provider_request,
            failed=score.failed,
        )


class WrongEvaluators(ConfigError):
    """Everything that is wrong with the evaluators of a case; the first stands for all."""

    def __init__(self, errors: Sequence[ConfigError]):
        first = errors[0]
        super().__init__(first.message, file=first.file, line=first.line, hint=first.hint)
        self.errors = [inner for error in errors for inner in getattr(error, "errors", [error])]


class Judges:
    """All the evaluators of a case."""

    def __init__(self, judges: Sequence[Judge], configs: Sequence[Json], behind: "_Behind"):
        self.judges, self._configs, self._behind = judges, configs, behind
        self._side_by_side = sum(getattr(judge.evaluator, "waits", True) for judge in judges) > 1
        """Whether there is anything to gain by that."""

    @cached_property
    def digests(self) -> dict[str, str]:
        """The part of `Digests` that tells how answers are scored; known once the lines to judges are connected."""
        settings = [target_digest(judge.settings) for judge in self._behind.judges if judge.settings is not None]
        judges = digest(settings) if settings else ""
        prompts = digest(self._behind.prints) if self._behind.prints else ""
        return {"evaluators": digest(self._configs, judges, prompts), "judges": judges, "prompts": prompts}

    async def results(self, exchange: Exchange) -> tuple[EvaluatorResult, ...]:
        """What each makes of the exchange; they work side by side, if more than one waits for something."""
        if not self._side_by_side:
            return tuple([await judge.result(exchange) for judge in self.judges])
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(judge.result(exchange)) for judge in self.judges]
        return tuple(task.result() for task in tasks)


class _Behind(NamedTuple):
    """What evaluators rest on besides their settings: what their prompts and scripts say, and whom they ask."""

    prints: list[Any]
    judges: list[JudgeTarget]


class Unjudged:
    """Stands for a language model's judgement in a dry run, which asks nobody."""

    async def evaluate(self, _exchange: Exchange) -> Score:
        return Score(score=0.0, misses=("dry run: no judge was asked",))


class EvaluatorBuilder:
    """Makes the evaluators of cases; those that are set up alike share one set."""

    def __init__(self, judges: JudgeSource | None = None, *, dry_run: bool = False, only_check: bool = False):
        self.judge_source = judges or NeededJudges()
        self._dry_run, self._only_check = dry_run, only_check
        self._made: dict[tuple[bytes, Path, str], Judges] = {}
        self._failed: dict[tuple[bytes, Path, str], ConfigError] = {}
        self._last: tuple[object, object, str, Judges] | None = None
        self._warned: set[Problem] = set()

    def judges(self, case: EvalCase, target: str) -> Judges:
        """The evaluators of a case. What is wrong with their settings is a `ConfigError`."""
        asked = case.execution.evaluators
        plain = bool(asked) and not case.rubrics
        last = self._last
        if plain and last is not None and last[0] is asked and last[1] is case.file and last[2] == target:
            return last[3]  # most cases share their file's
        configs = _configs(case)
        key = msgspec.json.encode(configs), case.file.path, target
        if key in self._failed:
            raise self._failed[key]  # once for all the cases that share it
        if key not in self._made:
            try:
                made = self._make(configs, case, target)
            except ConfigError as error:
                self._failed[key] = error
                raise
            if len(self._made) >= MOST_KEPT:  # cases may each have evaluators of their own
                self._made.clear()
            self._made[key] = made
        if plain:
            self._last = asked, case.file, target, self._made[key]
        return self._made[key]

    def problems(self, case: EvalCase, target: str) -> list[Problem]:
        """Everything that is wrong with the evaluators of a case."""
        try:
            self.judges(case, target)
        except ConfigError as error:
            return [Problem.of(inner) for inner in getattr(error, "errors", [error])]
        return []

    def _make(self, configs: Sequence[Json], case: EvalCase, target: str) -> Judges:
        judges: list[Judge] = []
        errors: list[ConfigError] = []
        behind = _Behind([], [])
        for number, config in enumerate(configs):
            try:
                judges.append(_EvaluatorContext(self, case, target, _steps(case, number), behind).make(config))
            except ConfigError as error:
                errors.append(error)
        if errors:
            raise WrongEvaluators(errors)
        return Judges(tuple(judges), configs, behind)

    def made(self, heading: Heading, config: Json, context: "_EvaluatorContext") -> Evaluator:
        """The evaluator that its settings ask for."""
        kind = evaluator_type(heading.type)
        settings = _passed_on({name: value for name, value in config.items() if name not in HEADING}, kind)
        found: Any = converted(settings, kind)
        if isinstance(found, list):
            raise context.misfitting(found)
        if self._dry_run and heading.type in JUDGED:
            found.open(context)  # what is wrong with it is told all the same
            return Unjudged()
        if self._only_check and getattr(kind, "imports_code", False):
            return found  # type: ignore[no-any-return]
        return open_settings(found, context, "evaluate")  # type: ignore[no-any-return]

    def warn_once(self, problem: Problem) -> None:
        if problem not in self._warned:
            self._warned.add(problem)
            warn(problem)


HEADING = ("type", "name", "weight")


class _EvaluatorContext:
    """What the evaluators of one case find when they get ready; `steps` is where in the case they stand."""

    def __init__(
        self, builder: EvaluatorBuilder, case: EvalCase, target: str, steps: tuple[str | int, ...], behind: _Behind
    ):
        self._builder, self._case, self._target, self._steps, self._behind = builder, case, target, steps, behind
        self.folder = Path(case.file.path).parent.absolute()
        self._inside = 0

    def judge(self, name: str | None) -> JudgeTarget:
        judge = self._builder.judge_source.judge(self._case, self._target, name)
        self._behind.judges.append(judge)
        return judge

    def warn(self, message: str, hint: str = "") -> None:
        text = f"{label(self._steps)}: {message}"
        file, line = self._case.file.path, self._case.line
        self._builder.warn_once(Problem(message=text, severity="warning", file=file, line=line, hint=hint))

    def evaluator(self, config: Json) -> Judge:
        """An evaluator inside of the one that gets ready here."""
        number, self._inside = self._inside, self._inside + 1
        steps = (*self._steps, "evaluators", number)
        return _EvaluatorContext(self._builder, self._case, self._target, steps, self._behind).make(config)

    def make(self, config: Json) -> Judge:
        """The evaluator that stands here; what is wrong with it is told with its place."""
        heading = converted(config, Heading)
        if isinstance(heading, list):
            raise self.misfitting(heading)
        try:
            evaluator = self._builder.made(heading, config, self)
        except ConfigError as error:
            raise error if error.file else self._error(f"{label(self._steps)}: {error.message}", error.hint) from None
        if said := getattr(evaluator, "fingerprint", None):
            self._behind.prints.append(said)
        return Judge(heading.name or heading.type, heading.type, heading.weight, evaluator)

    def misfitting(self, misfits: Sequence[Misfit]) -> ConfigError:
        """The error for settings that do not fit."""
        return WrongEvaluators(
            [
                self._error(f"{label((*self._steps, *misfit.steps))}: {misfit.message}", misfit.hint)
                for misfit in misfits
            ]
        )

    def _error(self, message: str, hint: str) -> ConfigError:
        case = self._case
        return ConfigError(f"case {case.id!r}: {message}", file=case.file.path, line=case.line, hint=hint)


def _steps(case: EvalCase, number: int) -> tuple[str | int, ...]:
    """Where an evaluator of a case is set up."""
    if number < len(case.evaluators):
        return "evaluators", number
    return ("rubrics",) if case.rubrics else ("evaluator",)


def _passed_on(settings: Json, kind: Any) -> Json:
    """The settings, with those that the kind does not know under the name by which it passes them on."""
    rest = getattr(kind, "passes_on", None)
    if rest is None:
        return settings
    known = {name: value for name, value in settings.items() if name in field_names(kind)}
    unknown = {name: value for name, value in settings.items() if name not in known}
    own = known.get(rest) or {}
    return {**known, rest: {**own, **unknown}} if unknown and isinstance(own, dict) else known


def _configs(case: EvalCase) -> Sequence[Json]:
    configs = list(case.evaluators)
    if case.rubrics:
        configs.append({"type": "rubric", "rubrics": case.rubrics})
    return configs or [{"type": case.evaluator}]
