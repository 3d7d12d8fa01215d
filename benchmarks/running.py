"""What agentv itself costs a case: a target that answers at once, one deterministic check, results on disk."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import PRINT_PEAK_KB, Figure

CODE = f"""
import sys
from agentv.__main__ import main
sys.argv = ["agentv", "eval", "cases.jsonl", "--workers", "10", "--quiet", "--out", "out.jsonl"]
try:
    main()
finally:
    {PRINT_PEAK_KB}
"""


def write_project(folder: Path, count: int) -> None:
    """An eval file of `count` cases and a mock target."""
    with (folder / "cases.jsonl").open("w") as file:
        for number in range(count):
            case = {"id": f"case-{number}", "expected_outcome": "Says hello", "input": f"Say hello to number {number}"}
            file.write(json.dumps(case) + "\n")
    (folder / "cases.yaml").write_text("evaluators: [{type: contains, value: hello}]\n")
    (folder / "targets.yaml").write_text("targets: [{name: default, provider: mock, response: hello there}]\n")


def run(count: int) -> tuple[float, float]:
    """Seconds for a case, start-up aside, and megabytes at the peak."""
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), count)
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", CODE], cwd=name, stdout=subprocess.PIPE, text=True, check=True)
        return time.perf_counter() - start, int(done.stdout.split()[-1]) / 1024


def figures() -> Iterator[Figure]:
    startup = min(run(1)[0] for _ in range(5))
    small = (min(run(1_000)[0] for _ in range(5)) - startup) / 1_000
    times, peaks = zip(*(run(100_000) for _ in range(2)), strict=True)
    large = (min(times) - startup) / 100_000
    detail = f"{large * 1e6:.0f} us a case at 100,000, {small * 1e6:.0f} us at 1,000, start-up {startup * 1e3:.0f} ms"
    yield Figure("a case at 100,000 / at 1,000", large / small, "x", 1.2, detail)
    few = run(10_000)[1]
    many = run(1_000_000)[1]
    yield Figure(
        "memory of a run, 1,000,000 cases more than 10,000",
        many - few,
        "MB",
        30,
        f"100,000: {max(peaks):.0f} MB in all",
    )
