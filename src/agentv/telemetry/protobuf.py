"""OTLP in protobuf -> the same document as OTLP in JSON has it, so that one reader serves both.

The protobuf package is heavy, and needs generated code. A wire format of four kinds of fields and the dozen messages
that we read are less: fields that are in no table are passed over, as protobuf wants it.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

MOST_NESTED = 50
"""How deep messages may be nested: as deep as a value of a value can be, and then some."""


class ProtobufError(ValueError):
    """The data is no such message."""


class _Field(NamedTuple):
    """A field of a message: its name in JSON, and how its value is read, unless it is a message itself."""

    name: str
    read: "Callable[[Any], Any] | None" = None
    message: "dict[int, _Field] | None" = None
    is_list: bool = False


def _text(raw: Any) -> str:
    return bytes(raw).decode("utf-8", "replace")


def _hex(raw: Any) -> str:
    return bytes(raw).hex()


def _signed(raw: Any) -> int:
    return raw - (1 << 64) if raw >= 1 << 63 else int(raw)


def _double(raw: Any) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", raw))[0]
    return value


def _list_of(name: str, message: "dict[int, _Field]") -> _Field:
    return _Field(name, message=message, is_list=True)


_VALUE: dict[int, _Field] = {}
_ATTRIBUTE = {1: _Field("key", _text), 2: _Field("value", message=_VALUE)}
_VALUE |= {
    1: _Field("stringValue", _text),
    2: _Field("boolValue", bool),
    3: _Field("intValue", _signed),
    4: _Field("doubleValue", _double),
    5: _Field("arrayValue", message={1: _list_of("values", _VALUE)}),
    6: _Field("kvlistValue", message={1: _list_of("values", _ATTRIBUTE)}),
}
_RESOURCE = {1: _list_of("attributes", _ATTRIBUTE)}
_EVENT = {2: _Field("name", _text), 3: _list_of("attributes", _ATTRIBUTE)}
_SPAN = {
    1: _Field("traceId", _hex),
    2: _Field("spanId", _hex),
    4: _Field("parentSpanId", _hex),
    5: _Field("name", _text),
    7: _Field("startTimeUnixNano", int),
    8: _Field("endTimeUnixNano", int),
    9: _list_of("attributes", _ATTRIBUTE),
    11: _list_of("events", _EVENT),
    15: _Field("status", message={2: _Field("message", _text), 3: _Field("code", int)}),
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


def _request(top: str, inner: str, items: str, item: "dict[int, _Field]") -> "dict[int, _Field]":
    scope = {2: _list_of(items, item)}
    return {1: _list_of(top, {1: _Field("resource", message=_RESOURCE), 2: _list_of(inner, scope)})}


_TRACES = _request("resourceSpans", "scopeSpans", "spans", _SPAN)
_LOGS = _request("resourceLogs", "scopeLogs", "logRecords", _LOG_RECORD)


def decode_traces(data: bytes) -> dict[str, Any]:
    """Return an `ExportTraceServiceRequest` as OTLP in JSON has it; raise `ProtobufError` if it is none."""
    return _decode(memoryview(data), _TRACES, 0)


def decode_logs(data: bytes) -> dict[str, Any]:
    """Return an `ExportLogsServiceRequest` as OTLP in JSON has it; raise `ProtobufError` if it is none."""
    return _decode(memoryview(data), _LOGS, 0)


def encode_rejected(count: int, message: str) -> bytes:
    """Return the answer that says how many spans, or log records, were not taken, and why."""
    text = message.encode()
    inner = b"\x08" + _varint(count) + b"\x12" + _varint(len(text)) + text
    return b"\x0a" + _varint(len(inner)) + inner


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _decode(data: memoryview, fields: dict[int, _Field], depth: int) -> dict[str, Any]:
    """Return a message by the names of its fields."""
    if depth > MOST_NESTED:
        raise ProtobufError(f"messages are nested more than {MOST_NESTED} deep")
    found: dict[str, Any] = {}
    at, end = 0, len(data)
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
                raise ProtobufError(f"there is no field of kind {kind}")
        if (field := fields.get(tag >> 3)) is not None:
            _add(found, field, raw, depth)
    return found


def _add(found: dict[str, Any], field: _Field, raw: Any, depth: int) -> None:
    """Add the value of a field to what is known of a message."""
    is_data = isinstance(raw, memoryview)
    if field.message is not None:
        if not is_data:
            raise ProtobufError(f"{field.name} is no message")
        value: Any = _decode(raw, field.message, depth + 1)
    elif field.read is None or is_data != (field.read in (_text, _hex)):
        raise ProtobufError(f"{field.name} is of another kind")
    else:
        value = field.read(raw)
    if field.is_list:
        found.setdefault(field.name, []).append(value)
    else:
        found[field.name] = value


def _read_bytes(data: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    end = at + size
    if end > len(data):
        raise ProtobufError("it is cut off")
    return data[at:end], end


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number and where the next field begins."""
    try:
        byte = data[at]
        if byte < 0x80:  # as most are
            return byte, at + 1
        value, shift = byte & 0x7F, 7
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
        raise ProtobufError("it is cut off") from None
