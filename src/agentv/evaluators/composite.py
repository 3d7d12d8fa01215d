"""Combines several evaluators: a weighted mean, a script or a language model aggregates their scores."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.evaluators.concurrent import run_together
from agentv.evaluators.judging.panel import JudgeNames, JudgePanel, Repeats, open_panel
from agentv.evaluators.judging.program import CommandLine, Program
from agentv.evaluators.judging.prompt import DATA, indented_json, read_prompt
from agentv.evaluators.judging.reply import NOT_APPLICABLE, BadJudgement, parse_reply, parse_score
from agentv.evaluators.judging.request import template_request
from agentv.files.yaml import Steps
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, NamedEvaluator
from agentv.providers.settings import Text
from agentv.records import EvaluatorResult, Exchange, Json, Score, Weight
from agentv.scoring import has_explicit_fail, state_of, weighted_mean

TIMEOUT_SECONDS = 60.0
SYSTEM = f"""You bring together what several evaluators found of an AI agent's answer. {DATA}
Reply with one JSON object and nothing else:
{{"reasoning": one or two sentences, written before the score is decided,
"hits": [up to four short points that were met], "misses": [up to four short points that were not],
"score": a number from 0 (worthless) to 1 (perfect), which follows from them}}"""
PROMPT = """What was asked:
{{ question }}

The answer:
{{ candidate_answer }}

What the evaluators found:
{{ results }}
"""
RESULTS = ("results", "EVALUATOR_RESULTS_JSON")
"""The variables of a prompt that hold the results of the nested evaluators."""
SCHEMA: Json = {
    "type": "object",
    "properties": {"score": {"type": "number"}},
    "required": ["score"],
}


class WeightedAverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="weighted_average"):
    """The weighted mean; `weights` maps names of evaluators to weights and overrides their own."""

    weights: dict[str, Weight] = {}
    """Weights by evaluator name."""


class ByScript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="code_judge"):
    """A script reads the results and writes a score."""

    path: CommandLine
    """The command to run."""
    cwd: Text | None = None
    """The working directory, relative to the eval file's folder."""
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS
    """Time limit of the script."""


class ByModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="llm_judge"):
    """A language model gets the results, as `{{ results }}` in its prompt, and returns a score."""

    prompt: str | None = None
    """The prompt, or the path of a file that contains it."""
    judge_target: JudgeNames | None = None
    """The judge, or a list of judges. Defaults to the target's judge."""
    judge_repeats: Repeats = 1
    """How many times each judge is called per answer."""


class All(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="all"):
    """1 if every member passes, else 0."""


class Lowest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="min"):
    """The lowest score of the members."""


AggregatorSettings = WeightedAverage | All | Lowest | ByScript | ByModel
Results = tuple[EvaluatorResult, ...]


class Composite(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nested evaluators, and how their scores are combined."""

    templates: ClassVar[tuple[Steps, ...]] = (("evaluators",), ("aggregator", "prompt"))

    evaluators: Annotated[tuple[Json, ...], Meta(min_length=1)]
    """The nested evaluators."""
    aggregator: AggregatorSettings = WeightedAverage()
    """How their scores are combined."""

    def open(self, context: EvaluatorContext) -> Evaluator:
        inner = tuple(context.evaluator(config) for config in self.evaluators)
        names = [evaluator.name for evaluator in inner]
        for name in names:
            if names.count(name) > 1:
                hint = "give each evaluator a unique name"
                raise SettingError(f"duplicate evaluator name {name!r}", "evaluators", hint=hint)
        aggregator = _open_aggregator(self.aggregator, names, context)
        return _Composite(inner, aggregator)


class _Aggregator(Protocol):
    """Combines the results of several evaluators into one score."""

    def weigh(self, results: Sequence[EvaluatorResult]) -> Results:
        """Return the results with the weights that they have in this composite."""
        return tuple(results)

    async def aggregate(self, exchange: Exchange, results: Results) -> Score:
        """Return the combined score of results that all apply to the case."""
        ...

    def fingerprint(self) -> Any:
        return None


@dataclass(frozen=True)
class _Composite(Evaluator):
    """Runs the nested evaluators in parallel and aggregates their results."""

    inner: tuple[NamedEvaluator, ...]
    aggregator: _Aggregator

    @property
    def panel(self) -> JudgePanel | None:
        """The judges of the aggregator, if it is a language model."""
        return getattr(self.aggregator, "panel", None)

    def fingerprint(self) -> Any:
        return self.aggregator.fingerprint()

    async def evaluate(self, exchange: Exchange) -> Score:
        inner_results = await run_together(evaluator.result(exchange) for evaluator in self.inner)
        results = self.aggregator.weigh(inner_results)
        applicable = tuple(result for result in results if result.applicable)
        if not applicable:
            return msgspec.structs.replace(NOT_APPLICABLE, details={"results": results, "own": None})
        counted = [result for result in applicable if result.counts]
        failed = [result for result in counted if result.failed]
        if failed:
            score = _failed_score(failed, applicable)
        else:
            score = await self.aggregator.aggregate(exchange, applicable)
        score = msgspec.structs.replace(
            score,
            details={"results": results, "own": score.details},
            missing_data=any(result.missing_data for result in counted),
        )
        if has_explicit_fail(counted):
            score = msgspec.structs.replace(score, verdict="fail")
        return score


def _open_aggregator(
    settings: AggregatorSettings,
    names: Sequence[str],
    context: EvaluatorContext,
) -> _Aggregator:
    """Return the aggregator for the evaluators with these names; raise `SettingError` for invalid settings."""
    match settings:
        case WeightedAverage():
            return _open_mean(settings, names)
        case All():
            return _AllAggregator()
        case Lowest():
            return _LowestAggregator()
        case ByScript():
            return _open_script(settings, context)
        case ByModel():
            return _open_model(settings, context)


def _open_mean(settings: WeightedAverage, names: Sequence[str]) -> _Aggregator:
    for name in settings.weights:
        if name not in names:
            raise SettingError(
                f"aggregator.weights: no evaluator is named {name!r}",
                "aggregator",
                "weights",
                name,
                hint=f"available evaluators: {', '.join(names)}",
            )
    return _MeanAggregator(settings.weights)


def _open_script(settings: ByScript, context: EvaluatorContext) -> _Aggregator:
    command = settings.path
    # A single path of a Python file runs with the interpreter that runs agentv.
    if isinstance(command, str) and command.endswith(".py") and " " not in command:
        command = (sys.executable, command)
    cwd = context.folder / (settings.cwd or ".")
    program = Program(command, cwd, ("aggregator", "path"))
    return _ScriptAggregator(program, settings.timeout_seconds)


def _open_model(settings: ByModel, context: EvaluatorContext) -> _Aggregator:
    template = PROMPT
    if settings.prompt is not None:
        template = read_prompt(
            settings.prompt,
            context,
            extra=RESULTS,
            at=("aggregator", "prompt"),
        )
    panel = open_panel(
        settings.judge_target,
        settings.judge_repeats,
        context,
        at=("aggregator", "judge_target"),
    )
    return _ModelAggregator(template, panel)


@dataclass(frozen=True)
class _MeanAggregator(_Aggregator):
    """Computes the weighted mean of the scores."""

    weights: dict[str, float]

    def weigh(self, results: Sequence[EvaluatorResult]) -> Results:
        weighed = []
        for result in results:
            weight = self.weights.get(result.name, result.weight)
            weighed.append(msgspec.structs.replace(result, weight=weight))
        return tuple(weighed)

    async def aggregate(self, exchange: Exchange, results: Results) -> Score:
        return _joined_score(weighted_mean(results), results)


@dataclass(frozen=True)
class _AllAggregator(_Aggregator):
    """Scores 1 if every member with a weight passes."""

    async def aggregate(self, exchange: Exchange, results: Results) -> Score:
        counted = [result for result in results if result.counts]
        if not counted:
            return _joined_score(None, results)
        failing = [result for result in counted if result.verdict != "pass"]
        score = _joined_score(float(not failing), results)
        unexplained = [result for result in failing if not result.misses]
        reasons = tuple(f"[{result.name}] {state_of(result)}: 'all' needs 'pass'" for result in unexplained)
        return msgspec.structs.replace(score, misses=score.misses + reasons)


@dataclass(frozen=True)
class _LowestAggregator(_Aggregator):
    """Takes the lowest score of the members with a weight."""

    async def aggregate(self, exchange: Exchange, results: Results) -> Score:
        scores = [result.score for result in results if result.counts and result.score is not None]
        return _joined_score(min(scores, default=None), results)


def _failed_score(failed: Sequence[EvaluatorResult], results: Results) -> Score:
    """Return the score of a composite with members that could not judge. Their misses come first."""
    others = [result for result in results if not (result.counts and result.failed)]
    score = _joined_score(0.0, (*failed, *others))
    return msgspec.structs.replace(
        score,
        failed=True,
        off_scale=failed[0].off_scale,
    )


def _joined_score(score: float | None, results: Results) -> Score:
    """Return a score with the points of all results, each with the name of its evaluator.

    A score of None means that no member with a weight applies: the answer is not judged.
    """
    hits: list[str] = []
    misses: list[str] = []
    scores: list[str] = []
    for result in results:
        name = result.name
        hits.extend(f"[{name}] {hit}" for hit in result.hits)
        misses.extend(f"[{name}] {miss}" for miss in result.misses)
        scores.append(f"{name}: {result.score:.2f}")
    if score is None:
        misses.append("not judged: every member that applies to this case has weight 0")
    return Score(
        score=score or 0.0,
        hits=tuple(hits),
        misses=tuple(misses),
        reasoning="; ".join(scores),
        failed=score is None,
    )


def _by_name(results: Results) -> Json:
    """Return the results as a mapping from names of evaluators, for a script or a prompt."""
    plain = {}
    for result in results:
        plain[result.name] = {
            "score": result.score,
            "verdict": result.verdict,
            "hits": result.hits,
            "misses": result.misses,
            "reasoning": result.reasoning or "",
        }
    return plain


@dataclass(frozen=True)
class _ScriptAggregator(_Aggregator):
    """Runs the user's script, with the results on stdin."""

    program: Program
    seconds: float

    def fingerprint(self) -> list[str]:
        return self.program.fingerprint

    async def aggregate(self, exchange: Exchange, results: Results) -> Score:
        payload = {"results": _by_name(results)}
        try:
            async with asyncio.timeout(self.seconds):
                written = await self.program.run(payload, {})
                return parse_score(written)
        except TimeoutError:
            raise BadJudgement(f"the script timed out after {self.seconds:g} s") from None


@dataclass(frozen=True)
class _ModelAggregator(_Aggregator):
    """Asks a panel of judges for a score, with the results in the prompt."""

    template: str
    panel: JudgePanel

    def fingerprint(self) -> str:
        return self.template

    async def aggregate(self, exchange: Exchange, results: Results) -> Score:
        results_json = indented_json(_by_name(results))
        request = template_request(
            self.template,
            exchange,
            system=SYSTEM,
            schema=SCHEMA,
            variables=dict.fromkeys(RESULTS, results_json),
        )
        return await self.panel.judge(request, parse_reply)
