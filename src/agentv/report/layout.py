"""Lay out text for narrow terminals: break lines between words, never inside a number."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

WIDTH = 60
"""The maximum width of the lines of a summary."""
_COLUMN_GAP = "  "
_HARD_SPACE = "\u00a0"


def terminal_width(stream: TextIO | None) -> int | None:
    """Return the width of the terminal that a stream writes to, or None if it does not write to a terminal."""
    if stream is None or not stream.isatty():
        return None
    return shutil.get_terminal_size((0, 0)).columns or None


def wrap(line: str, width: int = WIDTH, indent: str = "    ") -> list[str]:
    """Break a line at the width and return the parts. All parts but the first are indented."""
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
    """Append the terms to a line, joined by a sign, and return the line broken only before signs."""
    # textwrap does not break at hard spaces: use them inside terms and between a sign and its term.
    hard_terms = [term.replace(" ", _HARD_SPACE) for term in terms]
    joined = f" {sign}{_HARD_SPACE}".join(hard_terms)
    return [part.replace(_HARD_SPACE, " ") for part in wrap(f"{line}{joined}", width)]


def table(rows: Sequence[Sequence[str]], width: int = WIDTH, indent: str = "  ") -> Iterator[str]:
    """Yield the lines of a table. The first row is the heading.

    A name in the first column that is too long for the table gets a line of its own.
    """
    names, *other_columns = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in other_columns]
    gaps = len(_COLUMN_GAP) * len(widths)
    available = width - len(indent) - sum(widths) - gaps
    longest_name = max(map(len, names))
    heading = names[0]
    name_width = min(longest_name, max(available, len(heading)))
    for row in rows:
        name, *cells = row
        if len(name) > name_width:
            yield f"{indent}{name}"
            name = ""
        line = f"{indent}{name.ljust(name_width)}"
        for cell, size in zip(cells, widths, strict=True):
            line += _COLUMN_GAP + cell.ljust(size)
        yield line.rstrip()
