"""Format counts, names, money, durations and times as text."""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

_ESCAPED_BYTE = re.compile(r"\\udc([89a-f][0-9a-f])")


def plural(number: int, one: str, many: str = "", *, separator: str = "") -> str:
    """Return a number and its noun: `one` for the number 1, otherwise `many`, by default `one` with an "s".

    `separator` separates thousands.
    """
    amount = f"{number:{separator}}"
    if number == 1:
        return f"{amount} {one}"
    if many:
        return f"{amount} {many}"
    return f"{amount} {one}s"


def join_names(names: Sequence[str], most: int, conjunction: str = " and ") -> str:
    """Return the first `most` names with commas between them, and the number of the others."""
    joined = ", ".join(names[:most])
    more = len(names) - most
    if more > 0:
        return f"{joined}{conjunction}{more} more"
    return joined


def truncate(text: str, most: int) -> str:
    """Return the text; if it is longer than `most` characters, return these and an ellipsis."""
    if len(text) <= most:
        return text
    return f"{text[:most]}…"


def truncate_to_width(text: str, width: int) -> str:
    """Return the text; if it is longer than the width, truncate it so that it fits with an ellipsis."""
    if len(text) <= width:
        return text
    return f"{text[: width - 1]}…"


def quote_text(text: str) -> str:
    r"""Return a text in quotes, like `repr`, but with single backslashes: a pattern such as `\d+` stays readable."""
    return repr(text).replace("\\\\", "\\")


def replace_surrogates(text: str) -> str:
    """Return the text with `?` for lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def has_surrogates(text: str) -> bool:
    """Return whether the text has lone surrogates, which stand for undecodable bytes on the command line."""
    return not text.isascii() and replace_surrogates(text) != text


def timestamp_now() -> str:
    """Return the current time in ISO 8601, in UTC, with milliseconds."""
    now = datetime.now(UTC).isoformat("T", "milliseconds")
    return now.replace("+00:00", "Z")


def format_count(value: float) -> str:
    """Return a number, rounded to an integer, with commas between thousands."""
    return f"{round(value):,}"


def format_money(usd: float) -> str:
    """Return an amount in US dollars. Small amounts have more digits."""
    if usd >= 10 or usd == 0:
        return f"${usd:,.2f}"
    if usd >= 0.01:
        return f"${usd:.4f}"
    return f"${usd:.2g}"


def format_duration(ms: float) -> str:
    """Return a duration, given in milliseconds, in a suitable unit."""
    if ms < 1:
        return "< 1 ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 100_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms / 60_000:.1f} min"


def format_change(before: float, after: float) -> str:
    """Return the relative change of a quantity in percent."""
    if before == after:
        return "±0%"
    if before == 0:
        return "new"
    change = (after - before) / before
    return f"{change:+.0%}".replace("-", "−")


def short_path(path: Path) -> str:
    """Return a path relative to the current folder, or unchanged if it is outside of it."""
    try:
        current = Path.cwd()
    except FileNotFoundError:  # the current folder was removed
        return str(path)
    if path.is_relative_to(current):
        return str(path.relative_to(current))
    return str(path)


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be encoded: bytes that are not UTF-8 become `\\udcXX`."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()


def path_of_text(text: str) -> Path:
    """Return the path for a text that `path_text` returned."""

    def unescape(found: re.Match[str]) -> str:
        return chr(0xDC00 + int(found[1], 16))

    path = Path(text)
    if path.exists():
        return path
    return Path(_ESCAPED_BYTE.sub(unescape, text))
