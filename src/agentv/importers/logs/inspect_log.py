"""Import Inspect logs in JSON as results: one result per sample, with the epoch as the trial.

Samples are decoded one at a time, without their events, which are most of a log.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentv.cases.request import Files, build_request
from agentv.errors import AgentvError
from agentv.files.dropped import DroppedParts
from agentv.files.tool_calls import plain_output, read_calls
from agentv.files.trace_events import event_of_call
from agentv.files.wire import response_from, text_of
from agentv.files.yaml import open_regular, read_error
from agentv.importers.datasets.rows import id_of
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.logs.json_parts import Buffer, Parts, find_parts
from agentv.importers.logs.scores import evaluator_result, fraction_of, total_score_fields
from agentv.importers.sample import Sample, decode_foreign
from agentv.records import (
    EvalCase,
    EvalResult,
    EvaluatorResult,
    ExecutionMetrics,
    Json,
    Message,
    ProviderResponse,
    TraceEvent,
)
from agentv.results.answer_digest import answer_digest
from agentv.results.trace import summarize_trace

ATTACHMENT = "attachment://"
ROLES = ("system", "user", "assistant", "tool")
STOP_REASONS = {
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "unknown": "other",
}
"""Inspect's stop reasons that differ from agentv's."""
HINT = "convert the log to JSON with 'inspect log dump FILE > log.json'"


class LoggedSample(msgspec.Struct, kw_only=True):
    """A sample in a log, without its events: msgspec skips unknown fields."""

    id: Any = None
    epoch: int = 1
    input: Any = None
    target: Any = None
    messages: list[Any] | None = None
    output: Any = None
    scores: dict[str, Any] | None = None
    score: Any = None
    metadata: dict[str, Any] | None = None
    model_usage: dict[str, Any] | None = None
    completed_at: str | None = None
    total_time: float | None = None
    error: Any = None
    limit: Any = None
    attachments: dict[str, str] | None = None


class InspectLog(Importer):
    """A log in JSON."""

    becomes = Becomes.RESULTS
    noun = "samples"

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        text = sample.text.lstrip()
        if not text.startswith("{") or '"eval"' not in text:
            return False
        return '"eval_id"' in text or '"run_id"' in text

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        try:
            with (
                open_regular(source) as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer,
            ):
                yield from _rows(buffer, source, tally)
        except OSError as error:
            raise read_error(error, source, AgentvError) from error


def _rows(buffer: Buffer, source: Path, tally: Tally) -> Iterator[Row]:
    """Yield the result for each sample. Raise `ImportFailure` if the file is not a log."""
    try:
        parts = find_parts(buffer, "samples")
    except ValueError as error:
        raise ImportFailure(
            f"not an Inspect log in JSON: {error}",
            file=source,
            hint=HINT,
        ) from None
    eval_ = _decode_field(buffer, parts, "eval")
    if not isinstance(eval_, dict):
        names = ", ".join(map(repr, parts.fields)) or "none"
        raise ImportFailure(
            f"missing 'eval': not an Inspect log (fields: {names})",
            file=source,
            hint=HINT,
        )

    offsets = zip(parts.starts, parts.ends, strict=True)
    for number, (start, end) in enumerate(offsets, 1):
        where = f"sample {number}"
        tally.read += 1
        sample = _decode_sample(buffer[start:end], source, where)
        id_ = id_of(sample.id, f"sample-{number}")
        if id_ is None:
            tally.skip("the id is neither a string nor a number", where)
            continue
        yield Row(_result(sample, id_, eval_, tally), where)


def _decode_field(buffer: Buffer, parts: Parts, name: str) -> Any:
    """Return a top-level field of the log, or None if it is missing or invalid."""
    if name not in parts.fields:
        return None
    start, end = parts.fields[name]
    try:
        return decode_foreign(buffer[start:end])
    except (ValueError, RecursionError):
        return None


def _decode_sample(raw: bytes, source: Path, where: str) -> LoggedSample:
    """Decode a sample. Raise `ImportFailure` if it is invalid."""
    try:
        try:
            return msgspec.json.decode(raw, type=LoggedSample)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.convert(
                decode_foreign(raw), LoggedSample
            )  # Inspect writes NaN for samples that were not scored
    except (ValueError, RecursionError) as error:
        raise ImportFailure(
            f"{where} cannot be read: {error}",
            file=source,
            hint=HINT,
        ) from None


def _result(sample: LoggedSample, id_: str, eval_: Json, tally: Tally) -> EvalResult:
    output: Json = {}
    if isinstance(sample.output, dict):
        output = sample.output
    response = _response(sample, output)
    dropped = DroppedParts()
    trace = tuple(_trace(sample, dropped))
    trace_complete = None
    if dropped.has("tool_calls"):
        trace_complete = False
    trace_summary = None
    if trace:
        trace_summary = summarize_trace(trace, response)
    return EvalResult(
        timestamp=sample.completed_at or text_of(eval_.get("created", "")),
        eval_id=id_,
        dataset=text_of(eval_.get("task") or "inspect"),
        target=text_of(eval_.get("model") or "inspect"),
        attempt=1,
        trial=max(sample.epoch, 1),
        question=_question(sample),
        reference_answer=_reference(sample.target),
        candidate_answer=response.text,
        answer_digest=answer_digest(msgspec.structs.replace(response, trace=trace)),
        stop_reason=_stop_reason(output),
        note=_limit(sample.limit),
        trace_summary=trace_summary,
        trace=trace or None,
        trace_complete=trace_complete,
        dropped=dropped.records(),
        execution_metrics=_metrics(response),
        metadata=sample.metadata or None,
        **_outcome(sample, tally),
    )


def _response(sample: LoggedSample, output: Json) -> ProviderResponse:
    """Return the answer with its tokens, cost and duration."""
    duration_ms = None
    if sample.total_time is not None:
        duration_ms = round(sample.total_time * 1000, 3)
    usages = _usages(sample.model_usage or {})
    fields: Json = {
        "text": _resolve(_completion(output), sample),
        "token_usage": _token_usage(usages),
        "cost_usd": _cost(usages),
        "duration_ms": duration_ms,
    }
    return response_from(fields)


def _metrics(response: ProviderResponse) -> ExecutionMetrics | None:
    metrics = ExecutionMetrics(
        token_usage=response.token_usage,
        cost_usd=response.cost_usd,
        duration_ms=response.duration_ms,
    )
    if metrics == ExecutionMetrics():
        return None
    return metrics


def _outcome(sample: LoggedSample, tally: Tally) -> dict[str, Any]:
    """Return the fields of a result that hold its score, or the error of a sample that failed."""
    if not isinstance(sample.error, dict):
        return total_score_fields(_scores(sample, tally))
    fields = total_score_fields(())
    fields["failure"] = "target"
    fields["misses"] = ()
    fields["error"] = text_of(sample.error.get("message") or "no reason given")
    traceback = sample.error.get("traceback")
    if traceback:
        fields["error_details"] = str(traceback)
    return fields


def _scores(sample: LoggedSample, tally: Tally) -> Iterator[EvaluatorResult]:
    """Yield the scores that are between 0 and 1. Logs of older versions have a single `score`."""
    scores: dict[str, Any] = {}
    if sample.scores is not None:
        scores = sample.scores
    elif sample.score:
        scores = {"score": sample.score}

    for name, given in scores.items():
        value = given
        explanation = None
        if isinstance(given, dict):
            value = given.get("value")
            explanation = given.get("explanation")
        score = fraction_of(value)
        if score is None:
            tally.note(f"the scorer {name!r} gives {text_of(value)}, which is not between 0 and 1; skipped")
            continue
        reasoning = None
        if isinstance(explanation, str):
            reasoning = _resolve(explanation, sample)
        yield evaluator_result(
            name,
            "inspect",
            score,
            reasoning=reasoning,
            details={"value": value},
        )


def _usages(model_usage: Mapping[str, Any]) -> list[Json]:
    """Return the usage of each model."""
    return [usage for usage in model_usage.values() if isinstance(usage, dict)]


def _token_usage(usages: Sequence[Json]) -> Json | None:
    """Return the tokens of all models together. Inspect reports cached input tokens separately from the others."""
    if not usages:
        return None
    return {
        "input": _total(usages, "input_tokens", "input_tokens_cache_read", "input_tokens_cache_write"),
        "output": _total(usages, "output_tokens"),
        "cached": _total(usages, "input_tokens_cache_read"),
    }


def _total(usages: Sequence[Json], *names: str) -> int | None:
    """Return the sum of these counts over all models, or None if none was reported."""
    counts = []
    for usage in usages:
        for name in names:
            count = usage.get(name)
            if isinstance(count, int):
                counts.append(count)
    if not counts:
        return None
    return sum(counts)


def _cost(usages: Sequence[Json]) -> float | None:
    """Return the cost of all models together in USD, or None if none was reported."""
    costs = []
    for usage in usages:
        cost = usage.get("total_cost")
        if isinstance(cost, int | float):
            costs.append(cost)
    if not costs:
        return None
    return sum(costs)


def _trace(sample: LoggedSample, dropped: DroppedParts) -> Iterator[TraceEvent]:
    """Yield the texts, tool calls and tool results of the agent. Messages of other roles are input."""
    for message in sample.messages or ():
        match message:
            case {"role": "assistant"}:
                text = _message_text(message, sample)
                if text.strip():
                    yield TraceEvent(type="message", text=text)
                for call in read_calls(message.get("tool_calls"), dropped):
                    yield event_of_call(call)
            case {"role": "tool"}:
                yield _tool_result(message, sample)


def _tool_result(message: Json, sample: LoggedSample) -> TraceEvent:
    metadata: Json | None = None
    error = message.get("error")
    if error:
        metadata = {"is_error": True, "error": error}
    return TraceEvent(
        type="tool_result",
        id=_id(message.get("tool_call_id")),
        name=text_of(message.get("function") or "unknown"),
        output=_message_text(message, sample),
        metadata=metadata,
    )


def _id(given: Any) -> str | None:
    if given is None:
        return None
    return str(given)


def _question(sample: LoggedSample) -> str:
    """Return the question: text, or a conversation rendered as agentv renders a prompt."""
    if not isinstance(sample.input, list):
        return _resolve(text_of(sample.input or ""), sample)
    messages = []
    for message in sample.input:
        if isinstance(message, dict) and message.get("role") in ROLES:
            text = _message_text(message, sample)
            messages.append(Message(role=message["role"], content=text))
    if not messages:
        return ""
    case = EvalCase(id="", expected_outcome="", input_messages=tuple(messages))
    return build_request(case, (), Files.INLINE).question


def _message_text(message: Json, sample: LoggedSample) -> str:
    """Return the text of a message, from the attachments if it is long."""
    text = _text(message.get("content"))
    return _resolve(text, sample)


def _text(content: Any) -> str:
    """Return the text in the content of a message, without images and other parts."""
    if isinstance(content, list):
        text_parts = [part for part in content if isinstance(part, dict) and "text" in part]
        content = plain_output(text_parts)
    if not isinstance(content, str):
        return ""
    return content


def _resolve(text: str, sample: LoggedSample) -> str:
    """Return a text, or the attachment that it refers to: Inspect stores long texts separately."""
    if not text.startswith(ATTACHMENT):
        return text
    attachments = sample.attachments or {}
    return attachments.get(text.removeprefix(ATTACHMENT), text)


def _reference(target: Any) -> str | None:
    """Return the target as text, with one line per target if there are several."""
    if not isinstance(target, list):
        target = [target]
    parts = []
    for part in target:
        if part not in (None, ""):
            parts.append(text_of(part))
    return "\n".join(parts) or None


def _completion(output: Json) -> str:
    """Return the answer. Logs of older versions have it in the first choice only."""
    completion = output.get("completion")
    if completion:
        return text_of(completion)
    match output:
        case {"choices": [{"message": {"content": content}}, *_]}:
            return _text(content)
    return ""


def _stop_reason(output: Json) -> str | None:
    match output:
        case {"choices": [{"stop_reason": str(reason)}, *_]}:
            return STOP_REASONS.get(reason, reason)
    return None


def _limit(limit: Any) -> str | None:
    if not isinstance(limit, dict):
        return None
    return f"the sample was stopped at its limit: {limit.get('type')}"
