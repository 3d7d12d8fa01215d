"""What agentv itself costs a request in a vendor's batch: building, uploading, collecting, scoring, results on disk.

Time is that of agentv's processor: the vendor, which is a process on this machine, takes its own.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Figure, run_agentv
from benchmarks.running import write_project

MANY, FEW, ROUNDS = 50_000, 5_000, 3
VENDORS = {
    "openai": ("openai", {"model": "bench", "base_url": "{url}/v1"}),
    "anthropic": ("anthropic", {"model": "bench", "base_url": "{url}"}),
    "gemini": ("google.genai", {"model": "bench", "base_url": "{url}/google"}),
}
ROOT = Path(__file__).parent.parent


def figures() -> Iterator[Figure]:
    mock = (_best("", MANY)[0] - _best("", 1)[0]) / MANY
    for vendor in VENDORS:
        nothing, _ = _best(vendor, 1)
        small, few = _best(vendor, FEW)
        large, many = _best(vendor, MANY)
        each, before = (large - nothing) / MANY, (small - nothing) / FEW
        detail = f"{each * 1e6:.0f} us a request, {before * 1e6:.0f} us at {FEW:,}, a mock case {mock * 1e6:.0f} us"
        yield Figure(f"a request in a batch of {vendor} / a mock case", each / mock, "x", 3, detail)
        yield Figure(f"memory, {MANY:,} more than {FEW:,}", many - few, "MB", 30, f"{many:.0f} MB in all")


def _best(vendor: str, count: int) -> tuple[float, float]:
    """The least seconds of the processor of some runs, and the most megabytes."""
    times, peaks = zip(*(run(vendor, count) for _ in range(ROUNDS)), strict=True)
    return min(times), max(peaks)


def run(vendor: str, count: int) -> tuple[float, float]:
    """Seconds of the processor that a run takes once it is loaded, and megabytes at the peak."""
    package, settings = VENDORS.get(vendor, ("", {}))
    with tempfile.TemporaryDirectory() as name, server() as url:
        write_project(Path(name), count)
        if vendor:
            own = {key: value.format(url=url) for key, value in settings.items()}
            target = {"name": "default", "provider": vendor, "api_key": "none", "batch_api": True, **own}
            target["batch_poll_seconds"] = 0.5
            Path(name, "targets.yaml").write_text(json.dumps({"targets": [target]}))
        modules = f"agentv.cli.eval, {package}" if package else "agentv.cli.eval"  # its package is paid for once a run
        return run_agentv(name, "eval", "--out", "out.jsonl", modules=modules)


@contextmanager
def server() -> Iterator[str]:
    """The URL of a vendor in a process of its own."""
    command = [sys.executable, "-m", "tests.kits.batch_servers", "{}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
