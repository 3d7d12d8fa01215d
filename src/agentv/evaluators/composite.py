"""Combines several evaluators: a weighted mean, a script or a language model aggregates their scores."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.judges.deferral import settle
from agentv.judges.panel import JudgeNames, JudgePanel, Repeats, open_panel
from agentv.judges.program import CommandLine, Program
from agentv.judges.prompt import DATA, build_judge_request, fill_prompt, indented_json, new_fence, read_prompt
from agentv.judges.reply import BadJudgement, parse_reply, parse_score
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, NamedEvaluator
from agentv.providers.settings import Text
from agentv.records import EvaluatorResult, Exchange, Json, Score, Weight
from agentv.scoring import weighted_mean

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


class ByScript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="code_judge"):
    """A script reads the results and writes a score."""

    path: CommandLine
    cwd: Text | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS


class ByModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="llm_judge"):
    """A language model gets the results, as `{{ results }}` in its prompt, and returns a score."""

    prompt: str | None = None
    judge_target: JudgeNames | None = None
    judge_repeats: Repeats = 1


AggregatorSettings = WeightedAverage | ByScript | ByModel
Results = tuple[EvaluatorResult, ...]


class Composite(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nested evaluators, and how their scores are combined."""

    evaluators: Annotated[tuple[Json, ...], Meta(min_length=1)]
    aggregator: AggregatorSettings = WeightedAverage()

    def open(self, context: EvaluatorContext) -> Evaluator:
        inner = tuple(context.evaluator(config) for config in self.evaluators)
        names = [evaluator.name for evaluator in inner]
        for name in names:
            if names.count(name) > 1:
                hint = "give each a name of its own"
                raise SettingError(f"evaluators: the name {name!r} stands twice", "evaluators", hint=hint)
        aggregator = _open_aggregator(self.aggregator, names, context)
        return _Composite(inner, aggregator)


class _Aggregator(Protocol):
    """Combines the results of several evaluators into one score."""

    async def aggregate(self, exchange: Exchange, results: Results) -> Score: ...

    def fingerprint(self) -> Any:
        return None


@dataclass
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
        settled = await settle(evaluator.result(exchange) for evaluator in self.inner)
        results = tuple(settled)
        score = await self.aggregator.aggregate(exchange, results)
        any_failed = any(result.failed for result in results)
        any_missing = any(result.missing_data for result in results)
        return msgspec.structs.replace(
            score,
            details={"results": results, "own": score.details},
            failed=score.failed or any_failed,
            missing_data=any_missing,
        )


def _open_aggregator(
    settings: AggregatorSettings,
    names: Sequence[str],
    context: EvaluatorContext,
) -> _Aggregator:
    """Return the aggregator for the evaluators with these names; raise `SettingError` for invalid settings."""
    match settings:
        case WeightedAverage():
            return _open_mean(settings, names)
        case ByScript():
            return _open_script(settings, context)
        case ByModel():
            return _open_model(settings, context)


def _open_mean(settings: WeightedAverage, names: Sequence[str]) -> _Aggregator:
    for name in settings.weights:
        if name not in names:
            raise SettingError(
                f"aggregator.weights: no evaluator is called {name!r}",
                "aggregator",
                "weights",
                name,
                hint=f"there are {', '.join(names)}",
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


@dataclass
class _MeanAggregator(_Aggregator):
    """Computes the weighted mean of the scores."""

    weights: dict[str, float]

    async def aggregate(self, exchange: Exchange, results: Results) -> Score:
        weighted: list[EvaluatorResult] = []
        hits: list[str] = []
        misses: list[str] = []
        scores: list[str] = []
        for result in results:
            name = result.name
            weight = self.weights.get(name, result.weight)
            weighted.append(msgspec.structs.replace(result, weight=weight))
            hits.extend(f"[{name}] {hit}" for hit in result.hits)
            misses.extend(f"[{name}] {miss}" for miss in result.misses)
            scores.append(f"{name}: {result.score:.2f}")
        return Score(
            score=weighted_mean(weighted),
            hits=tuple(hits),
            misses=tuple(misses),
            reasoning="; ".join(scores),
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


@dataclass
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


@dataclass
class _ModelAggregator(_Aggregator):
    """Asks a panel of judges for a score, with the results in the prompt."""

    template: str
    panel: JudgePanel

    def fingerprint(self) -> str:
        return self.template

    async def aggregate(self, exchange: Exchange, results: Results) -> Score:
        fence = new_fence()
        results_json = indented_json(_by_name(results))
        variables = dict.fromkeys(RESULTS, results_json)
        prompt = fill_prompt(self.template, exchange, fence, variables)
        request = build_judge_request(
            SYSTEM,
            prompt,
            exchange,
            SCHEMA,
            fence,
        )
        return await self.panel.judge(request, parse_reply)
