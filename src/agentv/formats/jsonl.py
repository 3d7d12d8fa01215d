"""JSONL text -> blocks of lines, and the columns of values in a line."""

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from agentv.formats.yaml import TOO_DEEP, Steps, line_and_column, utf8_error_message

BLOCK_BYTES = 64 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024


def line_blocks(file: BinaryIO, *, longest: int = MAX_LINE_BYTES) -> Iterator[list[bytes]]:
    """Yield the lines of a file in blocks, without line feeds or a byte-order mark.

    Raise `OverflowError` at a line much longer than `longest`.
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


def explain_json_error(raw: bytes, reason: Exception) -> tuple[str, int]:
    """Return what is wrong with a line that is no JSON, and the column.

    `reason` is the error of the decoder. The standard library's parser is asked too, as its message is often better.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as problem:
        return utf8_error_message(problem), line_and_column(raw[: problem.start])[1]
    try:
        json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as problem:
        message = problem.msg.removesuffix(" at").removesuffix(" starting")  # the column is told apart from it
        return _trailing_comma(text, problem.pos) or (f"Invalid JSON: {message}", problem.pos + 1)
    except RecursionError:
        return TOO_DEEP, 1
    except ValueError as problem:
        return f"Invalid JSON: {problem}", 1
    if "surrogate" in str(reason) or "truncated" in str(reason):
        return "Invalid JSON: half of a surrogate pair (\\ud800 to \\udfff) stands alone", 1
    return f"Invalid JSON: {str(reason).partition(' - at ')[0]}", 1


def _trailing_comma(text: str, at: int) -> tuple[str, int] | None:
    """Return what is wrong, and the column, if a parser stopped at `at` because of a comma after the last item."""
    before = text[:at].rstrip()
    comma = len(before) - 1 if before.endswith(",") else at
    rest = text[comma + 1 :].lstrip()
    if text[comma : comma + 1] != ",":
        return None
    if not rest and _is_json(text[:comma]):
        return "Invalid JSON: a trailing comma: take out the comma at the end of the line", comma + 1
    is_last = rest[:1] in ("}", "]")
    return (f"Invalid JSON: a trailing comma before {rest[0]!r}: take it out", comma + 1) if is_last else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def column_in_json(text: str, steps: Steps) -> int:
    """Return the column of the value that `steps` lead to in a line of JSON.

    The column of a field is that of its key; if there is no such value, that of the value around it.
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
    """Return where the key and the value of the last field `name` are in the object at `at`; None if it has none."""
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
