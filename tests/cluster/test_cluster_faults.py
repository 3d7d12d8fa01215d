"""Workers, schedulers and drivers that die or hang: each case has one result, and few calls are repeated."""

import os
import random
import re
import resource
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kits.clusters import Cluster, a_project, an_environment, calls, children, is_living
from tests.kits.processes import wait_until
from tests.kits.project import Write
from tests.kits.runs import evaluate, results, start, wait_for_results

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("AGENTV_TEST_KILLS", "4"))
"""How often a worker is killed; 50 are promised."""


def ids() -> Counter[str]:
    return Counter(result["eval_id"] for result in results("out.jsonl"))


def ended(run: "subprocess.Popen[str]", expect: int = 0) -> tuple[str, str]:
    out, err = run.communicate(timeout=300)
    assert run.returncode == expect, out + err
    assert "Traceback" not in err
    return out, err


def test_killed_workers_lose_no_case_and_repeat_only_those_in_flight(write: Write) -> None:
    cases = KILLS * 80
    path = a_project(write, cases, ALLOWED)
    allow(0)
    run = start(str(path), "--cluster", "local:2", "--workers", "4", "--out", "out.jsonl")
    dice = random.Random(3)
    for kills in range(KILLS):
        allow(20 + kills * 60)  # calls, some of which are lost with their workers, and never all
        wait_until(lambda: len(children(run)) == 2)
        wait_for_results(Path("out.jsonl"), 10 + kills * 40)
        time.sleep(dice.random() * 0.2)
        os.kill(dice.choice(children(run)), signal.SIGKILL)
    allow(10 * cases)
    _, err = ended(run)
    kills = KILLS
    assert ids() == Counter(f"c{n}" for n in range(cases))
    lost, twice = map(
        int, re.findall(r"(\d+) workers? (?:was|were) lost with (\d+) cases? in flight; these may", err)[0]
    )
    assert 1 <= lost <= kills  # one that was not ready yet had no cases
    assert len(calls()) - cases <= twice <= kills * 4


ALLOWED = """mine = len(open("calls").read().split())
    time.sleep(0.1)
    while mine > int(open("allowed").read()):
        time.sleep(0.02)"""
"""Calls go on as long as there are no more of them than a test allows: a run ends when it should."""


def allow(count: int) -> None:
    Path("allowed.new").write_text(str(count))
    Path("allowed.new").replace("allowed")


def test_a_hanging_worker_is_bypassed_and_may_rejoin(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    stopped, _ = cluster.add(), cluster.add()
    path = a_project(write, 500, "time.sleep(0.2)")
    run = start(str(path), "--cluster", cluster.url, "--workers", "2", "--out", "out.jsonl")
    wait_for_results(Path("out.jsonl"), 20)
    stopped.send_signal(signal.SIGSTOP)
    wait_for_line(run, "worker w1 is lost")
    stopped.send_signal(signal.SIGCONT)
    ended(run)
    assert ids() == Counter(f"c{n}" for n in range(500))
    assert len(calls()) - 500 <= 4


def test_a_worker_that_hangs_forever_does_not_block_the_run(write: Write, tmp_path: Path) -> None:
    """Other workers take over its cases, and the run ends with the last result. This scheduler would wait an hour."""
    cluster = Cluster(tmp_path / "cluster", env=an_environment(DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="1 hour"))
    stopped, _ = cluster.add(), cluster.add()
    path = a_project(write, 100, "time.sleep(0.1)")
    run = start(str(path), "--cluster", cluster.url, "--workers", "2", "--out", "out.jsonl")
    wait_for_results(Path("out.jsonl"), 10)
    stopped.send_signal(signal.SIGSTOP)
    _, err = ended(run)
    assert ids() == Counter(f"c{n}" for n in range(100))
    assert "1 worker was lost" in err


def wait_for_line(run: "subprocess.Popen[str]", text: str) -> str:
    assert run.stderr is not None
    seen = ""
    while text not in seen:
        line = run.stderr.readline()
        assert line, f"{text!r} was never said: {seen}"
        seen += line
    return seen


def test_workers_may_join_and_leave(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    first = cluster.add()
    path = a_project(write, 200, "open('pid-%d' % os.getpid(), 'w').close()\n    " + ALLOWED)
    allow(20)
    run = start(str(path), "--cluster", cluster.url, "--workers", "2", "--out", "out.jsonl")
    wait_for_results(Path("out.jsonl"), 10)
    second = cluster.add()
    wait_until(lambda: Path(f"pid-{second.pid}").exists())
    allow(10_000)
    first.terminate()
    ended(run)
    assert ids() == Counter(f"c{n}" for n in range(200))


def test_a_killed_driver_can_be_resumed(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.add()
    path = a_project(write, 200, "time.sleep(0.2)")
    flags = ["--cluster", cluster.url, "--workers", "4", "--out", "out.jsonl"]
    run = start(str(path), *flags)
    wait_for_results(Path("out.jsonl"), 20)
    run.kill()
    run.wait()
    killed = time.monotonic()
    wait_until(lambda: time.monotonic() - killed > 15)
    before = len(calls())
    time.sleep(2)
    assert len(calls()) == before, "a worker went on without its driver"
    ran = evaluate(path, *flags, "--resume")
    assert "already done" in ran.stderr
    assert ids() == Counter(f"c{n}" for n in range(200))


def test_a_local_cluster_ends_if_its_driver_is_killed(write: Write) -> None:
    path = a_project(write, 400, "time.sleep(0.2)")
    flags = ["--cluster", "local:2", "--out", "out.jsonl"]
    run = start(str(path), *flags, "--workers", "2")
    wait_for_results(Path("out.jsonl"), 20)
    workers = children(run)
    run.kill()
    run.wait()
    wait_until(lambda: not any(map(is_living, workers)))
    evaluate(path, *flags, "--resume", "--workers", "20")
    assert ids() == Counter(f"c{n}" for n in range(400))


def test_without_a_scheduler_the_run_ends_with_the_results_so_far(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.add()
    path = a_project(write, 400, "time.sleep(0.1)")
    run = start(str(path), "--cluster", cluster.url, "--workers", "2", "--out", "out.jsonl")
    wait_for_results(Path("out.jsonl"), 20)
    cluster.scheduler.kill()
    out, err = ended(run, expect=1)
    assert f"lost the connection to the scheduler at {cluster.url}" in err
    assert "continue with --resume when the cluster is back" in err
    arrived = ids()
    assert len(arrived) >= 20
    assert "not run" in out
    evaluate(path, "--workers", "50", "--out", "out.jsonl", "--resume")
    assert ids() == Counter(f"c{n}" for n in range(400))


def test_a_case_that_crashes_its_worker_is_isolated(write: Write) -> None:
    path = a_project(write, 30, "question == 'q7' and os._exit(3); time.sleep(0.05)")
    ran = evaluate(path, "--cluster", "local:2", "--workers", "3", "--out", "out.jsonl", expect=1)
    found = {result["eval_id"]: result for result in results("out.jsonl")}
    assert ids() == Counter(f"c{n}" for n in range(30))
    assert [id_ for id_, result in found.items() if result.get("error")] == ["c7"]
    assert "the case crashes its worker: 5 workers were lost while it ran" in found["c7"]["error"]
    assert "1 target errors" in ran.stdout or "1 target error" in ran.stdout


def interrupted(run: "subprocess.Popen[Any]") -> str:
    workers = children(run)
    run.send_signal(signal.SIGINT)
    _, err = ended(run, expect=130)
    wait_until(lambda: not any(map(is_living, workers)))
    return err


def test_an_interrupted_run_leaves_nothing_behind(write: Write) -> None:
    path = a_project(write, 400, "time.sleep(0.2)")
    run = start(str(path), "--cluster", "local:2", "--workers", "2", "--out", "out.jsonl")
    wait_for_results(Path("out.jsonl"), 10)
    before = set(os.listdir())
    err = interrupted(run)
    assert "interrupted: finished cases are saved; continue with --resume" in err
    assert set(os.listdir()) == before
    assert not any("dask" in name for name in os.listdir())


def test_an_interrupted_run_leaves_the_workers_of_a_cluster_free_for_the_next(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.add()
    path = a_project(write, 60, "time.sleep(0.2)")
    flags = ["--cluster", cluster.url, "--workers", "2", "--out", "out.jsonl"]
    run = start(str(path), *flags)
    wait_for_results(Path("out.jsonl"), 10)
    interrupted(run)
    evaluate(path, *flags, "--resume")
    assert ids() == Counter(f"c{n}" for n in range(60))


def test_a_full_disk_stops_the_run_cleanly(write: Write) -> None:
    path = a_project(write, 100, "pass")

    def small_files_only() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))

    flags = ["--cluster", "local:2", "--out", "out.jsonl"]
    run = start(str(path), *flags, preexec_fn=small_files_only)
    _, err = ended(run, expect=1)
    assert "out.jsonl: results cannot be written: File too large" in err
    assert "earlier results are intact; free some disk space, then continue with --resume" in err
    assert 0 < len(results("out.jsonl")) < 100
    evaluate(path, *flags, "--resume")
    assert ids() == Counter(f"c{n}" for n in range(100))


NEVER_READY = """
import sys, time


class Held:
    def find_spec(self, name, path=None, target=None):
        if name == "distributed":
            time.sleep(600)

if any("local_cluster" in word for word in sys.orig_argv):
    sys.meta_path.insert(0, Held())
"""
"""Workers that import for as long as a test takes."""


def test_a_run_that_is_interrupted_before_it_starts_leaves_nothing_behind(write: Write) -> None:
    path = a_project(write, 4)
    held = write("held/sitecustomize.py", NEVER_READY).parent
    run = start(
        str(path), "--cluster", "local:2", "--out", "out.jsonl", env=an_environment(PYTHONPATH=str(held.absolute()))
    )
    wait_until(lambda: len(children(run)) == 2)
    interrupted(run)
    assert calls() == []
    assert not any("dask" in name for name in os.listdir())
