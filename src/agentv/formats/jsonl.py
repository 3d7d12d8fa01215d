"""JSONL text -> blocks of lines, and where things stand in a line."""

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from agentv.formats.yaml import TOO_DEEP, Steps, line_and_column, utf8_words

BLOCK_BYTES = 64 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024


def line_blocks(file: BinaryIO, *, longest: int = MAX_LINE_BYTES) -> Iterator[list[bytes]]:
    """The lines of a file, without line feeds or a byte-order mark, as many at a time as one read brings.

    A line much longer than `longest` ends it with `OverflowError`.
    """
    rest = file.read(3).removeprefix(b"\xef\xbb\xbf")
    while chunk := file.read(max(BLOCK_BYTES, len(rest))):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if lines:
            yield lines
        if len(rest) > longest:
            raise OverflowError("a line is too long")
    if rest:
        yield [rest]


def bad_json(raw: bytes, reason: Exception) -> tuple[str, int]:
    """What is wrong with a line that is no JSON, and in which column.

    `reason` is what the decoder said; the standard library's parser often says it better.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as problem:
        return utf8_words(problem), line_and_column(raw[: problem.start])[1]
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as problem:
        return f"Invalid JSON: {problem.msg}", problem.pos + 1
    except RecursionError:
        return TOO_DEEP, 1
    except ValueError as problem:
        return f"Invalid JSON: {problem}", 1
    if "surrogate" in str(reason) or "truncated" in str(reason):
        return "Invalid JSON: half of a surrogate pair (\\ud800 to \\udfff) stands alone", 1
    return f"Invalid JSON: {str(reason).partition(' - at ')[0]}", 1


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def column_in_json(text: str, steps: Steps) -> int:
    """The column at which the value at the end of `steps` stands in a line of JSON.

    A field stands where its key stands; what is not there, where the value around it stands.
    """
    try:
        return _find(text, steps) + 1
    except (ValueError, IndexError, RecursionError):
        return 1


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def _find(text: str, steps: Steps) -> int:
    found = at = _skip_space(text, 0)
    for step in steps:
        inside = _field(text, at, step) if isinstance(step, str) else _item(text, at, step)
        if inside is None:
            return found
        found, at = inside
    return found


def _field(text: str, at: int, name: str) -> tuple[int, int] | None:
    """Where the last field `name` of the object at `at` has its key and its value."""
    found = None
    while text[at] in "{,":
        key_at = _skip_space(text, at + 1)
        key, at = _DECODER.raw_decode(text, key_at)
        value_at = _skip_space(text, _skip_space(text, at) + 1)
        if key == name:
            found = key_at, value_at
        at = _skip_space(text, _DECODER.raw_decode(text, value_at)[1])
    return found


def _item(text: str, at: int, index: int) -> tuple[int, int] | None:
    for _ in range(index + 1):
        if text[at] not in "[,":
            return None
        value_at = _skip_space(text, at + 1)
        at = _skip_space(text, _DECODER.raw_decode(text, value_at)[1])
    return value_at, value_at


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
