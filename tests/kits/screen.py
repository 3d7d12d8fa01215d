"""A terminal in memory: the visible text after writing text and control codes to it."""

import io
import re
import threading

from agentv.report.live_view import columns_of

_PIECES = re.compile(r"\x1b\[(\?|)(\d*)([A-Za-z])|(.)", re.DOTALL)


class Screen(io.StringIO):
    """A stream whose text ends up on a screen. It knows the codes that a live view needs, and fails at any other."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.is_cursor_shown = True
        self._wraps = True
        self._rows: list[list[str]] = [[]]
        """The cells of each row. Behind a wide character, there is an empty one."""
        self._row = 0
        self._column = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> list[str]:
        """The visible text of the screen, without trailing space."""
        with self._lock:
            return ["".join(row).rstrip() for row in self._rows]

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            for private, number, code, character in _PIECES.findall(text):
                if character:
                    self._put(character)
                else:
                    self._control(private + number + code, number)
        return len(text)

    def narrow(self, columns: int) -> None:
        """Make the screen narrower. Lines that are too long are wrapped, as most terminals do."""
        with self._lock:
            assert self._row == len(self._rows) - 1
            self.columns = columns
            wrapped = []
            for row in self._rows:
                for start in range(0, max(1, len(row)), columns):
                    wrapped.append(row[start : start + columns])
            self._rows = wrapped
            self._row = len(self._rows) - 1
            self._column = len(self._rows[-1])

    def _put(self, character: str) -> None:
        if character == "\n":
            self._next_row()
        elif character == "\r":
            self._column = 0
        else:
            if self._column + columns_of(character) > self.columns and self._wraps:
                self._next_row()
            cells = [character] + [""] * (columns_of(character) - 1)
            end = self._column + len(cells)
            self._rows[self._row][self._column : end] = cells
            self._column = min(end, self.columns)

    def _next_row(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._rows):
            self._rows.append([])

    def _control(self, code: str, number: str) -> None:
        if code == "J":
            self._rows[self._row :] = [self._rows[self._row][: self._column]]
        elif code == f"{number}A":
            self._row = max(0, self._row - int(number))
        elif code in ("?25h", "?25l"):
            self.is_cursor_shown = code == "?25h"
        elif code in ("?7h", "?7l"):
            self._wraps = code == "?7h"
        else:
            assert code.endswith("m"), code
