"""Decode OTLP in protobuf to the JSON form of OTLP, so that one reader supports both.

The protobuf package is heavy and needs generated code. Reading four wire types and a dozen messages takes less.
Fields that are in no table are skipped, as protobuf requires.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

MAX_NESTING = 50
"""The maximum depth of nested messages. Only values in values can be nested deeply."""


class ProtobufError(ValueError):
    """The data is not a valid message."""


class _Field(NamedTuple):
    """A field of a message: its name in JSON, and how to read its value."""

    name: str
    read: "Callable[[Any], Any] | None" = None
    """Converts the value. None if the value is a message."""
    message: "dict[int, _Field] | None" = None
    """The fields of the message that is the value."""
    is_list: bool = False


def _text(raw: Any) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _hex(raw: Any) -> str:
    return bytes(raw).hex()


def _signed(raw: Any) -> int:
    if raw >= 1 << 63:
        return int(raw - (1 << 64))
    return int(raw)


def _double(raw: Any) -> float:
    data = struct.pack("<Q", raw)
    value: float = struct.unpack("<d", data)[0]
    return value


def _list_of(name: str, message: "dict[int, _Field]") -> _Field:
    return _Field(name, message=message, is_list=True)


_VALUE: dict[int, _Field] = {}  # filled below, as values contain attributes and attributes contain values
_ATTRIBUTE = {
    1: _Field("key", _text),
    2: _Field("value", message=_VALUE),
}
_ARRAY = {1: _list_of("values", _VALUE)}
_KEY_VALUE_LIST = {1: _list_of("values", _ATTRIBUTE)}
_VALUE |= {
    1: _Field("stringValue", _text),
    2: _Field("boolValue", bool),
    3: _Field("intValue", _signed),
    4: _Field("doubleValue", _double),
    5: _Field("arrayValue", message=_ARRAY),
    6: _Field("kvlistValue", message=_KEY_VALUE_LIST),
}
_RESOURCE = {1: _list_of("attributes", _ATTRIBUTE)}
_EVENT = {
    2: _Field("name", _text),
    3: _list_of("attributes", _ATTRIBUTE),
}
_STATUS = {
    2: _Field("message", _text),
    3: _Field("code", int),
}
_SPAN = {
    1: _Field("traceId", _hex),
    2: _Field("spanId", _hex),
    4: _Field("parentSpanId", _hex),
    5: _Field("name", _text),
    7: _Field("startTimeUnixNano", int),
    8: _Field("endTimeUnixNano", int),
    9: _list_of("attributes", _ATTRIBUTE),
    11: _list_of("events", _EVENT),
    15: _Field("status", message=_STATUS),
}
_LOG_RECORD = {
    1: _Field("timeUnixNano", int),
    5: _Field("body", message=_VALUE),
    6: _list_of("attributes", _ATTRIBUTE),
    9: _Field("traceId", _hex),
    10: _Field("spanId", _hex),
    11: _Field("observedTimeUnixNano", int),
    12: _Field("eventName", _text),
}


_SCOPE_SPANS = {2: _list_of("spans", _SPAN)}
_RESOURCE_SPANS = {
    1: _Field("resource", message=_RESOURCE),
    2: _list_of("scopeSpans", _SCOPE_SPANS),
}
_TRACES = {1: _list_of("resourceSpans", _RESOURCE_SPANS)}
_SCOPE_LOGS = {2: _list_of("logRecords", _LOG_RECORD)}
_RESOURCE_LOGS = {
    1: _Field("resource", message=_RESOURCE),
    2: _list_of("scopeLogs", _SCOPE_LOGS),
}
_LOGS = {1: _list_of("resourceLogs", _RESOURCE_LOGS)}


def decode_traces(data: bytes) -> dict[str, Any]:
    """Decode an `ExportTraceServiceRequest` to its JSON form. Raise `ProtobufError` if it is invalid."""
    return _decode(memoryview(data), _TRACES, 0)


def decode_logs(data: bytes) -> dict[str, Any]:
    """Decode an `ExportLogsServiceRequest` to its JSON form. Raise `ProtobufError` if it is invalid."""
    return _decode(memoryview(data), _LOGS, 0)


def encode_rejected(count: int, message: str) -> bytes:
    """Encode a response with a `partial_success`: how many spans or log records were rejected, and why."""
    text = message.encode()
    partial_success = b"\x08" + _varint(count) + b"\x12" + _varint(len(text)) + text
    return b"\x0a" + _varint(len(partial_success)) + partial_success


def _varint(value: int) -> bytes:
    """Encode a number, seven bits per byte. All bytes but the last have the high bit set."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _decode(
    data: memoryview,
    fields: dict[int, _Field],
    depth: int,
) -> dict[str, Any]:
    """Decode a message to a dictionary with the JSON names of its fields."""
    if depth > MAX_NESTING:
        raise ProtobufError(f"messages are nested more than {MAX_NESTING} deep")
    found: dict[str, Any] = {}
    at = 0
    end = len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        raw: Any
        match tag & 7:
            case 0:
                raw, at = _read_varint(data, at)
            case 1:
                raw, at = _read_bytes(data, at, 8)
                raw = int.from_bytes(raw, "little")
            case 2:
                size, at = _read_varint(data, at)
                raw, at = _read_bytes(data, at, size)
            case 5:
                raw, at = _read_bytes(data, at, 4)
                raw = int.from_bytes(raw, "little")
            case kind:
                raise ProtobufError(f"unknown wire type {kind}")
        field = fields.get(tag >> 3)
        if field is not None:
            _add(found, field, raw, depth)
    return found


def _add(
    found: dict[str, Any],
    field: _Field,
    raw: Any,
    depth: int,
) -> None:
    """Add the value of a field to a message. Raise `ProtobufError` if its wire type does not fit the field."""
    is_data = isinstance(raw, memoryview)
    needs_data = field.read in (_text, _hex)
    if field.message is not None:
        if not is_data:
            raise ProtobufError(f"{field.name} is not a message")
        value: Any = _decode(raw, field.message, depth + 1)
    elif field.read is None or is_data != needs_data:
        raise ProtobufError(f"{field.name} has a wrong type")
    else:
        value = field.read(raw)
    if field.is_list:
        found.setdefault(field.name, []).append(value)
    else:
        found[field.name] = value


def _read_bytes(
    data: memoryview,
    at: int,
    size: int,
) -> tuple[memoryview, int]:
    """Return the next bytes, and the position after them."""
    end = at + size
    if end > len(data):
        raise ProtobufError("it is truncated")
    return data[at:end], end


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number, and the position after it."""
    try:
        byte = data[at]
        if byte < 0x80:  # one byte, as most tags and lengths are
            return byte, at + 1
        value = byte & 0x7F
        shift = 7
        while True:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at + 1
            shift += 7
            if shift > 63:
                raise ProtobufError("a number has more than ten bytes")
    except IndexError:
        raise ProtobufError("it is truncated") from None
