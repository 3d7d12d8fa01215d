"""What scores answers. Each kind is a file here, or comes from an installed package by an entry point."""

import pkgutil
from typing import Any

import msgspec

from agentv.errors import ConfigError, nearest
from agentv.system.entry_points import extension_names, load_extension

GROUP = "agentv.evaluators"

BUILT_IN = {
    "code_judge": "agentv.evaluators.code_judge:CodeJudge",
    "composite": "agentv.evaluators.composite:Composite",
    "contains": "agentv.evaluators.text:Contains",
    "cost": "agentv.evaluators.limits:Cost",
    "equals": "agentv.evaluators.text:Equals",
    "field_accuracy": "agentv.evaluators.field_accuracy:FieldAccuracy",
    "icontains": "agentv.evaluators.text:IContains",
    "is_json": "agentv.evaluators.json_checks:IsJson",
    "json_schema": "agentv.evaluators.json_checks:JsonSchema",
    "latency": "agentv.evaluators.limits:Latency",
    "llm_judge": "agentv.evaluators.llm_judge:LlmJudge",
    "python": "agentv.evaluators.python:PythonJudge",
    "regex": "agentv.evaluators.regex:Regex",
    "rubric": "agentv.evaluators.rubric:Rubric",
    "similarity": "agentv.evaluators.similarity:Similarity",
    "starts_with": "agentv.evaluators.text:StartsWith",
    "token_usage": "agentv.evaluators.limits:TokenLimits",
    "tool_trajectory": "agentv.evaluators.tool_trajectory:ToolTrajectory",
}


def evaluator_type(kind: str) -> Any:
    """The class for `kind`: ours, else an installed package's. Imported now and not before."""
    if kind in BUILT_IN:
        return pkgutil.resolve_name(BUILT_IN[kind])
    found = load_extension(GROUP, kind, msgspec.Struct)
    if found is None:
        hint = nearest(kind, {*BUILT_IN, *extension_names(GROUP)})
        raise ConfigError(f"unknown evaluator type {kind!r}", hint=hint)
    return found
