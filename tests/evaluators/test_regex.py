"""Regular expressions: what they match, and their time limit."""

import asyncio
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentv.errors import AgentvError, ConfigError
from agentv.evaluators.checks.regex import LONG_TEXT, Regex
from agentv.records import Score
from tests.kits.evaluators import an_exchange, made, score

ENDLESS = r"(a+)+$"
NASTY = "a" * 40 + "b"


def in_another_thread(evaluator: Any, text: str) -> Any:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(asyncio.run(evaluator.evaluate(an_exchange(text))))
        except AgentvError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_a_pattern_is_searched_for_anywhere() -> None:
    assert score(made(Regex, value=r"\d+"), "it is 42.") == Score(score=1.0, hits=(r"matches '\d+'",))
    assert score(made(Regex, value=r"^\d+$"), "it is 42.") == Score(score=0.0, misses=(r"does not match '^\d+$'",))
    assert score(made(Regex, value="PARIS", case_sensitive=False), "paris").score == 1.0
    assert score(made(Regex, value=["a", "x"], require="any"), "abc").score == 1.0
    assert score(made(Regex, value=["a", "x"]), "abc").score == 0.0
    assert score(made(Regex, value="a", negate=True), "abc") == Score(score=0.0, misses=("matches 'a'",))


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(?<=a*)b", "*"])
def test_an_invalid_pattern_is_an_error_before_the_run(pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(Regex, value=["fine", pattern])
    assert caught.value.message.startswith(f"invalid pattern {pattern!r}: ")


def test_an_endless_pattern_times_out_in_the_main_thread() -> None:
    start = time.thread_time()
    with pytest.raises(AgentvError, match=r"matching '\(a\+\)\+\$' took longer than 1 s"):
        score(made(Regex, value=ENDLESS), NASTY)
    assert 0.9 < time.thread_time() - start < 2


def test_an_endless_pattern_times_out_in_other_threads() -> None:
    error = in_another_thread(made(Regex, value=ENDLESS), NASTY)
    assert isinstance(error, AgentvError)
    assert error.message == "matching '(a+)+$' took longer than 1 s"


def test_other_threads_find_the_same_matches() -> None:
    evaluator = made(Regex, value=["B", "\ud800"], case_sensitive=False, require="any")
    assert in_another_thread(evaluator, "abc \ud83d") == score(evaluator, "abc \ud83d")


def test_long_texts_are_searched_with_a_time_limit() -> None:
    long = "a" * LONG_TEXT * 20
    assert score(made(Regex, value="b$"), long + "b").score == 1.0
    with pytest.raises(AgentvError, match="took longer than 1 s"):
        score(made(Regex, value="(?:.*x|.*y)"), long)


def test_a_slow_interpreter_start_does_not_count_as_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 2.5\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    assert score(made(Regex, value="(?:b$|c$)"), "a" * LONG_TEXT + "b").score == 1.0


def test_existing_alarms_are_preserved() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 10_000)
        score(made(Regex, value="a"), "a")
        with pytest.raises(AgentvError):
            score(made(Regex, value=ENDLESS), NASTY)
        assert 9_000 < signal.getitimer(signal.ITIMER_REAL)[0] <= 10_000
        signal.raise_signal(signal.SIGALRM)
        assert rung == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
