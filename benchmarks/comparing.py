"""Comparing two results files."""

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.loading import bare
from benchmarks.measure import Figure, best_of, peak_mb, process

PAIRS = 100_000
COMPARE = """
import os, sys
kept = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.argv = ["agentv", "compare", *sys.argv[1:], "--quiet"]
from agentv.__main__ import main
try:
    main()
except SystemExit:
    pass
sys.stdout.flush()
os.dup2(kept, 1)
"""


def typical(number: int, score: float) -> dict[str, object]:
    """A result as a run of ours writes it."""
    part = {"name": "contains", "type": "contains", "score": score, "weight": 1.0, "verdict": "pass"}
    return {
        "timestamp": "2026-11-16T03:00:00.000Z",
        "eval_id": f"case-{number:07}",
        "dataset": "capitals",
        "target": "default",
        "attempt": 1,
        "score": score,
        "verdict": "pass" if score >= 0.8 else "fail",
        "hits": ["contains 'Paris'"],
        "candidate_answer": "The capital of the country that was asked for is Paris, as everybody knows.",
        "evaluator_results": [part],
        "execution_metrics": {"duration_ms": 1.234},
        "digests": {"case": f"{number:012x}", "target": "a" * 12, "evaluators": "b" * 12, "agentv": "0.1.0"},
    }


def shortest(number: int, score: float) -> dict[str, object]:
    return {"eval_id": f"case-{number}", "score": score}


def write(path: Path, make: Callable[[int, float], object], count: int, *, shuffled: bool) -> Path:
    pick = random.Random(shuffled)
    numbers = list(range(count))
    if shuffled:  # results come in the order in which they are done
        pick.shuffle(numbers)
    with path.open("wb") as file:
        for number in numbers:
            file.write(msgspec.json.encode(make(number, round(pick.random(), 3))) + b"\n")
    return path


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        for make in (typical, shortest):
            files = _files(Path(name), make, PAIRS)
            floor = [partial(bare, file) for file in files]
            compare = process(sys.executable, "-m", "agentv", "compare", *map(str, files), "--quiet")
            start = process(sys.executable, "-m", "agentv", "compare", "--help")
            first, second, whole, started = best_of(5, *floor, _no_matter(compare), start)
            detail = f"{whole:.2f} s in all, of which {started:.2f} s start-up; {PAIRS:,} pairs"
            ratio, limit = (whole - started) / (first + second), 3 if make is typical else 5
            yield Figure(f"compare / bare decode ({make.__name__})", ratio, "x", limit, detail)
            peak = peak_mb(COMPARE, *map(str, files))
            yield Figure(f"memory, {PAIRS:,} pairs ({make.__name__})", peak, "MB", 91)
        files = _files(Path(name), typical, 1_000_000)
        yield Figure("memory, 1,000,000 pairs", peak_mb(COMPARE, *map(str, files)), "MB", 250)


def _files(folder: Path, make: Callable[[int, float], object], count: int) -> list[Path]:
    return [write(folder / f"{shuffled}.jsonl", make, count, shuffled=shuffled) for shuffled in (False, True)]


def _no_matter(job: Callable[[], object]) -> Callable[[], object]:
    """The same job, whatever its exit code says of the results."""
    import contextlib
    import subprocess

    def run() -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            job()

    return run
