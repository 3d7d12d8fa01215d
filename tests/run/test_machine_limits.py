"""Failures of the machine do not count against the agent."""

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import agentv as package
from agentv import collect_warnings
from agentv.processes.machine import machine_error
from agentv.pytest_plugin.fixture import CheckedRun
from agentv.run.room import Room
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import ANY, HELLO, evaluate, results

CASES = 30
COMMAND = "targets: [{name: default, provider: cli, command_template: 'echo hello; ulimit -n >&2; sleep 0.02'}]"


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", COMMAND)
    write("a.jsonl", [a_case(str(number), evaluators=[HELLO]) for number in range(CASES)])
    return write


def with_limits(limits: str, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run `agentv eval` with these limits of the shell."""
    line = f'{limits}; exec "$0" -m agentv eval "$@"'
    command = ["/bin/bash", "-c", line, sys.executable, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_soft_limit_of_open_files_is_raised(project: Write) -> None:
    ran = with_limits("ulimit -Sn 64", "a.jsonl", "--workers", "30", "--out", "r.jsonl")
    assert ran.returncode == 0, ran.stderr
    assert "warning" not in ran.stderr
    assert {result["verdict"] for result in results("r.jsonl")} == {"pass"}


def test_children_have_the_original_limit(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: cli, command_template: 'sleep 0.1; ulimit -Sn'}]")
    write("a.jsonl", [a_case("a", evaluators=[ANY])])
    with_limits("ulimit -Sn 64", "a.jsonl", "--out", "r.jsonl")
    assert results("r.jsonl")[0]["candidate_answer"].strip() == "64"


@pytest.mark.parametrize(
    "options", [["--workers", "10"], pytest.param(["--cluster", "local:2"], marks=pytest.mark.slow)]
)
def test_processes_that_children_start_at_once_have_the_original_limit(write: Write, options: list[str]) -> None:
    """The limit has to be set before the child starts: its own children inherit whatever it has then."""
    command = "'( ulimit -Sn ); sleep 0.02'"
    write("targets.yaml", f"targets: [{{name: default, provider: cli, command_template: {command}}}]")
    write("a.jsonl", [a_case(str(number), evaluators=[ANY]) for number in range(40)])
    with_limits("ulimit -Sn 64", "a.jsonl", *options, "--out", "r.jsonl")
    assert {result["candidate_answer"].strip() for result in results("r.jsonl")} == {"64"}


def test_fewer_workers_are_used_when_files_are_scarce(project: Write) -> None:
    ran = with_limits("ulimit -n 64", "a.jsonl", "--workers", "30", "--out", "r.jsonl")
    assert ran.returncode == 0, ran.stderr
    assert "warning: the limit of open files is low: continuing with at most " in ran.stderr
    assert {result["verdict"] for result in results("r.jsonl")} == {"pass"}


def test_running_out_of_resources_is_a_machine_failure(project: Write) -> None:
    ran = with_limits("ulimit -n 14", "a.jsonl", "--limit", "3", "--out", "r.jsonl", "--record", "record.json")
    assert ran.returncode == 1, ran.stderr
    assert {result["failure"] for result in results("r.jsonl")} == {"machine"}
    assert "3 planned = 3 machine failures" in ran.stdout
    assert "ERRORS (3)" in ran.stdout
    record = json.loads(Path("record.json").read_text())
    assert (record["ledger"]["machine_failures"], record["exit_reason"]) == (3, "machine")
    assert "mean" not in record["summary"]
    evaluate("a.jsonl", "--limit", "3", "--resume", "--out", "r.jsonl")
    assert [result["verdict"] for result in results("r.jsonl")] == ["pass"] * 3


@pytest.mark.parametrize("files", range(6, 14))
def test_a_limit_that_is_too_low_for_agentv_is_no_internal_error(project: Write, files: int) -> None:
    ran = with_limits(f"ulimit -n {files}", "a.jsonl", "--limit", "3", "--out", "r.jsonl")
    assert ran.returncode in (0, 1, 2)
    assert "internal error" not in ran.stderr


def test_machine_failures_do_not_count_for_max_errors(project: Write) -> None:
    ran = with_limits("ulimit -n 14", "a.jsonl", "--limit", "3", "--max-errors", "1", "--out", "r.jsonl")
    assert "3 planned = 3 machine failures" in ran.stdout


def test_a_thread_that_cannot_start_is_retried_with_fewer_cases(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("agent.py", "def answer(question):\n    return 'hello'\n")
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    write("a.jsonl", [a_case(str(number), evaluators=[HELLO]) for number in range(6)])
    start = threading.Thread.start
    failures = [RuntimeError("can't start new thread"), RuntimeError("can't start new thread")]

    def fail_twice(thread: threading.Thread) -> None:
        if thread.name == "agentv-progress":
            raise RuntimeError("can't start new thread")
        if failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_twice)
    ran = agentv("eval", "a.jsonl", "--workers", "3", "--out", "r.jsonl")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {result["verdict"] for result in results("r.jsonl")} == {"pass"}


@pytest.fixture
def no_room_for_b(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cases, of which the second one gets no thread."""
    write("agent.py", "def answer(question):\n    return 'hello'\n")
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]")
    write("cases.jsonl", [a_case(name, evaluators=[HELLO], metadata={"kind": name}) for name in ("a", "b")])
    start = threading.Thread.start
    started: list[str] = []

    def fail_after_the_first_answer(thread: threading.Thread) -> None:
        if thread.name == "agentv-progress":
            raise RuntimeError("can't start new thread")
        started.append(thread.name)
        if len(started) > 1:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_after_the_first_answer)


@pytest.mark.usefixtures("no_room_for_b")
def test_gates_groups_and_progress_count_no_machine_failure() -> None:
    gates = ["--fail-under", "0.9", "--min-pass-rate", "0.9"]
    ran = agentv("eval", "cases.jsonl", "--workers", "1", "--by", "kind", *gates, "--out", "r.jsonl")
    assert ran.returncode == 1
    assert {result["eval_id"]: result.get("failure") for result in results("r.jsonl")} == {"a": None, "b": "machine"}
    assert "2/2 done, mean 1.000, 1 error" in ran.stderr
    assert "--fail-under" not in ran.stderr
    assert "--min-pass-rate" not in ran.stderr
    assert (
        "error: 1 case failed because the machine reached a limit; run it again with 'agentv eval --resume'"
        in ran.stderr
    )
    _, groups = ran.stdout.split("BY kind")
    assert "\n  a     1  1.000 " in groups
    assert "\n  b     " not in groups


@pytest.mark.usefixtures("no_room_for_b")
def test_a_check_in_pytest_is_undecided_after_a_machine_failure() -> None:
    report = asyncio.run(package.evaluate("cases.jsonl", workers=1))
    run = CheckedRun(report, Path("r.jsonl"), Path(), undecided="fail")
    with pytest.raises(pytest.fail.Exception, match="undecided: 1 case could not run because the machine reached"):
        run.check(mean=0.1)


def test_failed_in_selects_machine_failures(project: Write) -> None:
    failed = {"eval_id": "1", "dataset": "a", "score": 0.0, "error": "no room", "failure": "machine"}
    project("r.jsonl", [{"eval_id": "0", "dataset": "a", "score": 1.0, "verdict": "pass"}, failed])
    evaluate("a.jsonl", "--failed-in", "r.jsonl", "--out", "again.jsonl")
    assert [result["eval_id"] for result in results("again.jsonl")] == ["1"]


def test_gates_are_not_missed_by_machine_failures_alone(project: Write) -> None:
    ran = with_limits("ulimit -n 14", "a.jsonl", "--limit", "1", "--fail-under", "0.5", "--out", "r.jsonl")
    assert ran.returncode == 1
    assert "1 planned = 1 machine failure" in ran.stdout
    assert "--fail-under" not in ran.stderr


def test_a_workspace_is_removed_without_a_thread(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("template/file.txt", "hello")
    write(
        "targets.yaml",
        "targets: [{name: default, provider: cli, command_template: 'cat file.txt', workspace_template: template}]",
    )
    write("a.jsonl", [a_case("a", evaluators=[HELLO])])
    start = threading.Thread.start
    started: list[str] = []

    def fail_after_the_answer(thread: threading.Thread) -> None:
        started.append(thread.name)
        if len(started) > 3:  # copy, snapshot, changes
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_after_the_answer)
    ran = agentv("eval", "a.jsonl", "--out", "r.jsonl")
    assert ran.returncode == 0, ran.stderr
    assert results("r.jsonl")[0]["verdict"] == "pass"


def test_a_template_without_room_for_its_copy_is_a_failure_of_the_machine(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("template/folder/file.txt", "hello")
    write(
        "targets.yaml", "targets: [{name: default, provider: cli, command_template: ls, workspace_template: template}]"
    )
    write("a.jsonl", [a_case(str(number), evaluators=[HELLO]) for number in range(3)])

    def copy(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", source, None, target)

    monkeypatch.setattr(shutil, "copy2", copy)
    ran = evaluate("a.jsonl", "--max-errors", "1", "--out", "r.jsonl", expect=1)

    assert "3 planned = 3 machine failures" in ran.stdout
    assert {result["failure"] for result in results("r.jsonl")} == {"machine"}
    assert {result["error"] for result in results("r.jsonl")} == {
        "the machine has reached a limit: No space left on device"
    }


def test_only_resource_errors_are_machine_failures() -> None:
    def raised(number: int) -> Any:
        try:
            try:
                raise OSError(number, os.strerror(number))
            except OSError as error:
                raise ValueError("wrapped") from error
        except ValueError as error:
            return machine_error(error)

    assert str(raised(errno.EMFILE)) == "the machine has reached a limit: Too many open files"
    assert str(raised(errno.ENOSPC)) == "the machine has reached a limit: No space left on device"
    assert raised(errno.ENOENT) is None


def test_a_shrinking_limit_is_reported_when_it_has_halved() -> None:
    async def shrink() -> None:
        room = Room(workers=1, open_cases=50)
        for _ in range(50):
            room.enter()
        waiting = [asyncio.create_task(room.make("the machine is full", 1)) for _ in range(49)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    with collect_warnings() as warnings:
        asyncio.run(shrink())
    assert [warning.message for warning in warnings] == [
        f"the machine is full: continuing with at most {cases} at once"
        for cases in ("49 cases", "24 cases", "12 cases", "6 cases", "3 cases", "1 case")
    ]
