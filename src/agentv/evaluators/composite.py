"""Several evaluators as one: their scores become one by weights, by a script or by a language model."""

import asyncio
import sys
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from agentv.errors import SettingError
from agentv.judges.deferral import settle
from agentv.judges.panel import JudgeNames, JudgePanel, Repeats, open_panel
from agentv.judges.program import Program
from agentv.judges.prompt import DATA, build_judge_request, fill_prompt, new_fence, read_prompt
from agentv.judges.reply import BadJudgement, parse_reply, parse_score
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings, NamedEvaluator
from agentv.records import EvaluatorResult, Exchange, Json, Score, Weight
from agentv.scoring import weighted_mean

TIMEOUT_SECONDS = 60.0
Text = Annotated[str, Meta(min_length=1)]
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
"""The names that the members' results have in a prompt."""
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}


class WeightedAverage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="weighted_average"):
    """The mean by weight; `weights` are by the evaluators' names."""

    weights: dict[str, Weight] = {}


class ByScript(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="code_judge"):
    """A script reads the results and writes a score."""

    path: Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
    cwd: Text | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = TIMEOUT_SECONDS


class ByModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="llm_judge"):
    """A language model gets the results, which are `{{ results }}` in a prompt, and gives a score."""

    prompt: str | None = None
    judge_target: JudgeNames | None = None
    judge_repeats: Repeats = 1


class Composite(EvaluatorSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evaluators inside of an evaluator, and how their scores become one."""

    evaluators: Annotated[tuple[Json, ...], Meta(min_length=1)]
    aggregator: WeightedAverage | ByScript | ByModel = WeightedAverage()

    def open(self, context: EvaluatorContext) -> Evaluator:
        inner = tuple(context.evaluator(config) for config in self.evaluators)
        names = [evaluator.name for evaluator in inner]
        for name in names:
            if names.count(name) > 1:
                hint = "give each a name of its own"
                raise SettingError(f"evaluators: the name {name!r} stands twice", "evaluators", hint=hint)
        return _Composite(inner, _open_aggregator(self.aggregator, names, context))


class _Aggregator(Protocol):
    """Makes one score of the results of several evaluators."""

    async def aggregate(self, exchange: Exchange, results: tuple[EvaluatorResult, ...]) -> Score: ...

    def fingerprint(self) -> Any:
        return None


class _Composite(Evaluator):
    def __init__(self, inner: tuple[NamedEvaluator, ...], aggregator: _Aggregator):
        self.inner, self._aggregator = inner, aggregator
        self.panel: JudgePanel | None = getattr(aggregator, "panel", None)

    def fingerprint(self) -> Any:
        return self._aggregator.fingerprint()

    async def evaluate(self, exchange: Exchange) -> Score:
        results = tuple(await settle(evaluator.result(exchange) for evaluator in self.inner))
        score = await self._aggregator.aggregate(exchange, results)
        return msgspec.structs.replace(
            score,
            details={"results": results, "own": score.details},
            failed=score.failed or any(result.failed for result in results),
            missing_data=any(result.missing_data for result in results),
        )


def _open_aggregator(
    settings: WeightedAverage | ByScript | ByModel, names: list[str], context: EvaluatorContext
) -> _Aggregator:
    match settings:
        case WeightedAverage(weights=weights):
            for name in weights:
                if name not in names:
                    message = f"aggregator.weights: no evaluator is called {name!r}"
                    hint = f"there are {', '.join(names)}"
                    raise SettingError(message, "aggregator", "weights", name, hint=hint)
            return _Mean(weights)
        case ByScript(path=path, cwd=cwd, timeout_seconds=seconds):
            command = path if isinstance(path, tuple) else _command(path)
            program = Program(command, context.folder / (cwd or "."), ("aggregator", "path"))
            return _ScriptAggregator(program, seconds)
        case ByModel(prompt=prompt, judge_target=judges, judge_repeats=repeats):
            template = PROMPT if prompt is None else read_prompt(prompt, context, RESULTS, ("aggregator", "prompt"))
            at = ("aggregator", "judge_target")
            return _ModelAggregator(template, open_panel(judges, repeats, context, at))


def _command(path: str) -> str | tuple[str, ...]:
    """Return the command that runs a script: our own Python for a Python file, else the path itself."""
    return (sys.executable, path) if path.endswith(".py") and " " not in path else path


class _Mean(_Aggregator):
    def __init__(self, weights: dict[str, float]):
        self._weights = weights

    async def aggregate(self, exchange: Exchange, results: tuple[EvaluatorResult, ...]) -> Score:
        weighted = [
            msgspec.structs.replace(result, weight=self._weights.get(result.name, result.weight)) for result in results
        ]
        return Score(
            score=weighted_mean(weighted),
            hits=tuple(f"[{result.name}] {hit}" for result in results for hit in result.hits),
            misses=tuple(f"[{result.name}] {miss}" for result in results for miss in result.misses),
            reasoning="; ".join(f"{result.name}: {result.score:.2f}" for result in results),
        )


def _as_mapping(results: tuple[EvaluatorResult, ...]) -> dict[str, Any]:
    """Return what each evaluator found, by its name."""
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


class _ScriptAggregator(_Aggregator):
    def __init__(self, program: Program, seconds: float):
        self._program, self._seconds = program, seconds

    def fingerprint(self) -> list[str]:
        return self._program.fingerprint

    async def aggregate(self, exchange: Exchange, results: tuple[EvaluatorResult, ...]) -> Score:
        try:
            async with asyncio.timeout(self._seconds):
                return parse_score(await self._program.run({"results": _as_mapping(results)}, {}))
        except TimeoutError:
            raise BadJudgement(f"the script timed out after {self._seconds:g} s") from None


class _ModelAggregator(_Aggregator):
    def __init__(self, template: str, panel: JudgePanel):
        self._template, self.panel = template, panel

    def fingerprint(self) -> str:
        return self._template

    async def aggregate(self, exchange: Exchange, results: tuple[EvaluatorResult, ...]) -> Score:
        text = msgspec.json.format(msgspec.json.encode(_as_mapping(results)), indent=2).decode()
        fence = new_fence()
        prompt = fill_prompt(self._template, exchange, fence, dict.fromkeys(RESULTS, text))
        request = build_judge_request(SYSTEM, prompt, exchange, SCHEMA, fence)
        return await self.panel.judge(request, parse_reply)
