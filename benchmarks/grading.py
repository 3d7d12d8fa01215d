"""What it costs to grade stored answers, next to a mock run of the same cases; and the memory that takes.

Time is that of the processor; both take turns, so that a noisy moment hits them both.
"""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure, run_agentv
from benchmarks.running import write_project

CASES, ROUNDS = 100_000, 5
FEW, MANY = 10_000, 1_000_000
MODULES = "agentv.cli.eval, agentv.cli.grade"


def figures() -> Iterator[Figure]:
    rounds = [run_and_grade(CASES)[:2] for _ in range(ROUNDS)]
    ratio = statistics.median(graded / ran for ran, graded in rounds)
    ran, graded = (statistics.median(times) / CASES * 1e6 for times in zip(*rounds, strict=True))
    detail = f"{graded:.0f} us an answer, {ran:.0f} us a mock case"
    yield Figure("grading a stored answer / a mock case", ratio, "x", 1, detail)
    few, many = (run_and_grade(count)[2] for count in (FEW, MANY))
    index = (many - few) * 1e6 / (MANY - FEW)
    yield Figure(f"memory of grading, {MANY:,} more than {FEW:,}", many - few, "MB", detail=f"{index:.0f} bytes each")


def run_and_grade(count: int) -> tuple[float, float, float]:
    """Seconds of the processor that a run and a grading of its answers take, and megabytes at the grading's peak."""
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), count)
        ran, _ = run_agentv(name, "eval", "--out", "out.jsonl", modules=MODULES)
        graded, peak = run_agentv(name, "grade", "--out", "graded.jsonl", "out.jsonl", modules=MODULES)
        return ran, graded, peak
