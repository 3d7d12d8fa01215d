"""What a cluster costs: the same cases on `--cluster local:2` and without a cluster, and the driver's memory."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import PRINT_PEAK_KB, Figure

CASES = 20_000
IN_FLIGHT = 50
CODE = f"""
import sys
from agentv.__main__ import main
sys.argv = ["agentv", *sys.argv[1:]]
try:
    main()
finally:
    {PRINT_PEAK_KB}
"""


class Ran(NamedTuple):
    """How long the cases took once all was ready, and the driver's memory at its peak."""

    seconds: float
    megabytes: float


def write_project(folder: Path, count: int) -> None:
    """An eval file of `count` cases, and a mock target that takes 10 ms."""
    with (folder / "cases.jsonl").open("w") as file:
        for number in range(count):
            case = {"id": f"case-{number}", "expected_outcome": "Says hello", "input": f"Say hello to number {number}"}
            file.write(json.dumps(case) + "\n")
    (folder / "cases.yaml").write_text("evaluators: [{type: contains, value: hello}]\n")
    target = {"name": "default", "provider": "mock", "response": "hello there", "delay_ms": 10}
    (folder / "targets.yaml").write_text(json.dumps({"targets": [target]}))


def run(count: int, *flags: str) -> Ran:
    """Run so many cases, and read from the results when the first and the last came in."""
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), count)
        args = ["eval", "cases.jsonl", "--workers", str(IN_FLIGHT), "--quiet", "--out", "out.jsonl", *flags]
        done = subprocess.run(
            [sys.executable, "-c", CODE, *args], cwd=name, stdout=subprocess.PIPE, text=True, check=True
        )
        times = sorted(re.findall(r'"timestamp":"[^"]*T([0-9:.]+)Z"', Path(name, "out.jsonl").read_text()))
        assert len(times) == count
        return Ran(_seconds(times[-1]) - _seconds(times[0]), int(done.stdout.split()[-1]) / 1024)


def _seconds(time: str) -> float:
    hours, minutes, seconds = time.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def figures() -> Iterator[Figure]:
    pairs = [(run(CASES).seconds, run(CASES, "--cluster", "local:2").seconds) for _ in range(3)]
    here, there = min(alone for alone, _ in pairs), min(both for _, both in pairs)
    detail = f"{CASES / here:,.0f} cases a second here, {CASES / there:,.0f} on local:2"
    yield Figure("throughput per worker, local:2 / no cluster", here / there / 2, "x", 0.8, detail, least=True)
    one = min(run(CASES, "--cluster", "local:1").seconds for _ in range(2))
    overhead = (one - here) / CASES * 1000
    yield Figure(
        "a cluster costs a case more, 50 in flight", overhead, "ms", 1, f"local:1: {one:.1f} s, here {here:.1f} s"
    )
    few, many = run(10_000, "--cluster", "local:2").megabytes, run(100_000, "--cluster", "local:2").megabytes
    detail = f"{many:.0f} MB in all"
    yield Figure("memory of the driver, 100,000 cases more than 10,000", many - few, "MB", 30, detail)
