"""A signal at any moment, starting with the first line of Python, gives exit code 130 and no traceback."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kits.processes import start_process, wait_until
from tests.kits.project import Write, a_case
from tests.kits.runs import HELLO, run_one

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has installed its signal handler, which the first line of agentv does."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells by /proc when a handler is set")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.slow
def test_a_signal_at_any_moment_ends_with_130(write: Write, number: signal.Signals) -> None:
    write("targets.yaml", "targets:\n  - {name: default, provider: mock, response: hello, delay_ms: 2}\n")
    write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(40)])
    command = [sys.executable, "-m", "agentv", "eval", "a.jsonl", "--out", "o.jsonl", "--workers", "4"]
    whole = _seconds(command)
    rng = random.Random(int(number))
    for moment in range(16):
        process = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not _is_ready(process.pid, number):
            time.sleep(0.0005)
        time.sleep(whole * 1.2 * (moment + rng.random()) / 16)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
        assert process.returncode in (130, 0), (process.returncode, out, err)
        assert "Traceback" not in err
        assert "Error" not in err
        if process.returncode == 0:
            assert "Results: o.jsonl" in out


def _is_ready(pid: int, number: signal.Signals) -> bool:
    # Python itself handles SIGINT from the start, in its own way: SIGTERM tells when ours are set
    return _handles(pid, signal.SIGTERM) and _handles(pid, number)


def _seconds(command: list[str]) -> float:
    start = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    return time.monotonic() - start


def test_a_signal_to_the_whole_process_tree_records_no_errors_of_targets(write: Write) -> None:
    """A service manager signals the agents first, and agentv only after them."""
    command_template = "echo $$ >> pids; exec sleep 60"
    write("targets.yaml", f"targets:\n  - {{name: default, provider: cli, command_template: '{command_template}'}}\n")
    write("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(3)])
    command = [sys.executable, "-m", "agentv", "eval", "a.jsonl", "--out", "o.jsonl", "--workers", "3"]
    process = start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: Path("pids").exists() and Path("pids").read_text().count("\n") == 3)
    for pid in map(int, Path("pids").read_text().split()):
        os.kill(pid, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert Path("o.jsonl").read_text() == ""


def test_a_child_killed_by_another_process_is_an_error_for_its_case(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: cli, command_template: 'kill -TERM $$; sleep 60'}]")
    write("a.jsonl", [a_case("a", evaluators=[HELLO])])
    result = run_one("a.jsonl", expect=1)
    assert result["error"].startswith("the command was killed by SIGTERM")
