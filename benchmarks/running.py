"""What agentv itself costs a case: a target that answers at once, one deterministic check, results on disk."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import PRINT_PEAK_KB, Figure

CODE = f"""
import sys, time
from agentv.__main__ import main
import agentv.cli.eval
start = time.perf_counter()
sys.argv = ["agentv", "eval", "cases.jsonl", "--workers", "10", "--quiet", "--out", "out.jsonl"]
try:
    main()
finally:
    print(time.perf_counter() - start)
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
    """Seconds that a run takes once it is loaded, and megabytes at the peak."""
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), count)
        done = subprocess.run([sys.executable, "-c", CODE], cwd=name, stdout=subprocess.PIPE, text=True, check=True)
        seconds, peak = done.stdout.split()[-2:]
        return float(seconds), int(peak) / 1024


def figures() -> Iterator[Figure]:
    few_runs = [run(1_000)[0] for _ in range(15)]
    times, peaks = zip(*(run(100_000) for _ in range(3)), strict=True)
    nothing = min(run(1)[0] for _ in range(10))
    small, large = (min(few_runs) - nothing) / 1_000, (min(times) - nothing) / 100_000
    detail = f"{large * 1e6:.0f} us a case at 100,000, {small * 1e6:.0f} us at 1,000, {nothing * 1e3:.0f} ms for none"
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
