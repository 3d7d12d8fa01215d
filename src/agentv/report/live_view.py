"""Show a progress bar, with lines below it, at the bottom of a terminal and redraw them in place."""

import math
import os
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from itertools import islice
from typing import Any, NamedTuple, TextIO, cast

REDRAW_SECONDS = 1 / 8
BAR_COLUMNS = 60
DEFAULT_SIZE = os.terminal_size((80, 24))

HIDE_CURSOR = "\x1b[?25l"
SHOW_CURSOR = "\x1b[?25h"
STOP_WRAPPING = "\x1b[?7l"
WRAP_AGAIN = "\x1b[?7h"
CURSOR_UP = "\x1b[{rows}A"
ERASE_BELOW = "\x1b[J"
CYAN = "\x1b[36m"
GRAY = "\x1b[90m"
DEFAULT_COLOR = "\x1b[39m"


class ViewContent(NamedTuple):
    """What the view shows."""

    share: float
    """How much of the bar is filled, from 0 to 1."""
    lines: Iterable[str]
    """The lines below the bar. Those that do not fit on the screen are not read."""


class LiveView:
    """A view that is redrawn a few times per second. While it is open, stdout and stderr are printed above it."""

    def __init__(self, stream: TextIO, content: Callable[[], ViewContent]):
        self._stream = stream
        self._content = content
        # Reentrant, because the handler of a signal may close the view in the middle of a redraw.
        self.lock = threading.RLock()
        self.is_open = False
        self._shown: list[int] = []
        """The width of each line on the screen."""
        self._redirected = ExitStack()

    def open(self) -> None:
        """Show the view."""
        with self.lock:
            self.is_open = True
            for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
                if stream is not None:  # a process may be started without stdout
                    above = _PrintAbove(self, stream)
                    self._redirected.callback(above.end_line)
                    self._redirected.enter_context(redirect(cast(TextIO, above)))
            self._write(HIDE_CURSOR)
            self._redraw()
        thread = threading.Thread(target=self._redraw_regularly, daemon=True, name="agentv-progress")
        with suppress(RuntimeError):  # without a thread, the view is redrawn only when something is printed
            thread.start()

    def close(self) -> None:
        """Erase the view."""
        with self.lock:
            if self.is_open:
                self._redirected.close()
                self._write(self._erased() + SHOW_CURSOR)
                self.is_open = False

    def print(self, text: str) -> None:
        """Print complete lines above the view."""
        with self.lock:
            self._write(f"{self._erased()}{text}\n")
            if self.is_open:
                self._redraw()

    def size(self) -> os.terminal_size:
        """Return the size of the terminal. The variables COLUMNS and LINES take precedence."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            size = DEFAULT_SIZE
        if 0 in size:
            size = DEFAULT_SIZE
        return shutil.get_terminal_size(size)

    def _redraw_regularly(self) -> None:
        while True:
            time.sleep(REDRAW_SECONDS)
            with self.lock:
                if not self.is_open:
                    return
                self._redraw()

    def _redraw(self) -> None:
        erased = self._erased()
        columns, rows = self.size()
        bar_columns = min(columns, BAR_COLUMNS)
        share, all_lines = self._content()
        # One row is for the bar, and one is free.
        lines = [truncate_to_columns(line, columns) for line in islice(all_lines, max(0, rows - 2))]
        text = "\n".join([_bar(share, bar_columns), *lines])
        # A terminal may draw a character wider than expected.
        self._write(f"{erased}{STOP_WRAPPING}{text}{WRAP_AGAIN}")
        self._shown = [bar_columns, *map(columns_of, lines)]

    def _erased(self) -> str:
        """Forget what is on the screen, and return the control codes that erase it."""
        if not self._shown:
            return ""
        # If the terminal has become narrower, it has wrapped lines that are too long.
        columns = self.size().columns
        rows = sum(max(1, math.ceil(width / columns)) for width in self._shown)
        self._shown = []
        if rows == 1:
            return "\r" + ERASE_BELOW
        return "\r" + CURSOR_UP.format(rows=rows - 1) + ERASE_BELOW

    def _write(self, text: str) -> None:
        # The terminal may be gone, and a signal may arrive in the middle of another write.
        with suppress(OSError, ValueError, RuntimeError):
            self._stream.write(text)
            self._stream.flush()


class _PrintAbove:
    """A stream that prints complete lines above the view. Once the view is closed, it writes to the original stream."""

    def __init__(self, view: LiveView, stream: TextIO):
        self._view = view
        self._stream = stream
        self._incomplete = ""

    def write(self, text: str) -> int:
        with self._view.lock:
            if not self._view.is_open:
                return self._stream.write(text)
            lines, newline, self._incomplete = (self._incomplete + text).rpartition("\n")
            if newline:
                self._view.print(lines)
        return len(text)

    def end_line(self) -> None:
        """Print the incomplete line, if there is one."""
        if self._incomplete:
            self.write("\n")

    def writelines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(map(_columns_of_character, text))


def truncate_to_columns(text: str, most: int) -> str:
    """Return the text; if it takes more columns, truncate it so that it fits with an ellipsis."""
    if columns_of(text) <= most:
        return text
    kept = ""
    columns = 1  # for the ellipsis
    for character in text:
        columns += _columns_of_character(character)
        if columns > most:
            break
        kept += character
    return f"{kept}…"


def _columns_of_character(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    if unicodedata.east_asian_width(character) in ("W", "F"):
        return 2
    return 1


def _bar(share: float, columns: int) -> str:
    """Return a bar, which is in color unless the user has set NO_COLOR."""
    filled_columns = int(min(share, 1) * columns)
    filled = "━" * filled_columns
    rest = "─" * (columns - filled_columns)
    if os.environ.get("NO_COLOR"):
        return filled + rest
    return f"{CYAN}{filled}{GRAY}{rest}{DEFAULT_COLOR}"
