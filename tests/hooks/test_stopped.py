"""Hooks of stopped runs, and hooks on a cluster."""

import os
import signal
from pathlib import Path

import pytest

from tests.kits.hooks import Hooked, log
from tests.kits.naps import sleeping
from tests.kits.processes import PATIENCE_SECONDS, wait_until
from tests.kits.project import Write
from tests.kits.runs import evaluate, results, start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_the_target_works(write: Write, nap: str, number: signal.Signals) -> None:
    project = Hooked(write)
    project.settings = {"name": "default", "provider": "cli", "command_template": nap}
    project.save("a", "b", "c")
    run = start("cases.jsonl", "--workers", "2", "--out", "out.jsonl")
    wait_until(lambda: sleeping(nap) == 2)
    run.send_signal(number)
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130, err
    assert "Traceback" not in err
    lines = log()
    assert lines[0] == "before_all"
    assert lines[-1] == "after_all"
    assert sorted(lines[3:-1]) == ["after_each a a database-of-a", "after_each b b database-of-b"]
    assert results("out.jsonl") == []


def test_a_stop_in_the_middle_of_before_each_lets_it_return_its_state(write: Write) -> None:
    write(
        "mine.py",
        "import time\nfrom hooks import note\n"
        "def before_each():\n    note('begun')\n    time.sleep(0.2)\n    return {'database': 'made'}\n"
        "def after_each(state):\n    note('removed', state.get('database'))\n",
    )
    hooks = {name: {"function": f"mine.py:{name}"} for name in ("before_each", "after_each")}
    Hooked(write, hooks).save()
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: log() == ["begun"])
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    assert log() == ["begun", "removed made"]


def test_a_stop_while_before_all_waits(write: Write, nap: str) -> None:
    Hooked(write, {"before_all": nap, "after_all": "echo after_all >> log"}).save()
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: sleeping(nap) == 1)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    assert log() == ["after_all"]
    assert sleeping(nap) == 0


@pytest.mark.slow
def test_a_stop_ends_hooks_that_ignore_it(write: Write, nap: str) -> None:
    """The promise is 8 seconds; without common limits, these hooks would take half an hour."""
    stubborn = f"trap '' INT TERM HUP; {nap}"
    project = Hooked(write, {"after_each": [stubborn, stubborn], "after_all": [stubborn, stubborn]})
    project.settings = {"name": "default", "provider": "cli", "command_template": stubborn}
    project.hooks["before_all"] = "true"
    project.save("a", "b")
    run = start("cases.jsonl", "--workers", "2", "--out", "out.jsonl")
    wait_until(lambda: sleeping(nap) == 2)
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    assert err.count("was terminated: the run is being stopped") == 3
    assert err.count("was not run: the run is being stopped") == 3
    assert sleeping(nap) == 0


@pytest.mark.slow
def test_on_a_cluster_hooks_of_cases_run_on_the_workers(write: Write) -> None:
    write("mine.py", "import os\nfrom hooks import note\ndef before_each():\n    note('pid', os.getpid())\n")
    project = Hooked(write, hooks={"before_each": {"function": "mine.py:before_each"}})
    project.save(*"abcdefgh")
    ran = evaluate("cases.jsonl", "--cluster", "local:2", "--out", "out.jsonl")
    lines = log()
    assert (lines[0], lines[-1]) == ("before_all", "after_all")
    for id_ in "abcdefgh":
        assert lines.count(f"before_each {id_}") == 1
        assert lines.count(f"after_each {id_} {id_} database-of-{id_}") == 1
    pids = {line for line in lines if line.startswith("pid ")}
    assert pids  # on a busy machine, one worker may take all cases
    assert f"pid {os.getpid()}" not in pids
    assert "cases do not get the state that before_all returned: it is not sent to a cluster" in ran.stderr
    assert "database-of" not in Path("out.jsonl").read_text()


@pytest.mark.slow
def test_a_stop_reaches_the_hooks_on_workers_of_a_cluster(write: Write, nap: str) -> None:
    project = Hooked(write)
    project.settings = {"name": "default", "provider": "cli", "command_template": nap}
    project.save("a", "b")
    run = start("cases.jsonl", "--cluster", "local:2", "--out", "out.jsonl")
    wait_until(lambda: sleeping(nap) == 2)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    lines = log()
    assert sorted(lines[1:-1])[:2] == ["after_each a a database-of-a", "after_each b b database-of-b"]
    assert lines[-1] == "after_all"
