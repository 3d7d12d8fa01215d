"""Read the events of a trace, tool calls in the shapes of vendors included."""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from agentv.files.dropped import DroppedParts
from agentv.files.messages import read_messages
from agentv.files.plain import is_list, plain_mapping
from agentv.files.tool_calls import (
    Entry,
    is_result,
    looks_like_call,
    read_call,
    read_calls,
    read_result,
    valid_timestamp,
)
from agentv.records import Message, ToolCall, TraceEvent, TraceKind

KINDS = get_args(TraceKind)


def read_trace(raw: Any, dropped: DroppedParts) -> tuple[TraceEvent, ...] | None:
    """Return the events of a list; None if it is not a list. What cannot be read is counted in `dropped`."""
    if not is_list(raw):
        return None
    events: list[TraceEvent] = []
    for entry in raw:
        events += _read_events(entry, dropped)
    return tuple(events)


def events_of_calls(messages: Sequence[Message]) -> list[TraceEvent]:
    """Return the tool calls of messages as events."""
    events = []
    for message in messages:
        for call in message.tool_calls or ():
            events.append(event_of_call(call))
    return events


def event_of_call(call: ToolCall) -> TraceEvent:
    """Return a tool call as an event."""
    return TraceEvent(
        type="tool_call",
        id=call.id,
        name=call.tool,
        input=call.input,
        output=call.output,
        timestamp=call.timestamp,
        metadata=call.metadata,
    )


def _read_events(raw: Any, dropped: DroppedParts) -> list[TraceEvent]:
    """Return the event in an entry, and its tool calls if it has a list of them, as a message has."""
    if isinstance(raw, TraceEvent):
        return [raw]
    entry = plain_mapping(raw)
    if entry is None:
        dropped.add("trace_events", raw)
        return []
    if entry.get("role") is not None and entry.get("type") not in KINDS:
        messages = read_messages([entry], dropped)
        return events_of_calls(messages or ())
    events = []
    event = _read_event(entry, dropped)
    if event is not None:
        events.append(event)
    for call in read_calls(entry.get("tool_calls"), dropped):
        events.append(event_of_call(call))
    return events


def _read_event(entry: Entry, dropped: DroppedParts) -> TraceEvent | None:
    kind = entry.get("type")
    if is_result(entry):
        return _read_result_event(entry)
    if kind == "tool_call" or (kind not in KINDS and looks_like_call(entry)):
        call = read_call(entry)
        if call is None:
            dropped.add("tool_calls", entry)
            return None
        text = entry.get("text")
        if not isinstance(text, str):
            text = None
        return msgspec.structs.replace(event_of_call(call), text=text)
    try:
        event = msgspec.convert(entry, TraceEvent)
    except msgspec.ValidationError:
        event = None
    if event is None or (event.timestamp is not None and valid_timestamp(event.timestamp) is None):
        dropped.add("trace_events", entry)
        return None
    return event


def _read_result_event(entry: Entry) -> TraceEvent:
    result = read_result(entry)
    metadata = plain_mapping(entry.get("metadata"))
    if result.is_error:
        metadata = {**(metadata or {}), "is_error": True}
    text = entry.get("text")
    if not isinstance(text, str):
        text = None
    if metadata is not None:
        metadata = dict(metadata)
    return TraceEvent(
        type="tool_result",
        timestamp=valid_timestamp(entry.get("timestamp")),
        id=result.id,
        name=result.name,
        input=entry.get("input"),
        output=result.output,
        text=text,
        metadata=metadata,
    )
