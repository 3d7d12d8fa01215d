"""The exit code of a run."""

from pathlib import Path

import pytest

from agentv.cases.shard import Shard
from agentv.redact import clean
from agentv.results.summary import Summary
from agentv.run.exit_code import Gates, exit_code
from agentv.run.planning.plan import Plan, Selection
from agentv.run.report import RunEnd, RunReport


def a_report(end: RunEnd = RunEnd.COMPLETED, shard: str | None = None, cases: int = 0) -> RunReport:
    """A report of a run without results."""
    selection = Selection()
    if shard is not None:
        selection = Selection(shard=Shard.parse(shard, {}))
    plan = Plan(files=(), selection=selection, invalid=0, folder=Path())
    return RunReport(plan, Summary(cases, 0, 1, clean), end)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (RunEnd.COMPLETED, 0),
        (RunEnd.FAILED, 1),
        (RunEnd.INTERRUPTED, 130),
    ],
)
def test_the_end_of_a_run_decides_the_exit_code(end: RunEnd, code: int) -> None:
    assert exit_code(a_report(end)) == code


def test_cases_that_were_not_run_are_a_failure() -> None:
    assert exit_code(a_report(RunEnd.BUDGET, cases=3)) == 1


def test_a_mean_under_the_minimum_is_a_failure() -> None:
    assert exit_code(a_report(), Gates(fail_under=0.5)) == 1
    assert exit_code(a_report(), Gates(fail_under=0.0)) == 0


def test_a_pass_rate_under_the_minimum_is_a_failure() -> None:
    assert exit_code(a_report(), Gates(min_pass_rate=0.5)) == 1
    assert exit_code(a_report(), Gates(min_pass_rate=0.0)) == 0


def test_an_interrupted_run_exits_with_130_regardless_of_the_mean() -> None:
    assert exit_code(a_report(RunEnd.INTERRUPTED), Gates(fail_under=0.5)) == 130


def test_a_shard_without_cases_passes() -> None:
    assert exit_code(a_report(shard="2/4"), Gates(fail_under=0.5)) == 0
