"""The types of evaluators: each is a file here, or comes from an installed package by an entry point."""

import pkgutil
from functools import cache, partial
from typing import Any

import msgspec

from agentv.errors import SettingError, nearest
from agentv.protocols import Evaluator, EvaluatorContext, EvaluatorSettings
from agentv.records import Exchange, Score
from agentv.system.entry_points import extension_names, load_extension, open_settings

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
    """Return the settings of a type of evaluator: ours, else an installed package's. Imported now and not before.

    Raise `SettingError` if there is no such type, `ConfigError` if the package cannot be used.
    """
    if name in BUILT_IN:
        found: type[EvaluatorSettings] = pkgutil.resolve_name(BUILT_IN[name])
        return found
    brought = load_extension(GROUP, name, msgspec.Struct)
    if brought is None:
        hint = nearest(name, {*BUILT_IN, *extension_names(GROUP)})
        raise SettingError(f"unknown evaluator type {name!r}", "type", hint=hint)
    return brought if issubclass(brought, EvaluatorSettings) else _with_defaults(brought)


def open_evaluator(settings: EvaluatorSettings, context: EvaluatorContext) -> Evaluator:
    """Return the evaluator with these settings; raise `ConfigError` if they cannot be used."""
    open_ = partial(settings.open, context) if hasattr(settings, "open") else None
    evaluator = open_settings(settings, open_, "evaluate")
    return evaluator if isinstance(evaluator, Evaluator) else _Adapter(evaluator)


@cache
def _with_defaults(struct: type[msgspec.Struct]) -> type[EvaluatorSettings]:
    """Return a struct of a package that is no `EvaluatorSettings` as a subclass of both."""
    config = struct.__struct_config__
    options: Any = {"frozen": config.frozen, "forbid_unknown_fields": config.forbid_unknown_fields}
    bases = (struct, EvaluatorSettings)
    both: Any = msgspec.defstruct(struct.__name__, [], bases=bases, module=struct.__module__, **options)
    return both  # type: ignore[no-any-return]


class _Adapter(Evaluator):
    """An evaluator of a package that has `evaluate` and nothing else."""

    def __init__(self, inner: Any):
        self._inner = inner

    async def evaluate(self, exchange: Exchange) -> Score:
        score: Score = await self._inner.evaluate(exchange)
        return score
