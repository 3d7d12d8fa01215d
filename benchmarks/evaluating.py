"""What one more deterministic evaluator costs a case, on top of the run's own cost."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure
from benchmarks.running import CODE, write_project

CASES = 20_000
HELLO: dict[str, Any] = {"type": "contains", "value": "hello"}
KINDS: tuple[dict[str, Any], ...] = (
    {"type": "contains", "value": "there"},
    {"type": "regex", "value": "hello +th[a-z]re"},
    {"type": "similarity", "value": "hello, you there"},
    {"type": "latency", "threshold": 60_000},
)


def figures() -> Iterator[Figure]:
    turns = [[seconds([HELLO]), *(seconds([HELLO, kind]) for kind in KINDS)] for _ in range(5)]
    alone, *others = (min(times) for times in zip(*turns, strict=True))
    for kind, took in zip(KINDS, others, strict=True):
        added = (took - alone) / CASES * 1e6
        yield Figure(
            f"one more evaluator a case ({kind['type']})", added, "us", 20, f"{alone / CASES * 1e6:.0f} us without"
        )


def seconds(evaluators: list[dict[str, Any]]) -> float:
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), CASES)
        Path(name, "cases.yaml").write_text(json.dumps({"evaluators": evaluators}))
        done = subprocess.run([sys.executable, "-c", CODE], cwd=name, stdout=subprocess.PIPE, text=True, check=True)
        return float(done.stdout.split()[-2])
