"""Read spans and log events from OTLP documents. Documents come from other programs: any field may be invalid."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentv.records import Json

ERROR_STATUS = 2
CASE_ID = "test.case.id"
Event = tuple[str, Mapping[str, Any]]
"""The name of an event, and its attributes."""


class Span(NamedTuple):
    """One operation of a program, with its attributes and events. Times are in nanoseconds."""

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
    """An event of a span that was sent as a log record."""

    trace_id: str
    span_id: str
    event: Event


def spans_of(document: Any) -> Iterator[Span]:
    """Yield the spans of an OTLP document in its JSON form. Skip invalid spans."""
    for resource in _dicts_at(document, "resourceSpans"):
        resource_fields = _dict_at(resource, "resource")
        resource_attributes = _attributes(resource_fields.get("attributes"))
        # `instrumentationLibrarySpans` is the name of `scopeSpans` in old versions of OTLP.
        for key in ("scopeSpans", "instrumentationLibrarySpans"):
            for scope in _dicts_at(resource, key):
                for raw in _dicts_at(scope, "spans"):
                    if isinstance(raw.get("traceId"), str):
                        yield _span(raw, resource_attributes)


def log_events_of(document: Any) -> Iterator[LogEvent]:
    """Yield the log records of an OTLP document in its JSON form that are events: those with a name."""
    for resource in _dicts_at(document, "resourceLogs"):
        for scope in _dicts_at(resource, "scopeLogs"):
            for raw in _dicts_at(scope, "logRecords"):
                event = _log_event(raw)
                if event is not None:
                    yield event


def _log_event(raw: Json) -> LogEvent | None:
    """Return a log record as an event, or None if it has no trace or no name."""
    attributes = _attributes(raw.get("attributes"))
    name = raw.get("eventName") or attributes.get("event.name")
    trace_id = raw.get("traceId")
    if not isinstance(trace_id, str):
        return None
    if not isinstance(name, str):
        return None
    body = _any_value(raw.get("body"))
    if isinstance(body, dict):
        attributes |= body
    else:
        attributes["body"] = body
    return LogEvent(
        trace_id=trace_id.lower(),
        span_id=_id(raw.get("spanId")),
        event=(name, attributes),
    )


def add_log_events(spans: Iterable[Span], events: Iterable[LogEvent]) -> list[Span]:
    """Return the spans, each with the events that were sent for it as log records."""
    events_by_span: dict[tuple[str, str], list[Event]] = {}
    for log_event in events:
        key = (log_event.trace_id, log_event.span_id)
        of_span = events_by_span.setdefault(key, [])
        of_span.append(log_event.event)
    found = []
    for span in spans:
        key = (span.trace_id, span.span_id)
        added = events_by_span.get(key)
        if added is None:
            found.append(span)
        else:
            all_events = [*span.events, *added]
            found.append(span._replace(events=all_events))
    return found


def _span(raw: Json, resource_attributes: Mapping[str, Any]) -> Span:
    attributes = _attributes(raw.get("attributes"))
    if CASE_ID in resource_attributes:
        attributes[CASE_ID] = resource_attributes[CASE_ID]
    status = _dict_at(raw, "status")
    events = [_event(event) for event in _dicts_at(raw, "events")]
    return Span(
        trace_id=raw["traceId"].lower(),
        span_id=_id(raw.get("spanId")),
        parent_id=_id(raw.get("parentSpanId")),
        name=str(raw.get("name") or ""),
        start=_int(raw.get("startTimeUnixNano")),
        end=_int(raw.get("endTimeUnixNano")),
        attributes=attributes,
        events=events,
        is_error=status.get("code") in (ERROR_STATUS, "STATUS_CODE_ERROR"),
        error=str(status.get("message") or ""),
    )


def _event(raw: Json) -> Event:
    name = str(raw.get("name", ""))
    return name, _attributes(raw.get("attributes"))


def _id(raw: Any) -> str:
    """Return the id of a span in lower case, as senders differ."""
    return str(raw or "").lower()


def _attributes(raw: Any) -> dict[str, Any]:
    """Return a list of OTLP `KeyValue` objects as a dictionary. Skip invalid entries."""
    attributes = {}
    for entry in dicts(raw):
        key = entry.get("key")
        if isinstance(key, str):
            attributes[key] = _any_value(entry.get("value"))
    return attributes


def _any_value(raw: Any) -> Any:
    """Return the value of an OTLP `AnyValue`."""
    match raw:
        case {"stringValue": value} | {"boolValue": value} | {"doubleValue": value}:
            return value
        case {"intValue": value}:
            return _int(value)
        case {"arrayValue": {"values": list(values)}}:
            return [_any_value(value) for value in values]
        case {"kvlistValue": {"values": list(values)}}:
            return _attributes(values)
    return None


def _int(value: Any) -> int:
    """Return a 64-bit integer, which OTLP in JSON writes as text. Return 0 for an invalid one."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def dicts(value: Any) -> Iterator[Json]:
    """Yield the objects in a list. Yield nothing if the value is not a list."""
    if not isinstance(value, list):
        return
    for item in value:
        if isinstance(item, dict):
            yield item


def _dicts_at(value: Any, name: str) -> Iterator[Json]:
    """Yield the objects in a list that is a field of an object."""
    if isinstance(value, dict):
        yield from dicts(value.get(name))


def _dict_at(value: Json, name: str) -> Json:
    """Return an object that is a field of another, or an empty one."""
    found = value.get(name)
    if not isinstance(found, dict):
        return {}
    return found
