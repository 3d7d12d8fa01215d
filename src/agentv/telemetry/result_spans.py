"""Convert a result to spans: the case, in it the call of the target with its tool calls, and the evaluators.

Names and attributes follow the semantic conventions (`test.*`, `gen_ai.*` and `error.type`). Where these have no name,
attributes are named `agentv.*`. As the conventions require, questions and answers are only included if the user has
enabled message content.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from agentv.files.encode import to_json
from agentv.records import (
    EvalResult,
    EvaluatorResult,
    ExecutionMetrics,
    TokenUsage,
    TraceEvent,
)

EVALUATION = "gen_ai.evaluation.result"


class TargetKind(NamedTuple):
    """Whether a target is a language model or an agent, and its model."""

    model: str | None = None
    provider: str | None = None
    """The vendor, as named in the conventions."""
    is_model: bool = False


class SpanData(NamedTuple):
    """A finished span. Times are in nanoseconds."""

    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    children: Sequence["SpanData"] = ()
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    error: str | None = None
    is_client: bool = False


class _Times(NamedTuple):
    """The start and the end of a span in nanoseconds."""

    start: int
    end: int


def span_of_result(
    result: EvalResult,
    kind: TargetKind,
    *,
    has_content: bool,
) -> SpanData:
    """Return the span of a case with all its children."""
    end = _nanoseconds(result.timestamp) or 0
    answered = _nanoseconds(result.answered_at) or end
    metrics = result.execution_metrics or ExecutionMetrics()
    start = answered - int((metrics.duration_ms or 0) * 1e6)
    call = _call_span(result, kind, _Times(start, answered), has_content)
    children = [call]
    for part in result.evaluator_results:
        children.append(_evaluator_span(part, _Times(answered, end)))
    status = "fail"
    if result.verdict == "pass":
        status = "pass"
    attributes = {
        "test.suite.name": result.dataset,
        "test.suite.run.id": result.run_id,
        "test.case.id": result.eval_id,
        "test.case.name": result.eval_id,
        "test.case.result.status": status,
        "agentv.verdict": result.verdict,
        "agentv.score": result.score,
        "agentv.target": result.target,
        "agentv.attempt": result.attempt,
        "agentv.trial": result.trial,
        "agentv.file": result.file,
        "agentv.trace_complete": result.trace_complete,
        "error.type": result.failure,
    }
    error = result.error
    if error is None and result.failure:
        error = "an evaluator failed"
    return SpanData(
        name=f"case {result.eval_id}",
        start=min(start, call.start),  # tool calls may begin before the measured duration of the call
        end=end,
        attributes=_known(attributes),
        children=children,
        error=error,
    )


def _call_span(
    result: EvalResult,
    kind: TargetKind,
    times: _Times,
    has_content: bool,
) -> SpanData:
    """Return the span of the call of the target, with its tool calls as children."""
    operation = "invoke_agent"
    name = result.target
    if kind.is_model:
        operation = "chat"
        name = kind.model or result.target
    tools = _tool_spans(result.trace or (), times.start, has_content)
    starts = [tool.start for tool in tools]
    return SpanData(
        name=f"{operation} {name}",
        start=min([times.start, *starts]),
        end=times.end,
        attributes=_call_attributes(result, kind, operation, has_content),
        children=tools,
        error=result.error,
        is_client=True,
    )


def _call_attributes(
    result: EvalResult,
    kind: TargetKind,
    operation: str,
    has_content: bool,
) -> dict[str, Any]:
    metrics = result.execution_metrics or ExecutionMetrics()
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": kind.provider,
        "gen_ai.request.model": kind.model,
        "gen_ai.conversation.id": result.conversation_id,
        "agentv.cost_usd": metrics.cost_usd,
        "agentv.ttft_ms": metrics.ttft_ms,
    }
    if not kind.is_model:
        attributes["gen_ai.agent.name"] = result.target
    if result.stop_reason:
        attributes["gen_ai.response.finish_reasons"] = [result.stop_reason]
    if result.error is not None:
        attributes["error.type"] = result.failure
    attributes |= _usage(metrics.token_usage)
    if has_content and result.question:
        attributes["gen_ai.input.messages"] = _message("user", result.question)
    if has_content and result.candidate_answer:
        attributes["gen_ai.output.messages"] = _message("assistant", result.candidate_answer)
    return _known(attributes)


def _usage(usage: TokenUsage | None) -> dict[str, Any]:
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }


def _tool_spans(
    trace: Sequence[TraceEvent],
    start: int,
    has_content: bool,
) -> list[SpanData]:
    """Return a span for each tool call. A call without a timestamp starts where the previous one ended."""
    results: dict[str, TraceEvent] = {}
    for event in trace:
        if event.type == "tool_result" and event.id:
            results[event.id] = event
    spans: list[SpanData] = []
    now = start
    for event in trace:
        if event.type != "tool_call":
            continue
        result = results.get(event.id or "")
        began = _nanoseconds(event.timestamp) or now
        # Timestamps are in milliseconds: one nanosecond per call keeps calls of the same millisecond in order.
        began += len(spans)
        ended = _tool_end(event, result, began)
        if ended is None or ended < began:
            ended = began
        times = _Times(began, ended)
        spans.append(_tool_span(event, result, times, has_content))
        now = ended
    return spans


def _tool_end(
    event: TraceEvent,
    result: TraceEvent | None,
    start: int,
) -> int | None:
    """Return the end of a tool call by its duration, otherwise by the time of its result. None if it is unknown."""
    took = (event.metadata or {}).get("duration_ms")
    if isinstance(took, int | float):
        return start + int(took * 1e6)
    if result is None:
        return None
    return _nanoseconds(result.timestamp)


def _tool_span(
    event: TraceEvent,
    result: TraceEvent | None,
    times: _Times,
    has_content: bool,
) -> SpanData:
    name = event.name or "unknown"
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": event.id,
    }
    if has_content:
        output = event.output
        if output is None and result is not None:
            output = result.output
        attributes["gen_ai.tool.call.arguments"] = _text(event.input)
        attributes["gen_ai.tool.call.result"] = _text(output)
    error = _tool_error(event, result)
    if error is not None:
        attributes["error.type"] = "tool"
    return SpanData(
        name=f"execute_tool {name}",
        start=times.start,
        end=times.end,
        attributes=_known(attributes),
        error=error,
    )


def _tool_error(event: TraceEvent, result: TraceEvent | None) -> str | None:
    """Return the error of a tool call that failed according to its own metadata or that of its result."""
    metadata = event.metadata or {}
    is_error = metadata.get("is_error") is True
    if result is not None:
        result_metadata = result.metadata or {}
        is_error = is_error or bool(result_metadata.get("is_error"))
    if not is_error:
        return None
    return str(metadata.get("error") or "the tool failed")


def _evaluator_span(part: EvaluatorResult, times: _Times) -> SpanData:
    """Return the span of an evaluator, with its score as an event. A failed evaluator has no score."""
    explanation = part.reasoning or "\n".join(part.misses) or "\n".join(part.hits)
    attributes: dict[str, Any] = {
        "agentv.evaluator.name": part.name,
        "agentv.evaluator.type": part.type,
        "agentv.evaluator.weight": float(part.weight),
    }
    evaluation: dict[str, Any] = {"gen_ai.evaluation.name": part.name}
    error = None
    if part.failed:
        error = explanation or "the evaluator failed"
        attributes["error.type"] = "judge"
        evaluation["error.type"] = "judge"
    elif part.score is None:
        evaluation["gen_ai.evaluation.score.label"] = "not applicable"
    else:
        evaluation["gen_ai.evaluation.score.value"] = float(part.score)
        evaluation["gen_ai.evaluation.score.label"] = part.verdict
    evaluation["gen_ai.evaluation.explanation"] = explanation or None
    return SpanData(
        name=f"evaluate {part.name}",
        start=times.start,
        end=times.end,
        attributes=_known(attributes),
        events=[(EVALUATION, _known(evaluation))],
        error=error,
    )


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that are not None."""
    return {name: value for name, value in attributes.items() if value is not None}


def _message(role: str, text: str) -> str:
    """Return a message in the JSON form of the conventions."""
    part = {"type": "text", "content": text}
    messages = [{"role": role, "parts": [part]}]
    return to_json(messages).decode()


def _text(value: Any) -> str | None:
    """Return a value as text: JSON unless it is text already."""
    if value is None or isinstance(value, str):
        return value
    return to_json(value).decode()


def _nanoseconds(timestamp: str | None) -> int | None:
    """Return an ISO 8601 timestamp as nanoseconds since 1970, or None if it is missing or invalid."""
    try:
        return int(datetime.fromisoformat(timestamp or "").timestamp() * 1e9)
    except (ValueError, OverflowError, OSError):
        return None
