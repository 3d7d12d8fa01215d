"""What it costs to start."""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure, best_of, process


def figures() -> Iterator[Figure]:
    command = str(Path(sys.executable).with_name("agentv"))
    nothing, click, shown = best_of(
        20,
        process(sys.executable, "-c", "pass"),
        process(sys.executable, "-c", "import click"),
        process(command, "--help"),
    )
    detail = f"{shown * 1000:.0f} ms; importing click alone is {click / nothing:.1f}x"
    yield Figure("agentv --help / python -c pass", shown / nothing, "x", 4, detail)
