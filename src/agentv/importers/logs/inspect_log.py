"""A log of Inspect in JSON -> results: a sample is a result, an epoch a trial.

Its samples are decoded one at a time, without their events, which are most of a log.
"""

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentv.cases.request import Files, build_request
from agentv.errors import AgentvError
from agentv.formats.wire import response_from, text_of
from agentv.formats.yaml import open_regular, read_error
from agentv.importers.datasets.rows import id_of
from agentv.importers.importer import Becomes, Importer, ImportFailure, Row, Tally
from agentv.importers.logs.json_parts import Buffer, Parts, find_parts
from agentv.importers.logs.scores import evaluator_result, fraction_of, total_of
from agentv.importers.sample import Sample, decode
from agentv.importers.transcripts.session import plain_output
from agentv.records import EvalCase, EvalResult, EvaluatorResult, ExecutionMetrics, Json, Message, TraceEvent
from agentv.telemetry.trace import summarize_trace

ATTACHMENT = "attachment://"
STOP_REASONS = {"max_tokens": "length", "model_length": "length", "content_filter": "refusal", "unknown": "other"}
"""Inspect's words for why a model stopped, where they are not ours."""
HINT = "'inspect log dump FILE > log.json' makes JSON of a log"


class LoggedSample(msgspec.Struct, kw_only=True):
    """A sample as it is logged; its events are skipped while it is decoded."""

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
        return text.startswith("{") and '"eval"' in text and ('"eval_id"' in text or '"run_id"' in text)

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        try:
            with open_regular(source) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as buffer:
                yield from _rows(buffer, source, tally)
        except OSError as error:
            raise read_error(error, source, AgentvError) from error


def _rows(buffer: Buffer, source: Path, tally: Tally) -> Iterator[Row]:
    try:
        parts = find_parts(buffer, "samples")
    except ValueError as error:
        raise ImportFailure(f"this is no log of Inspect in JSON: {error}", file=source, hint=HINT) from None
    eval_ = _decode(buffer, parts, "eval")
    if not isinstance(eval_, dict):
        names = ", ".join(map(repr, parts.fields)) or "none"
        raise ImportFailure(f"a log of Inspect has a field 'eval': here are {names}", file=source, hint=HINT)
    for number, (start, end) in enumerate(zip(parts.starts, parts.ends, strict=True), 1):
        where = f"sample {number}"
        tally.read += 1
        sample = _sample(buffer[start:end], source, where)
        if (id_ := id_of(sample.id, f"sample-{number}")) is None:
            tally.skip("the id is neither text nor a number", where)
            continue
        yield Row(_result(sample, id_, eval_, tally), where)


def _decode(buffer: Buffer, parts: Parts, name: str) -> Any:
    if name not in parts.fields:
        return None
    start, end = parts.fields[name]
    try:
        return decode(buffer[start:end])
    except (ValueError, RecursionError):
        return None


def _sample(raw: bytes, source: Path, where: str) -> LoggedSample:
    try:
        try:
            return msgspec.json.decode(raw, type=LoggedSample)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.convert(decode(raw), LoggedSample)  # Inspect writes NaN for what was not scored
    except (ValueError, RecursionError) as error:
        raise ImportFailure(f"{where} cannot be read: {error}", file=source, hint=HINT) from None


def _result(sample: LoggedSample, id_: str, eval_: Json, tally: Tally) -> EvalResult:
    output = sample.output if isinstance(sample.output, dict) else {}
    trace = tuple(_trace(sample))
    usage, cost = _usage(sample.model_usage or {})
    took = None if sample.total_time is None else round(sample.total_time * 1000, 3)
    figures = {"token_usage": usage, "cost_usd": cost, "duration_ms": took}
    response = response_from({"text": _attached(_completion(output), sample), **figures})
    error = sample.error if isinstance(sample.error, dict) else None
    total = total_of(_scores(sample, tally) if error is None else ())
    if error is not None:
        total |= {"failure": "target", "misses": ()}
    metrics = ExecutionMetrics(
        token_usage=response.token_usage, cost_usd=response.cost_usd, duration_ms=response.duration_ms
    )
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
        stop_reason=_stop_reason(output),
        note=_limit(sample.limit),
        trace_summary=summarize_trace(trace, response) if trace else None,
        trace=trace or None,
        execution_metrics=None if metrics == ExecutionMetrics() else metrics,
        error=text_of(error.get("message") or "it does not say why") if error is not None else None,
        error_details=str(error["traceback"]) if error is not None and error.get("traceback") else None,
        metadata=sample.metadata or None,
        **total,
    )


def _scores(sample: LoggedSample, tally: Tally) -> Iterator[EvaluatorResult]:
    scores = sample.scores if sample.scores is not None else {"score": sample.score} if sample.score else {}
    for name, given in scores.items():
        value = given.get("value") if isinstance(given, dict) else given
        score = fraction_of(value)
        if score is None:
            tally.note(f"the scorer {name!r} gives {text_of(value)}, which is not between 0 and 1: it is left out")
            continue
        explanation = given.get("explanation") if isinstance(given, dict) else None
        reasoning = _attached(explanation, sample) if isinstance(explanation, str) else None
        yield evaluator_result(name, "inspect", score, reasoning=reasoning, details={"value": value})


def _usage(usage: Mapping[str, Any]) -> tuple[Json | None, float | None]:
    """Return the tokens and the price of all models together. Inspect counts the cached tokens apart."""
    given = [each for each in usage.values() if isinstance(each, dict)]

    def total(*names: str) -> int | None:
        found = [each[name] for each in given for name in names if isinstance(each.get(name), int)]
        return sum(found) if found else None

    cached = total("input_tokens_cache_read")
    entire = total("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    costs = [each["total_cost"] for each in given if isinstance(each.get("total_cost"), int | float)]
    tokens = {"input": entire, "output": total("output_tokens"), "cached": cached}
    return (tokens if given else None), (sum(costs) if costs else None)


def _trace(sample: LoggedSample) -> Iterator[TraceEvent]:
    """Yield what the agent said and did. What stands before its first message is what it was asked."""
    for message in sample.messages or ():
        match message:
            case {"role": "assistant"}:
                text = _attached(_text(message.get("content")), sample)
                if text.strip():
                    yield TraceEvent(type="message", text=text)
                calls = message.get("tool_calls")
                yield from (
                    _call(call) for call in (calls if isinstance(calls, list) else ()) if isinstance(call, dict)
                )
            case {"role": "tool"}:
                failed = message.get("error")
                yield TraceEvent(
                    type="tool_result",
                    id=_id(message.get("tool_call_id")),
                    name=text_of(message.get("function") or "unknown"),
                    output=_attached(_text(message.get("content")), sample),
                    metadata={"is_error": True, "error": failed} if failed else None,
                )


def _call(call: Json) -> TraceEvent:
    name = text_of(call.get("function") or "unknown")
    return TraceEvent(type="tool_call", id=_id(call.get("id")), name=name, input=call.get("arguments"))


def _id(given: Any) -> str | None:
    return None if given is None else str(given)


def _question(sample: LoggedSample) -> str:
    """Return what was asked: a text, or the turns of a conversation as a prompt has them."""
    if not isinstance(sample.input, list):
        return _attached(text_of(sample.input or ""), sample)
    messages = [
        Message(role=role, content=_attached(_text(message.get("content")), sample))
        for message in sample.input
        if isinstance(message, dict) and (role := message.get("role")) in ("system", "user", "assistant", "tool")
    ]
    case = EvalCase(id="", expected_outcome="", input_messages=tuple(messages))
    return build_request(case, (), Files.INLINE).question if messages else ""


def _text(content: Any) -> str:
    """Return the text of a message; pictures and such are left out."""
    if isinstance(content, list):
        content = plain_output([part for part in content if isinstance(part, dict) and "text" in part])
    return content if isinstance(content, str) else ""


def _attached(text: str, sample: LoggedSample) -> str:
    """Return a text, which Inspect keeps apart if it is long."""
    if not text.startswith(ATTACHMENT):
        return text
    return (sample.attachments or {}).get(text.removeprefix(ATTACHMENT), text)


def _reference(target: Any) -> str | None:
    parts = [text_of(part) for part in (target if isinstance(target, list) else [target]) if part not in (None, "")]
    return "\n".join(parts) or None


def _completion(output: Json) -> str:
    """Return the answer; logs of older versions have it in the first choice only."""
    if completion := output.get("completion"):
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
    return f"the sample was stopped at its limit: {limit.get('type')}" if isinstance(limit, dict) else None
