"""Merging eight shards of 125,000 results of 2 kB, against a bare read and write of the same lines, and of the bytes.

Time is that of the processor; all take turns, so that a noisy moment hits them all.
"""

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.measure import Figure, cpu_seconds, peak_mb

SHARDS, EACH, ROUNDS = 8, 125_000, 5
LINES = """
import sys
with open(sys.argv[1], "wb") as written:
    for name in sys.argv[2:]:
        with open(name, "rb") as file:
            for line in file:
                written.write(line)
"""
BYTES = """
import shutil, sys
with open(sys.argv[1], "wb") as written:
    for name in sys.argv[2:]:
        with open(name, "rb") as file:
            shutil.copyfileobj(file, written)
"""
MERGE = """
import os, sys
kept = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.argv = ["agentv", "merge", *sys.argv[1:]]
from agentv.__main__ import main
try:
    main()
except SystemExit:
    pass
sys.stdout.flush()
os.dup2(kept, 1)
"""


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = write_shards(folder, EACH // 100)
        small = peak_mb(MERGE, *map(str, few), "--out", str(folder / "few.jsonl"))
        files = write_shards(folder, EACH)
        size = sum(path.stat().st_size for path in files) / 1e6
        out = folder / "merged.jsonl"

        names = list(map(str, files))
        commands = (
            ["-c", LINES, str(out), *names],
            ["-c", BYTES, str(out), *names],
            ["-m", "agentv", "merge", *names, "--out", str(out)],
        )

        def measure(command: Sequence[str]) -> float:
            out.unlink(missing_ok=True)
            return cpu_seconds(sys.executable, *command)

        rounds = [list(map(measure, commands)) for _ in range(ROUNDS)]
        lines, copied, whole = map(statistics.median, zip(*rounds, strict=True))
        ratio = statistics.median(merge / bare for bare, _, merge in rounds)
        detail = f"{whole:.1f} s, bare {lines:.1f} s; {SHARDS} x {EACH:,} results, {size:,.0f} MB"
        yield Figure("merge / bare read and write of lines", ratio, "x", 3, detail)
        ratio = statistics.median(merge / bare for _, bare, merge in rounds)
        yield Figure("merge / bare copy of the bytes, 64 kB at a time", ratio, "x", detail=f"{copied:.1f} s")
        out.unlink()
        peak = peak_mb(MERGE, *map(str, files), "--out", str(out))
        index = (peak - small) * 1e6 / (SHARDS * EACH)
        yield Figure("merge, memory above that of a hundredth", peak - small, "MB", 150, f"{index:.0f} bytes a result")


def write_shards(folder: Path, each: int) -> Sequence[Path]:
    """Write results of 2 kB as a run has written them: in the order of the cases, dealt out by number."""
    paths = [folder / f"shard-{number}-{each}.jsonl" for number in range(SHARDS)]
    for number, path in enumerate(paths):
        with path.open("wb") as file:
            for case in range(number, SHARDS * each, SHARDS):
                file.write(msgspec.json.encode(_result(case, number, each)) + b"\n")
    return paths


def _result(case: int, number: int, each: int) -> dict[str, object]:
    score = case % 11 / 10
    part = {"name": "contains", "type": "contains", "score": score, "weight": 1.0, "verdict": "fail"}
    return {
        "timestamp": "2026-11-16T03:00:00.000Z",
        "run_id": f"20261116-030000-000{number}",
        "shard": f"{number + 1}/{SHARDS}",
        "plan": {"digest": "0123456789ab", "cases": SHARDS * each, "shard_cases": each},
        "eval_id": f"case-{case}",
        "dataset": "capitals",
        "file": "evals/capitals.jsonl",
        "line": case + 1,
        "target": "default",
        "attempt": 1,
        "score": score,
        "verdict": "pass" if score >= 0.8 else "fail",
        "hits": [],
        "misses": ["does not contain 'Paris'"],
        "question": "What is the capital of this country, please? " * 10,
        "expected_outcome": "Names the capital.",
        "candidate_answer": "The capital of the country that was asked for is Paris, as everybody knows. " * 12,
        "evaluator_results": [part],
        "execution_metrics": {"duration_ms": 1.234},
        "digests": {"case": f"{case:012x}", "target": "a" * 12, "evaluators": "b" * 12, "agentv": "0.1.0"},
    }
