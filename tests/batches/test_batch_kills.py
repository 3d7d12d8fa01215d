"""However often a run is killed: no request is submitted twice, none is lost, each case has exactly one result.

`AGENTV_TEST_KILLS=200 pytest tests/batches/test_batch_kills.py -n 0 -s` kills as often as that, each vendor's runs.
"""

import json
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
from tests.kits.vendor_batches import ECHO, JOURNAL, BatchProject, journaled

KILLS = int(os.environ.get("AGENTV_TEST_KILLS", "3"))
CASES, TRIALS, MOST_KILLS = 8, 2, 10
JUDGE = {"type": "llm_judge", "judge_target": "judge", "prompt": '{{ candidate_answer }} {"score": 1}'}
PAIRS = [("openai", "anthropic"), ("anthropic", "gemini"), ("gemini", "azure"), ("azure", "openai")]
"""A target and its judge; one pair is enough where nothing is looked for."""


@pytest.mark.parametrize(("vendor", "judge"), PAIRS if KILLS > 10 else PAIRS[:1])
@pytest.mark.slow
def test_kills_at_random_moments_neither_lose_nor_repeat_anything(write: Write, vendor: str, judge: str) -> None:
    dice = random.Random(f"{vendor} {os.environ.get('AGENTV_TEST_SEED', '20')}")
    server = start_batch_server(polls=3, seconds=0.02, order="reversed")
    project = BatchProject(write, server, vendor)
    project.set_target(server.target(judge, name="judge", batch_api=True, batch_poll_seconds=0.05))
    kills, longest = Counter[str](), 0.0
    runs = 0
    while kills.total() < KILLS:
        runs += 1
        out = f"out-{runs}.jsonl"
        names = [f"run-{runs}-case-{number}" for number in range(CASES)]
        path = project.write_cases(*names, evaluators=[ECHO, JUDGE])
        command = [str(path), "--out", out, "--trials", str(TRIALS), "--workers", "2", "--resume"]
        for attempt in range(MOST_KILLS if longest else 1):
            run = start(*command)
            assert run.stderr is not None
            assert run.stderr.readline()  # it has planned; before that there is nothing to lose
            began = time.monotonic()
            try:
                run.communicate(timeout=dice.uniform(0.1, 1.1) * longest if longest else None)
                if attempt == 0:
                    longest = time.monotonic() - began  # as long as such a run takes on this machine, now
                break
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.communicate()
                kills[_step()] += 1
        evaluate(*command)
        found = Counter((result["eval_id"], result["trial"]) for result in results(out))
        assert found == Counter((name, trial) for name in names for trial in range(1, TRIALS + 1))
        assert {result["score"] for result in results(out)} == {1.0}
        assert not journaled()
        assert not Path(JOURNAL, "pending").exists()
        Path(out).unlink()
    state = server.state()
    assert set(state["submitted"].values()) == {1}
    assert len(state["submitted"]) == 2 * runs * CASES * TRIALS  # a request to the target, and one to the judge
    assert not state["live"]
    print(f"\n{vendor}, judged by {judge}: {kills.total()} kills in {runs} runs, after {dict(kills.most_common())}")


def _step() -> str:
    """How far the newest batch was when the run was killed, by its journal."""
    newest = max(
        (path / "journal.jsonl" for path in journaled()), key=lambda path: path.stat().st_mtime_ns, default=None
    )
    if newest is None:
        return "nothing"
    role = "judge" if '"role":"judge"' in newest.read_text() else "target"
    last = json.loads(newest.read_text().splitlines()[-1])
    return f"{role} {last['step']}"
