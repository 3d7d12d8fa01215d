"""Read JSONL in blocks of lines, and locate values and errors in a line."""

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from agentv.files.yaml import TOO_DEEP, Steps, line_and_column, utf8_error_message

BLOCK_BYTES = 64 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024
Explanation = tuple[str, int]
"""An error message and the column it refers to."""


def line_blocks(
    file: BinaryIO,
    *,
    longest: int = MAX_LINE_BYTES,
) -> Iterator[list[bytes]]:
    """Yield the lines of a file in blocks, without line feeds or a byte-order mark.

    Raise `OverflowError` for a line much longer than `longest`.
    """
    rest = file.read(3).removeprefix(b"\xef\xbb\xbf")
    # blocks grow with the unfinished line, so that a long line is not copied once per block
    while chunk := file.read(max(BLOCK_BYTES, len(rest))):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if lines:
            yield lines
        if len(rest) > longest:
            raise OverflowError("a line is too long")
    if rest:
        yield [rest]


def explain_json_error(raw: bytes, reason: Exception) -> Explanation:
    """Return the problem of a line that is not valid JSON, and its column.

    `reason` is the error of the decoder. The line is parsed again by the standard library, whose messages are often
    better.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError as problem:
        _, column = line_and_column(raw[: problem.start])
        return utf8_error_message(problem), column
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as problem:
        return _explain_syntax_error(text, problem)
    except RecursionError:
        return TOO_DEEP, 1
    except ValueError as problem:
        return f"Invalid JSON: {problem}", 1
    # The standard library accepts the line, so use the decoder's message.
    details = str(reason)
    if "surrogate" in details or "truncated" in details:
        return "Invalid JSON: unpaired surrogate (\\ud800 to \\udfff)", 1
    message, _, _ = details.partition(" - at ")
    return f"Invalid JSON: {message}", 1


def _explain_syntax_error(
    text: str,
    problem: json.JSONDecodeError,
) -> Explanation:
    trailing_comma = _explain_trailing_comma(text, problem.pos)
    if trailing_comma is not None:
        return trailing_comma
    # some messages end with "starting at": the column is reported separately
    message = problem.msg.removesuffix(" at")
    message = message.removesuffix(" starting")
    return f"Invalid JSON: {message}", problem.pos + 1


def _explain_trailing_comma(text: str, at: int) -> Explanation | None:
    """Return the explanation if the parser stopped at `at` because of a trailing comma, or else None."""
    before = text[:at].rstrip()
    comma = at
    if before.endswith(","):
        comma = len(before) - 1
    if text[comma : comma + 1] != ",":
        return None
    rest = text[comma + 1 :].lstrip()
    if not rest and _is_json(text[:comma]):
        return "Invalid JSON: trailing comma at the end of the line: remove it", comma + 1
    if rest.startswith(("}", "]")):
        return f"Invalid JSON: trailing comma before {rest[0]!r}: remove it", comma + 1
    return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> Any:
    """Raise `ValueError` for NaN and Infinity, which Python accepts and JSON does not."""
    raise ValueError(f"{name} is not a JSON value")


def column_in_json(text: str, steps: Steps) -> int:
    """Return the column of the value that `steps` lead to in a line of JSON.

    The column of a field is that of its key. If the value is missing, return the column of the value around it.
    """
    try:
        return _find(text, steps) + 1
    except (ValueError, IndexError, RecursionError):
        return 1


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class _Location(NamedTuple):
    """Where a field or an item is: the offset to report (that of the key, for a field), and that of its value."""

    reported: int
    value: int


def _find(text: str, steps: Steps) -> int:
    """Return the offset of the value at `steps`, or of the innermost existing value around it."""
    start = _skip_space(text, 0)
    location = _Location(reported=start, value=start)
    for step in steps:
        if isinstance(step, str):
            inner = _find_field(text, location.value, step)
        else:
            inner = _find_item(text, location.value, step)
        if inner is None:
            break
        location = inner
    return location.reported


def _find_field(
    text: str,
    at: int,
    name: str,
) -> _Location | None:
    """Return the location of the last field `name` in the object at `at`, or None."""
    location = None
    while text[at] in "{,":
        key_at = _skip_space(text, at + 1)
        key, key_end = _DECODER.raw_decode(text, key_at)
        colon = _skip_space(text, key_end)
        value_at = _skip_space(text, colon + 1)
        if key == name:
            location = _Location(reported=key_at, value=value_at)
        at = _skip_value(text, value_at)
    return location


def _find_item(
    text: str,
    at: int,
    index: int,
) -> _Location | None:
    """Return the location of an item in the array at `at`, or None."""
    for _ in range(index + 1):
        if text[at] not in "[,":
            return None
        value_at = _skip_space(text, at + 1)
        at = _skip_value(text, value_at)
    return _Location(reported=value_at, value=value_at)


def _skip_value(text: str, at: int) -> int:
    """Return the offset of the comma or bracket after the value at `at`."""
    _, end = _DECODER.raw_decode(text, at)
    return _skip_space(text, end)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    if match is None:
        return at
    return match.end()
