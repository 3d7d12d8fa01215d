"""The descriptions of fields, for JSON schemas and the reference.

A struct describes a field where it declares it: with `Meta(description=...)`, or with a docstring below the field.
Fields that have neither are described here.
"""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from agentv.evaluators.build import CommonSettings
from agentv.records import (
    Dropped,
    EvalResult,
    EvaluatorResult,
    Execution,
    ExecutionMetrics,
    FileBlock,
    GradedFrom,
    JudgeMetrics,
    Message,
    RetryMetrics,
    TextBlock,
    TokenUsage,
    ToolCall,
    TraceEvent,
    TraceSummary,
)

DESCRIPTIONS: dict[type, dict[str, str]] = {
    CommonSettings: {
        "type": "The type of the evaluator.",
        "name": "The name in results. Defaults to the type.",
        "weight": "The weight in the score of the case. With 0, the evaluator does not affect the score.",
    },
    TextBlock: {
        "value": "The text.",
    },
    FileBlock: {
        "value": "The path of the file, relative to the eval file.",
    },
    ToolCall: {
        "tool": "The name of the tool.",
        "input": "The arguments.",
        "output": "What the tool returned.",
        "id": "The id of the call.",
        "timestamp": "When the tool was called.",
    },
    Message: {
        "role": "The author of the message.",
        "content": "A text, an object, or a list of text and file blocks.",
        "name": "The name of the author, or of the tool that answers.",
        "tool_calls": "The tool calls of an assistant.",
    },
    Execution: {
        "target": "The target that answers.",
        "evaluators": "The evaluators that score the answer.",
    },
    TokenUsage: {
        "input": "All input tokens.",
        "output": "All output tokens.",
    },
    RetryMetrics: {
        "cost_usd": "Their cost in US dollars.",
        "token_usage": "Their tokens.",
    },
    ExecutionMetrics: {
        "token_usage": "The tokens of the answer.",
        "cost_usd": "The cost in US dollars.",
        "duration_ms": "The response time in milliseconds.",
    },
    JudgeMetrics: {
        "calls": "The number of calls.",
        "token_usage": "The tokens of all calls.",
        "cost_usd": "The cost of all calls in US dollars.",
        "duration_ms": "The response time of all calls together.",
    },
    TraceEvent: {
        "type": "The kind of step.",
        "timestamp": "When it happened.",
        "id": "Links a tool call and its result.",
        "name": "The name of the tool.",
        "input": "The arguments of a tool call.",
        "output": "The result of a tool call.",
        "text": "The text of a message, model step or error.",
        "metadata": "Further data, such as `is_error`.",
    },
    TraceSummary: {
        "event_count": "The number of events.",
        "tool_names": "The tools that were called, in alphabetical order.",
        "tool_calls_by_name": "The number of calls of each tool.",
        "error_count": "The number of errors.",
        "token_usage": "The tokens in the trace.",
        "cost_usd": "The cost in the trace in US dollars.",
        "duration_ms": "The time from the first event to the last.",
        "tool_durations": "The durations of each tool's calls in milliseconds.",
    },
    Dropped: {
        "count": "The number of these parts.",
    },
    EvaluatorResult: {
        "name": "The name of the evaluator.",
        "type": "The type of the evaluator.",
        "weight": "Its weight in the score of the case.",
        "applicable": "Whether the evaluator applies to the case.",
        "hits": "The criteria that the answer meets.",
        "misses": "The criteria that the answer does not meet.",
        "reasoning": "The explanation of a judge or script.",
        "details": "Further data from the evaluator.",
        "evaluator_provider_request": "What the judge or script received.",
        "failed": "Whether the evaluator could not judge the answer.",
    },
    GradedFrom: {
        "run_id": "The run of the original result.",
        "score": "The original score.",
    },
    EvalResult: {
        "timestamp": "When the result was written, in UTC.",
        "eval_id": "The id of the case.",
        "dataset": "The dataset of the case.",
        "line": "The line of the case in its file.",
        "position": "The number of the case within its dataset, from 1.",
        "conversation_id": "The conversation that the case belongs to.",
        "target": "The name of the target.",
        "attempt": "The number of the last attempt.",
        "score": "The weighted mean of the evaluators' scores; 0 after an error.",
        "verdict": "Whether the case passed.",
        "hits": "The criteria that the answer meets, from all evaluators.",
        "misses": "The criteria that the answer does not meet, from all evaluators.",
        "reasoning": "The explanations of judges and scripts.",
        "expected_outcome": "What a good answer must achieve.",
        "reference_answer": "The last expected message.",
        "candidate_answer": "The answer; empty after an error.",
        "stop_reason": "Why the model stopped.",
        "note": "Anything unusual about the answer.",
        "evaluator_results": "The result of each evaluator.",
        "trace_summary": "A summary of the agent's steps.",
        "execution_metrics": "Tokens, cost and duration of the answer.",
        "error": "What went wrong.",
        "error_details": "The traceback of your own code.",
        "failure": "What failed: the target, the time limit, the judge, or the machine (out of resources).",
        "trace": "The agent's steps, with `--include-trace`.",
        "description": "As in the eval file.",
        "tags": "As in the eval file.",
        "metadata": "As in the eval file.",
        "digests": "Hashes of everything that determined the result.",
    },
}


def describe_fields(definitions: dict[str, Any], types: Sequence[type]) -> None:
    """Add descriptions to the fields in a schema's definitions that have none. `types` are those of the schema."""
    for struct in _structs(types):
        definition = definitions.get(struct.__name__)
        if definition is None:
            continue
        known = _known_descriptions(struct)
        for field in msgspec.structs.fields(struct):
            schema = definition["properties"][field.encode_name]
            if field.name in known and "description" not in schema:
                definition["properties"][field.encode_name] = {"description": known[field.name], **schema}


def _structs(types: Sequence[type]) -> list[type]:
    """Return the structs that values of these types contain."""
    found: dict[type, None] = {}
    for info in msgspec.inspect.multi_type_info(types):
        for struct in _structs_in(info, set()):
            found[struct] = None
    return list(found)


def _structs_in(info: Any, seen: set[int]) -> Iterator[type]:
    """Yield the structs in msgspec's description of a type, which may be recursive."""
    if isinstance(info, tuple):
        for item in info:
            yield from _structs_in(item, seen)
    if not isinstance(info, msgspec.Struct) or id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.StructType):
        yield info.cls
    for name in info.__struct_fields__:
        yield from _structs_in(getattr(info, name), seen)


@cache
def _known_descriptions(struct: type) -> dict[str, str]:
    """Return the description of each field of a struct that has one here, or a docstring below it."""
    known: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            known.update(_field_docstrings(base))
            known.update(DESCRIPTIONS.get(base, {}))
    return known


def _field_docstrings(struct: type) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of the fields that a class declares itself."""
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(declared, ast.ClassDef)
    for field, below in itertools.pairwise(declared.body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        match below:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield field.target.id, inspect.cleandoc(text)
