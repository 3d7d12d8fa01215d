"""Which tools were called, in which order and with which arguments."""

from functools import partial
from typing import Any

import pytest

from agentv.errors import AgentvError, ConfigError
from agentv.evaluators.checks.tool_trajectory import ToolTrajectory
from agentv.records import Message, Score, ToolCall, TraceEvent
from tests.kits.evaluators import made, misfit, score
from tests.kits.project import Write
from tests.kits.runs import MOCK, evaluate
from tests.kits.work import lines_run


def called(*tools: Any) -> tuple[TraceEvent, ...]:
    """A trace of tool calls, each a name or a name with its arguments."""
    pairs = [tool if isinstance(tool, tuple) else (tool, None) for tool in tools]
    return tuple(TraceEvent(type="tool_call", name=name, input=args) for name, args in pairs)


def in_order(trace: Any, *expected: Any, mode: str = "in_order") -> Score:
    calls = [{"tool": call} if isinstance(call, str) else call for call in expected]
    return score(made(ToolTrajectory, mode=mode, expected=calls), "", trace=trace)


def exact(trace: Any, *expected: Any) -> Score:
    return in_order(trace, *expected, mode="exact")


@pytest.mark.parametrize("settings", [{"mode": "any_order", "minimums": {"a": 1}}, {"mode": "exact", "expected": []}])
def test_no_trace_at_all_scores_zero(settings: Any) -> None:
    found = score(made(ToolTrajectory, **settings), "answer")
    assert found == Score(score=0.0, misses=("No trace available for evaluation",), missing_data=True)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mode": "any_order", "minimums": {"a": 1, "b": 2, "c": 0}}, ("a was never called", "b was never called")),
        ({"mode": "in_order", "expected": [{"tool": "a"}, {"tool": "a"}]}, ("a was never called",)),
        ({"mode": "exact", "expected": [{"tool": "b"}, {"tool": "a"}]}, ("b was never called", "a was never called")),
    ],
)
def test_messages_without_a_call_are_a_trace_without_one(settings: Any, expected: tuple[str, ...]) -> None:
    messages = (Message(role="assistant", content="answer"),)
    found = score(made(ToolTrajectory, **settings), "answer", output_messages=messages)
    assert found == Score(score=0.0, misses=expected)


def test_no_call_is_right_when_none_is_expected() -> None:
    messages = (Message(role="assistant", content="answer"),)
    found = score(made(ToolTrajectory, mode="exact", expected=[]), "answer", output_messages=messages)
    assert found == Score(score=1.0)


def test_any_order_counts_calls() -> None:
    evaluator = made(ToolTrajectory, mode="any_order", minimums={"search": 2, "fetch": 1, "other": 0})
    assert score(evaluator, "", trace=called("fetch", "search")) == Score(
        score=2 / 3,
        hits=("fetch called once, at least 1 expected", "other called 0 times, at least 0 expected"),
        misses=("search called once, at least 2 expected",),
    )
    assert score(made(ToolTrajectory, mode="any_order", minimums={}), "", trace=called("a")).score == 1.0


def test_in_order_allows_other_calls_between() -> None:
    found = in_order(called("a", "x", "b"), "a", "b")
    assert found == Score(score=1.0, hits=("a found at call 1", "b found at call 3"))


@pytest.mark.parametrize(
    ("trace", "expected", "met"),
    [
        ("ab", "ba", 1 / 2),
        ("abc", "cab", 2 / 3),
        ("bc", "abc", 2 / 3),
        ("a", "aa", 1 / 2),
        ("aaa", "aa", 1.0),
        ("", "ab", 0.0),
        ("", "", 1.0),
        ("xaybzc", "abc", 1.0),
        ("bacab", "abcab", 4 / 5),
    ],
)
def test_in_order_scores_the_longest_run(trace: str, expected: str, met: float) -> None:
    found = in_order(called(*trace), *expected)
    assert found.score == pytest.approx(met)
    assert len(found.hits) + len(found.misses) == len(expected)


def test_exact_compares_position_by_position() -> None:
    assert exact(called("a", "b"), "a", "b") == Score(score=1.0, hits=("call 1 is a", "call 2 is b"))
    assert exact(called("a", "b", "c"), "a", "c") == Score(
        score=1 / 3,
        hits=("call 1 is a",),
        misses=("call 2: expected c, got b", "call 3: c was not expected"),
    )
    assert exact(called("a"), "a", "b").misses == ("call 2: expected b, got none",)
    assert exact((), *[]).score == 1.0


@pytest.mark.parametrize(
    ("wanted", "given", "met"),
    [
        ({"q": "x"}, {"q": "x", "limit": 5}, True),
        ({"q": {"a": 1}}, {"q": {"a": 1.0, "b": 2}}, True),
        ({"q": "x"}, {"limit": 5}, False),
        ({"q": None}, {}, False),
        ({"q": [1, {"a": 1}]}, {"q": [1, {"a": 1, "b": 2}]}, True),
        ({"q": [1]}, {"q": [1, 2]}, False),
        ({"n": 1}, {"n": True}, False),
        ("any", {"whatever": 1}, True),
        ("any", None, True),
        ({"amount": "any"}, {"amount": 5}, True),
        ({"amount": "any"}, {"amount": None}, True),
        ({"amount": "any"}, {}, False),
        ({"to": {"iban": "any"}, "lines": ["any", 2]}, {"to": {"iban": {"x": 1}}, "lines": [[1], 2]}, True),
        ({"lines": ["any", 2]}, {"lines": [1, 3]}, False),
        ({}, {"a": 1}, True),
        ({"a": 1}, None, False),
        ({"a": 1}, "text", False),
        ({"a": 1}, [1], False),
        ({"a": 1}, float("nan"), False),
    ],
)
def test_arguments_match_partly_and_deeply(wanted: Any, given: Any, met: bool) -> None:
    assert (exact(called(("t", given)), {"tool": "t", "args": wanted}).score == 1.0) is met
    assert (exact(called(("t", given)), {"tool": "t", "input": wanted}).score == 1.0) is met


def test_args_take_precedence_over_input() -> None:
    assert exact(called(("t", {"a": 1})), {"tool": "t", "args": {"a": 1}, "input": {"a": 2}}).score == 1.0


def test_outputs_are_read_from_calls_or_results() -> None:
    trace = (
        TraceEvent(type="tool_call", id="1", name="t"),
        TraceEvent(type="tool_result", id="1", output={"ok": True, "n": 1}),
        TraceEvent(type="tool_call", id="1", name="t"),
        TraceEvent(type="tool_result", id="1", output={"ok": False}),
        TraceEvent(type="tool_call", name="t", output="own"),
        TraceEvent(type="tool_result", output="of nobody"),
        TraceEvent(type="tool_call", name="t"),
        TraceEvent(type="message", name="t"),
    )
    outputs = ({"ok": True}, {"ok": False}, "own", "any")
    assert exact(trace, *({"tool": "t", "output": output} for output in outputs)).score == 1.0
    assert exact(trace[:2], {"tool": "t", "output": {"ok": False}}).score == 0.0


def test_tool_calls_in_messages_are_a_trace() -> None:
    messages = (Message(role="assistant", tool_calls=(ToolCall(tool="a"), ToolCall(tool="b"))),)
    evaluator = made(ToolTrajectory, mode="exact", expected=[{"tool": "a"}, {"tool": "b"}])
    assert score(evaluator, "", output_messages=messages).score == 1.0


def test_a_call_without_a_name_matches_no_expected_call() -> None:
    found = exact((TraceEvent(type="tool_call", input=b"\xff"),), "a")
    assert found.score == 0.0
    assert found.misses[0].startswith("call 1: expected a, got an unnamed tool ")


def test_messages_about_a_huge_trace_are_bounded() -> None:
    trace = called(*["a", "b"] * 50_000)
    assert in_order(trace, *["a", "b", "c"] * 5).score == pytest.approx(10 / 15)
    assert len(exact(trace, "a").misses) == 51


@pytest.mark.parametrize("check", [in_order, exact])
def test_the_work_is_linear_in_the_trace(check: Any) -> None:
    expected = ["a", "b", "c"] * 5
    some, more = (lines_run(partial(check, called(*["a", "b"] * n), *expected)) for n in (500, 2_000))
    assert 500 < some < more < 5 * some


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "any_order"}, "mode 'any_order' needs 'minimums'"),
        ({"mode": "in_order"}, "mode 'in_order' needs 'expected'"),
        ({"mode": "exact", "expected": [], "minimums": {}}, "mode 'exact' does not support 'minimums'"),
        ({"mode": "any_order", "expected": [], "minimums": {}}, "mode 'any_order' does not support 'expected'"),
    ],
)
def test_conflicting_settings_are_errors_before_the_run(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(ToolTrajectory, **settings)
    assert caught.value.message == message


def test_invalid_settings_are_reported() -> None:
    assert misfit(ToolTrajectory, mode="sorted") == "unknown mode 'sorted'"
    assert misfit(ToolTrajectory, mode="any_order", minimums={"a": -1}) == "must be at least 0, got -1"
    assert misfit(ToolTrajectory, mode="exact", expected=[{"args": 1}]) == "missing tool"


@pytest.mark.parametrize(
    ("wanted", "given", "is_met"),
    [
        ({"q": {"contains": "Oslo"}}, {"q": "weather in Oslo today"}, True),
        ({"q": {"contains": "Oslo"}}, {"q": "weather in Rome"}, False),
        ({"q": {"regex": r"^weather\b"}}, {"q": "weather in Oslo"}, True),
        ({"q": {"regex": r"^in\b"}}, {"q": "weather in Oslo"}, False),
        ({"days": {"regex": r"^[1-7]$"}}, {"days": 3}, True),
        ({"days": {"contains": "3"}}, {"days": [3]}, False),
        ({"steps": [{"run": {"regex": "test$"}}, "ok"]}, {"steps": [{"run": "make test"}, "ok"]}, True),
        ({"steps": [{"run": {"regex": "test$"}}, "ok"]}, {"steps": [{"run": "make lint"}, "ok"]}, False),
        ({"regex": "^ls"}, "ls -l", True),
        ({"q": {"regex": "a", "contains": "b"}}, {"q": "ab"}, False),  # two keys are a plain object
        ({"filter": {"contains": "x"}}, {"filter": {"contains": "x", "limit": 3}}, True),  # the tool's own fields
        ({"filter": {"contains": 5}}, {"filter": {"contains": 5}}, True),
    ],
)
def test_arguments_match_by_substring_or_pattern(wanted: Any, given: Any, is_met: bool) -> None:
    assert exact(called(("search", given)), {"tool": "search", "args": wanted}).score == is_met
    assert in_order(called("other", ("search", given)), {"tool": "search", "input": wanted}).score == is_met


def test_an_output_may_be_a_pattern_too() -> None:
    trace = (TraceEvent(type="tool_call", name="run", output="3 passed in 0.1s"),)
    assert exact(trace, {"tool": "run", "output": {"regex": r"\d+ passed"}}).score == 1.0
    assert exact(trace, {"tool": "run", "output": {"contains": "failed"}}).score == 0.0


def test_any_of_several_tools_matches() -> None:
    trace = called("grep", ("read", {"path": "a"}), "write")
    either = {"tool": ["search", "grep"]}
    assert in_order(trace, either, "write") == Score(
        score=1.0, hits=("search or grep found at call 1", "write found at call 3")
    )
    assert exact(trace, either, {"tool": ["open", "read"], "args": {"path": "b"}}, "write").misses == (
        'call 2: expected open or read {"path": "b"}, got read {"path": "a"}',
    )
    messages = (Message(role="assistant", content="answer"),)
    silent = made(ToolTrajectory, mode="in_order", expected=[either])
    assert score(silent, "answer", output_messages=messages).misses == ("search or grep was never called",)
    assert misfit(ToolTrajectory, mode="exact", expected=[{"tool": []}]) == "must not be empty"


def test_an_invalid_pattern_is_located_before_the_run(write: Write) -> None:
    write("targets.yaml", MOCK)
    write(
        "a.yaml",
        "evalcases:\n"
        "  - id: one\n"
        "    expected_outcome: x\n"
        "    input: x\n"
        "    evaluators:\n"
        "      - type: tool_trajectory\n"
        "        mode: exact\n"
        "        expected:\n"
        "          - tool: search\n"
        "            args:\n"
        "              list:\n"
        "                - regex: '('\n",
    )
    ran = evaluate("a.yaml", expect=2)
    assert "a.yaml:12:19: case 'one': evaluators[0]: " in ran.stderr
    assert "invalid pattern '(': missing ), unterminated subpattern at position 0" in ran.stderr


def test_an_endless_pattern_times_out() -> None:
    call = {"tool": "search", "args": {"q": {"regex": r"(a+)+$"}}}
    with pytest.raises(AgentvError, match=r"matching '\(a\+\)\+\$' took longer than 1 s"):
        exact(called(("search", {"q": "a" * 40 + "b"})), call)
