"""Lines that fit a narrow terminal: broken between words, and never inside a number."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

WIDTH = 60
"""What all lines of a summary fit into."""
_ROW_GAP = "  "
_HARD_SPACE = "\u00a0"


def terminal_width(stream: TextIO | None) -> int | None:
    """Return how wide the terminal is that a stream is shown in; None if it is shown in none."""
    if stream is None or not stream.isatty():
        return None
    return shutil.get_terminal_size((0, 0)).columns or None


def wrap(line: str, width: int = WIDTH, indent: str = "    ") -> list[str]:
    """Return the line in as many as it takes; all but the first are indented."""
    if len(line) <= width:
        return [line]
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )


def wrap_terms(line: str, terms: Iterable[str], sign: str, width: int = WIDTH) -> list[str]:
    """Return the line and the terms with a sign between them, broken only before a sign."""
    whole = f" {sign}{_HARD_SPACE}".join(term.replace(" ", _HARD_SPACE) for term in terms)
    return [part.replace(_HARD_SPACE, " ") for part in wrap(f"{line}{whole}", width)]


def shorten(text: str, width: int) -> str:
    """Return the text, or as much of it as fits, with a sign that there was more."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def table(rows: Sequence[Sequence[str]], width: int = WIDTH, indent: str = "  ") -> Iterator[str]:
    """Yield rows in columns, the first with a heading. A name that is too long has a line of its own."""
    others = [max(len(row[column]) for row in rows) for column in range(1, len(rows[0]))]
    room = width - len(indent) - sum(others) - len(_ROW_GAP) * len(others)
    longest = max(len(row[0]) for row in rows)
    first = min(longest, max(room, len(rows[0][0])))
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row[1:], others, strict=True)]
        name = row[0]
        if len(name) > first:
            yield f"{indent}{name}"
            name = ""
        yield _ROW_GAP.join([f"{indent}{name.ljust(first)}", *cells]).rstrip()
