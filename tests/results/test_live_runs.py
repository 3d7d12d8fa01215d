"""`agentv runs` lists a run as running only while it runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kits.processes import PATIENCE_SECONDS, start_process, wait_until
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import ANY, evaluate

EVAL = [sys.executable, "-m", "agentv", "eval", "a.jsonl", "--out", "o.jsonl", "--quiet"]
NEW_NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
WAITING = """
import time
from pathlib import Path

def answer(question):
    while not Path("may end").exists():
        time.sleep(0.01)
    return "done"
"""


@pytest.fixture
def project(write: Write) -> Write:
    """A project whose target answers once the file `may end` exists."""
    write("agent.py", WAITING)
    write("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    write("a.jsonl", [a_case("a", evaluators=[ANY])])
    return write


def listed() -> list[dict[str, Any]]:
    """Return the runs as `agentv runs` lists them, oldest first."""
    ran = agentv("runs", "--format", "json")
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found[::-1]


def statuses() -> list[str]:
    return [run["status"] for run in listed()]


def start_run(*prefix: str) -> "subprocess.Popen[Any]":
    """Start a run, and wait until it is recorded."""
    records = len(list(Path().glob(".agentv/runs/*.json")))
    run = start_process([*prefix, *EVAL], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(Path().glob(".agentv/runs/*.json"))) > records)
    return run


def can_unshare() -> bool:
    try:
        return subprocess.run([*NEW_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_a_run_in_another_pid_namespace_is_running(project: Write) -> None:
    if not can_unshare():
        pytest.skip("unshare cannot create a PID namespace on this machine")
    run = start_run(*NEW_NAMESPACE)
    (record,) = listed()
    assert record["status"] == "running"
    assert record["process"]["pid"] != run.pid, "the id of the process is that of its own namespace"
    project("may end", "")
    assert run.wait(PATIENCE_SECONDS) == 0
    assert statuses() == ["done"]


def test_a_run_in_another_pid_namespace_that_was_killed_is_not_running(project: Write) -> None:
    if not can_unshare():
        pytest.skip("unshare cannot create a PID namespace on this machine")
    run = start_run(*NEW_NAMESPACE)
    assert statuses() == ["running"]
    run.kill()
    run.wait()
    wait_until(lambda: statuses() == ["killed"])


@pytest.fixture
def quick(project: Write) -> str:
    """Targets that answer at once."""
    return str(project("quick.yaml", "targets: [{name: default, provider: mock, response: done}]\n"))


def test_a_run_is_running_after_another_was_refused_the_same_file(project: Write, quick: str) -> None:
    first = start_run()
    ran = evaluate("a.jsonl", "--out", "o.jsonl", "--targets", quick, expect=2)
    assert "o.jsonl: another run is writing to this file\n" in ran.stderr
    assert statuses() == ["running"]
    project("may end", "")
    assert first.wait(PATIENCE_SECONDS) == 0
    assert statuses() == ["done"]


def test_a_run_is_running_after_a_later_one_wrote_a_file_of_the_same_name(project: Write, quick: str) -> None:
    first = start_run()
    Path("o.jsonl").rename("moved.jsonl")
    evaluate("a.jsonl", "--out", "o.jsonl", "--targets", quick)
    assert statuses() == ["running", "done"]
    project("may end", "")
    assert first.wait(PATIENCE_SECONDS) == 0
    assert statuses() == ["done", "done"]
