"""Opening a million results in the viewer, in a browser (if there is one), and the memory that the viewer takes."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure
from tests.kits.browser import find_chromium, start_browser

FEW, MANY = 1_000, 1_000_000


def figures() -> Iterator[Figure]:
    if find_chromium() is None:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = (_write(folder / f"{count}.jsonl", count) for count in (FEW, MANY))
        _, before, _ = _open(folder / "few", few)
        usable, after, seconds = _open(folder / "many", many)
        size = many.stat().st_size / 1e6
        yield Figure(f"view, {MANY:,} results usable in Chromium", usable, "s", 3, f"{size:.0f} MB")
        yield Figure("view, until all of them are read", seconds, "s")
        yield Figure(f"view, memory above that of {FEW:,}", after - before, "MB", 50)


def _write(path: Path, count: int) -> Path:
    metrics = {"duration_ms": 812.5, "cost_usd": 0.002}
    part = {"name": "correct", "type": "contains", "weight": 1.0}
    with path.open("w") as file:
        for number in range(count):
            score = number * 7919 % 1000 / 1000
            verdict = "pass" if score >= 0.8 else "borderline" if score >= 0.6 else "fail"
            result: dict[str, Any] = {
                "timestamp": "2026-11-16T03:00:00.000Z",
                "eval_id": f"case-{number:07}",
                "dataset": "many",
            }
            result |= {
                "dataset": "many",
                "target": "default",
                "score": score,
                "verdict": verdict,
                "execution_metrics": metrics,
            }
            result |= {"candidate_answer": f"The answer to number {number}."}
            result |= {"evaluator_results": [part | {"score": score, "verdict": verdict}]}
            file.write(json.dumps(result) + "\n")
    return path


def _open(folder: Path, results: Path) -> tuple[float, float, float]:
    """The seconds until the page can be used, the most memory of the viewer in MB, the seconds until all is read."""
    folder.mkdir()
    command = [sys.executable, "-m", "agentv", "view", "--no-browser", str(results)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as viewer:
        try:
            assert viewer.stdout is not None
            address = viewer.stdout.readline().split()[-1]
            serving = time.perf_counter() - start
            with start_browser(folder / "profile") as browser, browser.page() as page:
                start = time.perf_counter()
                page.go_to(address)
                while not page.js("Boolean(document.querySelector('.rows .row'))"):
                    time.sleep(0.01)
                usable = serving + time.perf_counter() - start
                while "reading" in page.text(".live-line"):
                    time.sleep(0.2)
                seconds = serving + time.perf_counter() - start
            status = Path(f"/proc/{viewer.pid}/status").read_text()
            peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        finally:
            viewer.terminate()
    return usable, peak, seconds
