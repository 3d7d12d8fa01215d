"""The job for agentv: a JSONL file, a mock target, `contains`."""

from pathlib import Path

from benchmarks.running import write_project


def job(folder: Path, count: int) -> list[str]:
    write_project(folder, count)
    return ["agentv", "eval", "cases.jsonl", "--workers", "10", "--quiet", "--out", "results.jsonl"]
