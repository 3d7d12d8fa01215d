"""Messages in Python name options by their keywords, not by the flags of the command line."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentv import AgentvError, collect_warnings, evaluate, plan, stream
from agentv.api.keywords import in_keywords
from tests.kits.project import Write

CASES = [{"id": "a", "input": "hello", "expected_outcome": "greets"}]
HELLO = {"type": "contains", "value": "hello"}
GIVEN: dict[str, Any] = {"cases": CASES, "target": str, "evaluators": [HELLO]}


@pytest.fixture(autouse=True)
def empty_folder(write: Write) -> None:
    """Run each test in an empty folder."""


def problem(**options: Any) -> tuple[str, str]:
    with pytest.raises(AgentvError) as raised:
        asyncio.run(evaluate(**(GIVEN | options)))
    assert raised.value.hint in "".join(getattr(raised.value, "__notes__", []))
    return str(raised.value), raised.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--eval-id takes an id or a glob", "ids takes an id or a glob"),
        ("run without --cache", "run without cache=True"),
        ("--no-batch-fallback needs a batch target", "batch_fallback=False needs a batch target"),
        ("increase 'timeout_seconds' or --agent-timeout", "increase 'timeout_seconds' or timeout_seconds"),
        ("continue with 'agentv eval --resume'", "continue with 'agentv eval --resume'"),
        ("chromium --headless failed", "chromium --headless failed"),
    ],
)
def test_flags_become_keywords(text: str, expected: str) -> None:
    assert in_keywords(text) == expected


def test_an_error_names_keywords() -> None:
    assert problem(ids="nothing-like-it") == (
        "no case with id 'nothing-like-it'",
        "ids takes an id or a glob",
    )
    assert problem(require="id:b")[0] == "require 'id:b': no selected case matches"
    assert problem(shard="7") == (
        "invalid value for shard: '7' (expected I/N, for example 2/4)",
        problem(shard="7")[1],
    )
    assert problem(out="out.jsonl", rerun_failed=True)[0] == "rerun_failed=True needs resume=True"
    Path("other").mkdir()
    assert problem(out="other")[0].endswith("out is a folder")
    with pytest.raises(AgentvError) as raised:
        plan(cases=CASES, target=str, evaluators=[HELLO], require="id:b")
    assert str(raised.value) == "require 'id:b': no selected case matches"


def test_an_error_of_a_stream_names_keywords() -> None:
    async def run() -> None:
        async for _ in stream(cases=CASES, target=str, evaluators=[HELLO], require="id:b"):
            pass

    with pytest.raises(AgentvError) as raised:
        asyncio.run(run())
    assert str(raised.value) == "require 'id:b': no selected case matches"


def test_a_missed_gate_is_a_warning_that_names_keywords() -> None:
    with collect_warnings() as warnings:
        report = asyncio.run(
            evaluate(
                cases=CASES,
                target=str.upper,
                evaluators=[HELLO],
                fail_under=0.9,
                min_pass_rate=0.5,
                require="id:a",
            )
        )
    assert report.exit_code == 1
    assert [warning.message for warning in warnings] == [
        "fail_under 0.9: the mean is 0.000; lowest: a 0.000",
        "min_pass_rate 0.5: the pass rate is 0.000; not passed: a",
        "require 'id:a': 1 case did not pass: a",
    ]


def test_a_warning_names_keywords() -> None:
    options: dict[str, Any] = {"cases": CASES, "evaluators": [HELLO], "out": "out.jsonl"}
    asyncio.run(evaluate(target=str, **options))
    with collect_warnings() as warnings:
        asyncio.run(evaluate(target=str.upper, version="2", resume=True, **options))
    assert "the target has changed (keep_stale=True keeps them)" in warnings[0].message
