"""The live view at the bottom of a terminal stays intact, and text printed around it is not lost."""

import io
import sys
from collections.abc import Iterator
from typing import TextIO, cast

import pytest

from agentv.redact import Redactor
from agentv.report.live_view import LiveView, ViewContent, truncate_to_columns
from agentv.report.progress import LiveProgress, PlainProgress, progress_for
from tests.kits.screen import Screen

BAR = "━━━━━━━━━━──────────"


class Shown:
    """A view on a screen of 20 columns, and the lines that it shows."""

    def __init__(self) -> None:
        self.screen = Screen(20)
        self.lines = ["5/10 done"]
        self.view = LiveView(self.screen, lambda: ViewContent(0.5, self.lines))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "6")
    shown = Shown()
    yield shown
    shown.view.close()


def test_a_closed_view_leaves_nothing_but_what_was_printed(shown: Shown) -> None:
    shown.view.print("before")
    shown.view.open()
    assert shown.screen.rows == ["before", BAR, "5/10 done"]
    assert not shown.screen.is_cursor_shown
    shown.view.print("meanwhile")
    assert shown.screen.rows == ["before", "meanwhile", BAR, "5/10 done"]

    shown.view.close()
    shown.view.close()

    assert shown.screen.rows == ["before", "meanwhile", ""]
    assert shown.screen.is_cursor_shown


def test_whole_lines_of_others_are_printed_above_the_view(shown: Shown) -> None:
    shown.view.open()
    print("first", "line", file=sys.stderr)
    print("no line", end=" ")
    assert shown.screen.rows == ["first line", BAR, "5/10 done"]
    print("yet")
    print("incomplete", end="", file=sys.stderr)
    assert shown.screen.rows == ["first line", "no line yet", BAR, "5/10 done"]

    shown.view.close()

    assert shown.screen.rows == ["first line", "no line yet", "incomplete", ""]


def test_the_streams_are_restored_and_what_others_kept_of_them_still_works(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    shown.view.open()
    kept = sys.stderr
    shown.view.close()

    kept.writelines(["one\n", "two\n"])

    assert sys.stderr is stderr
    assert stderr.getvalue() == "one\ntwo\n"


def test_lines_that_do_not_fit_are_truncated(shown: Shown) -> None:
    shown.lines = ["日本語のとても長い名前のケースです", "a-case-with-a-long-name", "c", "d", "too many rows"]
    shown.view.open()
    assert shown.screen.rows == [BAR, "日本語のとても長い…", "a-case-with-a-long-…", "c", "d"]


def test_a_view_in_a_terminal_that_becomes_narrower_is_erased_as_a_whole(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.view.print("before")
    shown.view.open()
    with shown.view.lock:
        shown.screen.narrow(8)
        monkeypatch.setenv("COLUMNS", "8")
        assert shown.screen.rows == ["before", "━━━━━━━━", "━━──────", "────", "5/10 don", "e"]
        shown.view.print("after")
    assert shown.screen.rows == ["before", "after", "━━━━────", "5/10 do…"]


def test_characters_have_their_width_on_the_screen() -> None:
    assert truncate_to_columns("12345", 5) == "12345"
    assert truncate_to_columns("123456", 5) == "1234…"
    assert truncate_to_columns("日本語", 5) == "日本…"
    assert truncate_to_columns("e\u0301" * 5, 5) == "e\u0301" * 5


@pytest.mark.parametrize("variable", ["", "1"])
def test_no_color_removes_colors(shown: Shown, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", variable)
    stream = io.StringIO()
    view = LiveView(stream, lambda: ViewContent(0.5, ()))
    view.open()
    view.close()
    assert ("\x1b[36m" in stream.getvalue()) == (variable == "")


class Terminal(io.TextIOWrapper):
    """A stream in an encoding that says it is a terminal."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding)

    def isatty(self) -> bool:
        return True


def test_a_live_view_needs_a_terminal_that_can_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(progress_for(Redactor(), Terminal("utf-8")), LiveProgress)
    assert isinstance(progress_for(Redactor(), Terminal("ascii")), PlainProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress_for(Redactor(), Terminal("utf-8")), PlainProgress)


class OnlyWrites:
    """What a program may replace stderr by, to copy it to a file."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Do nothing."""


def test_a_stream_that_can_only_write_shows_plain_progress() -> None:
    assert isinstance(progress_for(Redactor(), cast(TextIO, OnlyWrites())), PlainProgress)


def test_messages_of_a_run_are_wrapped_and_cannot_control_the_terminal(shown: Shown) -> None:
    progress = LiveProgress(Redactor(), shown.screen)
    progress.begin(total=4, done=2)
    progress.retried("a", 1, "bad\n\x1b[2Jreply")
    progress.started(0, "case-1")
    progress.end()
    assert shown.screen.rows == [
        "a: attempt 1 failed,",
        "    retrying: bad",
        "    \\x1b[2Jreply",
        "",
    ]
