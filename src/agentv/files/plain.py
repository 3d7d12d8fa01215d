"""Convert the objects of other libraries to plain mappings and JSON values."""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import msgspec


def plain_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return a mapping, or an object as a mapping of its attributes. Return None for anything else.

    Vendors' SDKs return pydantic models; users return dataclasses, named tuples and structs too.
    """
    if isinstance(value, Mapping):
        return value
    if value is None or isinstance(value, type | str | bytes | int | float | list | set | frozenset):
        return None
    for name in ("model_dump", "_asdict"):
        convert = getattr(value, name, None)
        if callable(convert):
            found = convert()
            return plain_mapping(found)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return getattr(value, "__dict__", None)


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a sequence other than text and bytes."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def json_value(text: Any) -> Any:
    """Decode a text that is a JSON object or array. Return any other value unchanged."""
    if not isinstance(text, str):
        return text
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text


def json_mapping(value: Any) -> dict[str, Any] | None:
    """Return a mapping whose values are plain JSON values, or None if that is not possible.

    Values of other types are converted: objects to mappings, arrays and numbers of numpy to lists and numbers, and
    anything else to text.
    """
    mapping = plain_mapping(value)
    if mapping is None:
        return None
    try:
        plain: dict[str, Any] = msgspec.to_builtins(dict(mapping), enc_hook=_plain, str_keys=True)
        msgspec.json.encode(plain)
    except (TypeError, ValueError, RecursionError):
        return None
    return plain


def _plain(value: Any) -> Any:
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        return to_list()
    if isinstance(value, datetime.date):  # a subclass, such as a timestamp of pandas
        return value.isoformat()
    mapping = plain_mapping(value)
    if mapping is None:
        return str(value)
    return dict(mapping)
