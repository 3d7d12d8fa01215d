"""The evaluator types: built in, one file per family, or provided by installed packages through entry points."""

import pkgutil
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec

from agentv.errors import SettingError, nearest
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Score
from agentv.registry import extension_names, load_extension, open_settings

GROUP = "agentv.evaluators"

BUILT_IN = {
    "code_judge": "agentv.evaluators.code_judge:CodeJudge",
    "command": "agentv.evaluators.command:Command",
    "composite": "agentv.evaluators.composite:Composite",
    "contains": "agentv.evaluators.checks.text:Contains",
    "cost": "agentv.evaluators.checks.limits:Cost",
    "equals": "agentv.evaluators.checks.text:Equals",
    "field_accuracy": "agentv.evaluators.checks.field_accuracy:FieldAccuracy",
    "icontains": "agentv.evaluators.checks.text:IContains",
    "is_json": "agentv.evaluators.checks.json_checks:IsJson",
    "json_schema": "agentv.evaluators.checks.json_checks:JsonSchema",
    "latency": "agentv.evaluators.checks.limits:Latency",
    "llm_judge": "agentv.evaluators.llm_judge:LlmJudge",
    "python": "agentv.evaluators.python:PythonJudge",
    "regex": "agentv.evaluators.checks.regex:Regex",
    "rubric": "agentv.evaluators.rubric:Rubric",
    "similarity": "agentv.evaluators.checks.similarity:Similarity",
    "starts_with": "agentv.evaluators.checks.text:StartsWith",
    "token_usage": "agentv.evaluators.checks.limits:TokenLimits",
    "tool_trajectory": "agentv.evaluators.checks.tool_trajectory:ToolTrajectory",
}


def evaluator_type(name: str) -> type[EvaluatorSettings]:
    """Return the settings class of an evaluator type, importing its module. Built-in types take precedence.

    Raise `SettingError` if the type is unknown, `ConfigError` if the package that provides it cannot be used.
    """
    if name in BUILT_IN:
        built_in: type[EvaluatorSettings] = pkgutil.resolve_name(BUILT_IN[name])
        return built_in
    extension: type[msgspec.Struct] | None = load_extension(GROUP, name, msgspec.Struct)
    if extension is None:
        known = {*BUILT_IN, *extension_names(GROUP)}
        raise SettingError(f"unknown evaluator type {name!r}", "type", hint=nearest(name, known))
    if issubclass(extension, EvaluatorSettings):
        return extension
    return _with_defaults(extension)


def open_evaluator(settings: EvaluatorSettings, context: EvaluatorContext) -> Evaluator:
    """Return the evaluator with these settings; raise `ConfigError` if they cannot be used."""
    open_with_context = None
    if hasattr(settings, "open"):
        open_with_context = partial(settings.open, context)
    evaluator = open_settings(settings, open_with_context, "evaluate")
    if isinstance(evaluator, Evaluator):
        return evaluator
    return _Adapter(evaluator)


@cache
def _with_defaults(struct: type[msgspec.Struct]) -> type[EvaluatorSettings]:
    """Return a subclass of an extension's struct and of `EvaluatorSettings`, for a struct that is not one itself."""
    config = struct.__struct_config__
    combined: Any = msgspec.defstruct(
        struct.__name__,
        [],
        bases=(struct, EvaluatorSettings),
        module=struct.__module__,
        frozen=config.frozen,
        forbid_unknown_fields=config.forbid_unknown_fields,
    )
    return combined  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Adapter(Evaluator):
    """Wraps an extension's evaluator that has `evaluate` and nothing else."""

    inner_evaluator: Any

    async def evaluate(self, exchange: Exchange) -> Score:
        score: Score = await self.inner_evaluator.evaluate(exchange)
        return score
