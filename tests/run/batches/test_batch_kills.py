"""However often a run is killed: no request is submitted twice, none is lost, each case has exactly one result.

`AGENTV_TEST_KILLS=200 pytest tests/run/batches/test_batch_kills.py -s` kills as often as that.
"""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.kits.batch_servers import start_batch_server
from tests.kits.project import Write
from tests.kits.runs import evaluate, results, start
from tests.kits.vendor_batches import BatchProject, journaled

KILLS = int(os.environ.get("AGENTV_TEST_KILLS", "5"))
CASES, TRIALS = 12, 2


@pytest.mark.parametrize("vendor", ["openai"])
def test_kills_at_random_moments_neither_lose_nor_repeat_anything(write: Write, vendor: str) -> None:
    dice = random.Random(int(os.environ.get("AGENTV_TEST_SEED", "20")))
    server = start_batch_server(polls=3, seconds=0.03)
    project = BatchProject(write, server, vendor)
    lifetimes: list[float] = []
    kills, runs, longest = 0, 0, 3.0
    while kills < KILLS:
        runs += 1
        out = f"out-{runs}.jsonl"
        names = [f"run-{runs}-case-{number}" for number in range(CASES)]
        path = project.write_cases(*names)
        command = [str(path), "--out", out, "--trials", str(TRIALS), "--workers", "2", "--quiet", "--resume"]
        while kills < KILLS:
            began = time.monotonic()
            run = start(*command)
            try:
                run.communicate(timeout=dice.uniform(0.2, 1.1) * longest)
                longest = time.monotonic() - began  # as long as such a run takes on this machine, now
                break
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.communicate()
                kills += 1
                lifetimes.append(time.monotonic() - began)
        evaluate(*command)
        found = Counter((result["eval_id"], result["trial"]) for result in results(out))
        assert found == Counter((name, trial) for name in names for trial in range(1, TRIALS + 1))
        assert not [result for result in results(out) if result.get("error")]
        assert not journaled()
        Path(out).unlink()
    state = server.state()
    assert set(state["submitted"].values()) == {1}
    assert len(state["submitted"]) == runs * CASES * TRIALS
    assert not state["live"]
    print(
        f"\n{kills} kills in {runs} runs, after {min(lifetimes):.2f} to {max(lifetimes):.2f} s: nothing lost, nothing twice"
    )
