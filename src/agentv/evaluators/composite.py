"""Several evaluators as one: their scores, brought together by weights, by a script or by a language model."""

import asyncio
import sys
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.judges.program import Script
from agentv.judges.prompt import DATA, filled, judge_request, read_prompt, shown
from agentv.judges.reply import MOST_POINTS, BadJudgement, judged, object_in, score_from
from agentv.protocols import Evaluator, EvaluatorContext, NamedEvaluator, Provider
from agentv.records import EvaluatorResult, Exchange, Json, Score, Weight
from agentv.scoring import weighted_mean

TIMEOUT_SECONDS = 60.0
Text = Annotated[str, Meta(min_length=1)]
SYSTEM = f"""You bring together what several evaluators found of an AI agent's answer. {DATA}
Reply with one JSON object and nothing else:
{{"score": a number from 0 (worthless) to 1 (perfect), "hits": [up to four short points that were met],
"misses": [up to four short points that were not], "reasoning": one or two sentences}}"""
PROMPT = """What was asked:
{{ question }}

The answer:
{{ candidate_answer }}

What the evaluators found:
{{ results }}
"""
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}


class WeightedAverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="weighted_average"):
    """The mean by weight; `weights` are by the evaluators' names."""

    weights: dict[str, Weight] = {}


class ByScript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="code_judge"):
    """A script that reads the results and writes a score."""

    path: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    cwd: Text | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS


class ByModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="llm_judge"):
    """A language model that is told the results; `{{ results }}` stands for them in a prompt."""

    prompt: str | None = None
    judge_target: str | None = None


class Composite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evaluators inside of an evaluator, and how their scores become one."""

    evaluators: Annotated[tuple[Json, ...], Meta(min_length=1)]
    aggregator: WeightedAverage | ByScript | ByModel = WeightedAverage()

    def open(self, context: EvaluatorContext) -> Evaluator:
        inner = tuple(context.evaluator(config) for config in self.evaluators)
        names = [evaluator.name for evaluator in inner]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"evaluators: the name {name!r} stands twice", hint="give each a name of its own")
        return _Composite(inner, _aggregator(self.aggregator, names, context))


class _Composite:
    def __init__(self, inner: tuple[NamedEvaluator, ...], aggregate: Any):
        self._inner, self._aggregate = inner, aggregate
        self.fingerprint = aggregate.fingerprint

    async def evaluate(self, exchange: Exchange) -> Score:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(evaluator.result(exchange)) for evaluator in self._inner]
        results = tuple(task.result() for task in tasks)
        score: Score = await self._aggregate(exchange, results)
        failed = score.failed or any(result.failed for result in results)
        return msgspec.structs.replace(score, details={"results": results, "own": score.details}, failed=failed)


def _aggregator(settings: WeightedAverage | ByScript | ByModel, names: list[str], context: EvaluatorContext) -> Any:
    match settings:
        case WeightedAverage(weights=weights):
            for name in weights:
                if name not in names:
                    raise ConfigError(
                        f"aggregator.weights: no evaluator is called {name!r}", hint=f"there are {', '.join(names)}"
                    )
            return _Mean(weights)
        case ByScript(path=path, cwd=cwd, timeout_seconds=seconds):
            words = path if isinstance(path, tuple) else _program(path)
            return _ByScript(Script(words, context.folder / (cwd or ".")), seconds)
        case ByModel(prompt=prompt, judge_target=name):
            template = PROMPT if prompt is None else read_prompt(prompt, context, ("results",))
            return _ByModel(template, context.judge(name))


def _program(path: str) -> str | tuple[str, ...]:
    """How a script is run whose path alone is given: a Python file by our interpreter, all else by itself."""
    return (sys.executable, path) if path.endswith(".py") and " " not in path else path


class _Mean:
    fingerprint = ""

    def __init__(self, weights: dict[str, float]):
        self._weights = weights

    async def __call__(self, exchange: Exchange, results: tuple[EvaluatorResult, ...]) -> Score:
        weighed = [
            msgspec.structs.replace(result, weight=self._weights.get(result.name, result.weight)) for result in results
        ]
        return Score(
            score=weighted_mean(weighed),
            hits=tuple(f"[{result.name}] {hit}" for result in results for hit in result.hits),
            misses=tuple(f"[{result.name}] {miss}" for result in results for miss in result.misses),
            reasoning="; ".join(f"{result.name}: {result.score:.2f}" for result in results),
        )


def _said(results: tuple[EvaluatorResult, ...]) -> dict[str, Any]:
    return {
        result.name: {
            "score": result.score,
            "verdict": result.verdict,
            "hits": result.hits,
            "misses": result.misses,
            "reasoning": result.reasoning or "",
        }
        for result in results
    }


class _ByScript:
    def __init__(self, script: Script, seconds: float):
        self.fingerprint = script.fingerprint
        self._script, self._seconds = script, seconds

    async def __call__(self, exchange: Exchange, results: tuple[EvaluatorResult, ...]) -> Score:
        try:
            async with asyncio.timeout(self._seconds):
                return score_from(await self._script.run({"results": _said(results)}, {}))
        except TimeoutError:
            raise BadJudgement(f"the script timed out after {self._seconds:g} s") from None


class _ByModel:
    def __init__(self, template: str, judge: Provider):
        self.fingerprint = template
        self._judge = judge

    async def __call__(self, exchange: Exchange, results: tuple[EvaluatorResult, ...]) -> Score:
        said = msgspec.json.format(msgspec.json.encode(_said(results)), indent=2).decode()
        request = judge_request(SYSTEM, filled(self.fingerprint, exchange, {"results": said}), exchange, SCHEMA)
        try:
            score = await judged(self._judge, request, lambda text: score_from(object_in(text, "score"), MOST_POINTS))
        except BadJudgement as error:
            score = Score(score=0.0, misses=(str(error),), failed=True)
        return msgspec.structs.replace(score, evaluator_provider_request=shown(request))
