"""What a cluster costs: the same cases on `--cluster local:2` and without a cluster, and the driver's memory."""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.asking import server
from benchmarks.measure import PRINT_PEAK_KB, Figure

CASES = 20_000
IN_FLIGHT = 50
LIMIT = 3000
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
    """When each result came in, and the driver's memory at its peak."""

    moments: list[float]
    megabytes: float

    @property
    def seconds(self) -> float:
        """How long the cases took once all was ready."""
        return self.moments[-1] - self.moments[0]

    @property
    def rate(self) -> float:
        """Cases a minute, but for the first and the last of them."""
        inner = self.moments[len(self.moments) // 10 : -len(self.moments) // 10]
        return (len(inner) - 1) / (inner[-1] - inner[0]) * 60


MOCK = {"provider": "mock", "response": "hello there", "delay_ms": 10}


def write_project(folder: Path, count: int, settings: Mapping[str, Any] = MOCK) -> None:
    """An eval file of `count` cases, and a target: a mock that takes 10 ms unless told otherwise."""
    with (folder / "cases.jsonl").open("w") as file:
        for number in range(count):
            case = {"id": f"case-{number}", "expected_outcome": "Says hello", "input": f"Say hello to number {number}"}
            file.write(json.dumps(case) + "\n")
    (folder / "cases.yaml").write_text("evaluators: [{type: contains, value: hello}]\n")
    target = {"name": "default", **settings}
    (folder / "targets.yaml").write_text(json.dumps({"targets": [target]}))


def run(count: int, *flags: str, settings: Mapping[str, Any] = MOCK) -> Ran:
    """Run so many cases, and read from the results when they came in."""
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), count, settings)
        args = ["eval", "cases.jsonl", "--workers", str(IN_FLIGHT), "--quiet", "--out", "out.jsonl", *flags]
        done = subprocess.run(
            [sys.executable, "-c", CODE, *args], cwd=name, stdout=subprocess.PIPE, text=True, check=True
        )
        times = sorted(re.findall(r'"timestamp":"[^"]*T([0-9:.]+)Z"', Path(name, "out.jsonl").read_text()))
        assert len(times) == count
        return Ran([_seconds(time) for time in times], int(done.stdout.split()[-1]) / 1024)


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
    with server() as url:
        limited = {"provider": "http", "url": url, "response_path": "choices[0].message.content"}
        rate = run(600, "--cluster", "local:2", settings={**limited, "requests_per_minute": LIMIT}).rate
    detail = f"{rate:,.0f} requests a minute on two workers, limit {LIMIT:,}"
    yield Figure("a rate limit is missed by", abs(rate / LIMIT - 1) * 100, "%", 5, detail)
    few, many = run(10_000, "--cluster", "local:2").megabytes, run(100_000, "--cluster", "local:2").megabytes
    detail = f"{many:.0f} MB in all"
    yield Figure("memory of the driver, 100,000 cases more than 10,000", many - few, "MB", 30, detail)
