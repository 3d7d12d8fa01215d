"""A project whose cases run in shards, and the content of the files."""

import json
from pathlib import Path
from typing import Any

from tests.kits.project import Write, a_case, agentv

CHECK = [{"type": "contains", "value": "hello"}]
SCHEDULERS = (
    "CI_NODE_INDEX",
    "CI_NODE_TOTAL",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_STEP",
    "JOB_COMPLETION_INDEX",
    "JOB_COMPLETIONS",
    "CIRCLE_NODE_INDEX",
    "CIRCLE_NODE_TOTAL",
    "BUILDKITE_PARALLEL_JOB",
    "BUILDKITE_PARALLEL_JOB_COUNT",
)
"""Variables that may be set where these tests run."""


def project(write: Write, count: int = 12, **more: Any) -> None:
    """Write an eval file of so many cases, and a target that answers at once."""
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello there}]\n")
    write("evals/some.jsonl", [a_case(f"case-{number}", evaluators=CHECK, **more) for number in range(count)])


_known: dict[tuple[str, ...], list[str]] = {}


def run_shards(total: int, *args: str, name: str = "shard") -> list[str]:
    """Run all the shards, and return the names of their files.

    What a project gave under the first name is kept for the next test that has the same: many begin with it.
    """
    key = (str(total), *args, *(Path(path).read_text() for path in ("targets.yaml", "evals/some.jsonl")))
    files = [f"{name}-{number}.jsonl" for number in range(1, total + 1)]
    if name != "shard" or key not in _known:
        for number, file in enumerate(files, 1):
            ran = agentv("eval", "evals", "--quiet", "--shard", f"{number}/{total}", "--out", file, *args)
            assert ran.returncode == 0, ran.stderr
        _known.setdefault(key, [Path(file).read_text() for file in files])
        return files
    for file, text in zip(files, _known[key], strict=True):
        Path(file).write_text(text)
    return files


def rows(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def save_rows(path: str, found: list[dict[str, Any]]) -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


def ids(path: str | Path) -> list[str]:
    return [row["eval_id"] for row in rows(path)]


def merged(*files: str, out: str = "merged.jsonl") -> str:
    """Merge files and return the messages and the output."""
    ran = agentv("merge", *files, "--out", out)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr + ran.stdout


def refused(*args: str) -> str:
    """The error messages for invalid input. Nothing is written to stdout or the file, and no traceback is printed."""
    before = sorted(path.name for path in Path().iterdir())
    ran = agentv(*args)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    assert sorted(path.name for path in Path().iterdir()) == before
    return ran.stderr
