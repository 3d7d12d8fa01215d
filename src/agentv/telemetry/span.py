"""OTLP documents -> spans, and events of theirs. They come from other programs: anything may be missing or odd."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentv.records import Json

ERROR_STATUS = 2
CASE_ID = "test.case.id"
Event = tuple[str, Mapping[str, Any]]
"""The name of an event, and what is known of it."""


class Span(NamedTuple):
    """One step of a program: when it began and ended, in nanoseconds, and what is known of it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    events: Sequence[Event] = ()
    is_error: bool = False
    error: str = ""


class LogEvent(NamedTuple):
    """An event that was recorded as a log record: it belongs to a span."""

    trace_id: str
    span_id: str
    event: Event


def spans_of(document: Any) -> Iterator[Span]:
    """Yield the spans of an OTLP document that is given as JSON; what is no span is left out."""
    for resource in _dicts(document, "resourceSpans"):
        shared = _attributes(_get(resource, "resource", dict).get("attributes"))
        for scope in [*_dicts(resource, "scopeSpans"), *_dicts(resource, "instrumentationLibrarySpans")]:
            for raw in _dicts(scope, "spans"):
                if isinstance(raw.get("traceId"), str):
                    yield _span(raw, shared)


def log_events_of(document: Any) -> Iterator[LogEvent]:
    """Yield the events among the log records of an OTLP document that is given as JSON: those that have a name."""
    for resource in _dicts(document, "resourceLogs"):
        for scope in _dicts(resource, "scopeLogs"):
            for raw in _dicts(scope, "logRecords"):
                attributes, body = _attributes(raw.get("attributes")), _any_value(raw.get("body"))
                name = raw.get("eventName") or attributes.get("event.name")
                if isinstance(raw.get("traceId"), str) and isinstance(name, str):
                    known = attributes | (body if isinstance(body, dict) else {"body": body})
                    yield LogEvent(raw["traceId"].lower(), str(raw.get("spanId") or "").lower(), (name, known))


def add_log_events(spans: Iterable[Span], events: Iterable[LogEvent]) -> list[Span]:
    """Return the spans, each with the events that were recorded for it as log records."""
    found: dict[tuple[str, str], list[Event]] = {}
    for each in events:
        found.setdefault((each.trace_id, each.span_id), []).append(each.event)
    return [
        span._replace(events=[*span.events, *found[key]]) if (key := (span.trace_id, span.span_id)) in found else span
        for span in spans
    ]


def _span(raw: Json, shared: Mapping[str, Any]) -> Span:
    status = _get(raw, "status", dict)
    events = [(str(event.get("name", "")), _attributes(event.get("attributes"))) for event in _dicts(raw, "events")]
    return Span(
        trace_id=raw["traceId"].lower(),
        span_id=str(raw.get("spanId") or "").lower(),
        parent_id=str(raw.get("parentSpanId") or "").lower(),
        name=str(raw.get("name") or ""),
        start=_whole(raw.get("startTimeUnixNano")),
        end=_whole(raw.get("endTimeUnixNano")),
        attributes=_attributes(raw.get("attributes")) | ({CASE_ID: shared[CASE_ID]} if CASE_ID in shared else {}),
        events=events,
        is_error=status.get("code") in (ERROR_STATUS, "STATUS_CODE_ERROR"),
        error=str(status.get("message") or ""),
    )


def _attributes(raw: Any) -> dict[str, Any]:
    entries = raw if isinstance(raw, list) else ()
    return {
        entry["key"]: _any_value(entry.get("value"))
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("key"), str)
    }


def _any_value(raw: Any) -> Any:
    """Return the value of an OTLP `AnyValue`."""
    match raw:
        case {"stringValue": value} | {"boolValue": value} | {"doubleValue": value}:
            return value
        case {"intValue": value}:
            return _whole(value)
        case {"arrayValue": {"values": list(values)}}:
            return [_any_value(value) for value in values]
        case {"kvlistValue": {"values": list(values)}}:
            return _attributes(values)
    return None


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def _dicts(value: Any, name: str) -> Iterator[Json]:
    found = value.get(name) if isinstance(value, dict) else None
    return (each for each in (found if isinstance(found, list) else ()) if isinstance(each, dict))


def _get(value: Json, name: str, type_: type) -> Any:
    found = value.get(name)
    return found if isinstance(found, type_) else type_()
