"""A result -> the spans that tell it: the case, in it the target's call with its tool calls, and the evaluators.

Names and attributes are those of the semantic conventions: `test.*`, `gen_ai.*` and `error.type`; what they have no
name for is `agentv.*`. What was asked and answered is only told where the user wants content, as the conventions say.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from agentv.records import EvalResult, EvaluatorResult, TokenUsage, TraceEvent

EVALUATION = "gen_ai.evaluation.result"
_ENCODE = msgspec.json.Encoder(enc_hook=str).encode


class TargetKind(NamedTuple):
    """What a target is: a language model that is asked, or an agent."""

    model: str | None = None
    provider: str | None = None
    """The vendor, as the conventions name it."""
    is_model: bool = False


class SpanData(NamedTuple):
    """A span that has ended; times are nanoseconds."""

    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    children: Sequence["SpanData"] = ()
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    error: str | None = None
    is_client: bool = False


def span_of_result(result: EvalResult, kind: TargetKind, *, has_content: bool) -> SpanData:
    """Return the span of a case with all that is in it."""
    metrics = result.execution_metrics
    end = _nanoseconds(result.timestamp) or 0
    answered = _nanoseconds(result.answered_at) or end
    start = answered - int((metrics.duration_ms if metrics and metrics.duration_ms else 0) * 1e6)
    call = _call_span(result, kind, (start, answered), has_content)
    evaluators = [_evaluator_span(part, answered, end) for part in result.evaluator_results]
    failed = result.error if result.error is not None else "an evaluator failed" if result.failure else None
    attributes = {
        "test.suite.name": result.dataset,
        "test.suite.run.id": result.run_id,
        "test.case.id": result.eval_id,
        "test.case.name": result.eval_id,
        "test.case.result.status": "pass" if result.verdict == "pass" else "fail",
        "agentv.verdict": result.verdict,
        "agentv.score": result.score,
        "agentv.target": result.target,
        "agentv.attempt": result.attempt,
        "agentv.trial": result.trial,
        "agentv.file": result.file,
        "agentv.trace_complete": result.trace_complete,
        "error.type": result.failure,
    }
    return SpanData(
        f"case {result.eval_id}", min(start, call.start), end, _known(attributes), [call, *evaluators], error=failed
    )


def _call_span(result: EvalResult, kind: TargetKind, times: tuple[int, int], has_content: bool) -> SpanData:
    operation = "chat" if kind.is_model else "invoke_agent"
    metrics = result.execution_metrics
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": kind.provider,
        "gen_ai.agent.name": None if kind.is_model else result.target,
        "gen_ai.request.model": kind.model,
        "gen_ai.conversation.id": result.conversation_id,
        "gen_ai.response.finish_reasons": [result.stop_reason] if result.stop_reason else None,
        "agentv.cost_usd": metrics.cost_usd if metrics else None,
        "agentv.ttft_ms": metrics.ttft_ms if metrics else None,
        "error.type": result.failure if result.error is not None else None,
        **_usage(metrics.token_usage if metrics else None),
    }
    if has_content:
        asked, answered = result.question, result.candidate_answer
        attributes["gen_ai.input.messages"] = _message("user", asked) if asked else None
        attributes["gen_ai.output.messages"] = _message("assistant", answered) if answered else None
    tools = _tool_spans(result.trace or (), times, has_content)
    start = min([times[0], *(tool.start for tool in tools)])
    name = (kind.model if kind.is_model else None) or result.target
    return SpanData(
        f"{operation} {name}", start, times[1], _known(attributes), tools, error=result.error, is_client=True
    )


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


def _tool_spans(trace: Sequence[TraceEvent], times: tuple[int, int], has_content: bool) -> list[SpanData]:
    """Return a span for each tool call. One without a time is where the one before it ended."""
    results = {event.id: event for event in trace if event.type == "tool_result" and event.id}
    spans: list[SpanData] = []
    now = times[0]
    for event in trace:
        if event.type != "tool_call":
            continue
        result = results.get(event.id or "")
        metadata = event.metadata or {}
        start = (_nanoseconds(event.timestamp) or now) + len(spans)  # those of one millisecond stay in their order
        took = metadata.get("duration_ms")
        end = _nanoseconds(result.timestamp) if result is not None else None
        if isinstance(took, int | float):
            end = start + int(took * 1e6)
        now = max(end or start, start)
        output = event.output if event.output is not None or result is None else result.output
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.name or "unknown",
            "gen_ai.tool.call.id": event.id,
            "gen_ai.tool.call.arguments": _text(event.input) if has_content else None,
            "gen_ai.tool.call.result": _text(output) if has_content else None,
        }
        is_error = metadata.get("is_error") is True or bool(result and (result.metadata or {}).get("is_error"))
        error = str(metadata.get("error") or "the tool failed") if is_error else None
        if is_error:
            attributes["error.type"] = "tool"
        spans.append(SpanData(f"execute_tool {event.name or 'unknown'}", start, now, _known(attributes), error=error))
    return spans


def _evaluator_span(part: EvaluatorResult, start: int, end: int) -> SpanData:
    """Return the span of an evaluator, with its score as an event; one that failed has given none."""
    explanation = part.reasoning or "\n".join(part.misses) or "\n".join(part.hits)
    found = {
        "gen_ai.evaluation.name": part.name,
        "gen_ai.evaluation.score.value": None if part.failed else float(part.score),
        "gen_ai.evaluation.score.label": None if part.failed else part.verdict,
        "gen_ai.evaluation.explanation": explanation or None,
        "error.type": "judge" if part.failed else None,
    }
    attributes = {
        "agentv.evaluator.name": part.name,
        "agentv.evaluator.type": part.type,
        "agentv.evaluator.weight": float(part.weight),
        "error.type": "judge" if part.failed else None,
    }
    error = (explanation or "the evaluator failed") if part.failed else None
    events = [(EVALUATION, _known(found))]
    return SpanData(f"evaluate {part.name}", start, end, _known(attributes), events=events, error=error)


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _message(role: str, text: str) -> str:
    return _ENCODE([{"role": role, "parts": [{"type": "text", "content": text}]}]).decode()


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else _ENCODE(value).decode()


def _nanoseconds(timestamp: str | None) -> int | None:
    """Return a moment as OpenTelemetry counts it; None if it is none."""
    try:
        return int(datetime.fromisoformat(timestamp or "").timestamp() * 1e9)
    except (ValueError, OverflowError, OSError):
        return None
