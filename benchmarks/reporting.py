"""Writing a report of 100,000 results, and opening it in a browser (if there is one)."""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agentv.results.select import choose
from benchmarks.measure import Figure, best_of, peak_mb
from tests.kits.browser import Page, find_chromium, start_browser
from tests.kits.pages import a_result

FEW, MANY = 1_000, 100_000
REPORT = """
import sys, time
from pathlib import Path
from agentv.report.page.write import write_report
start = time.perf_counter()
write_report([Path(sys.argv[1])], Path(sys.argv[1]).with_suffix(".html"))
Path(sys.argv[1]).with_suffix(".seconds").write_text(str(time.perf_counter() - start))
"""
FRAME = "await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));"


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = (_write(folder / f"{count}.jsonl", count) for count in (FEW, MANY))
        peaks = [peak_mb(REPORT, str(path)) for path in (few, many)]
        seconds, size = float(many.with_suffix(".seconds").read_text()), many.stat().st_size / 1e6
        detail = f"{size:.0f} MB of results, {many.with_suffix('.html').stat().st_size / 1e6:.0f} MB of HTML"
        yield Figure("report, results written per second", size / seconds, "MB", 20, detail, least=True)
        yield Figure(f"report, memory above that of {FEW:,}", peaks[1] - peaks[0], "MB", 50)
        yield _finding(folder / "million.jsonl")
        if find_chromium() is not None:
            yield from _in_browser(folder, many.with_suffix(".html"))


def _write(path: Path, count: int) -> Path:
    """Write results of 2 kB, of words that no two have in the same order."""
    dice = random.Random(count)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 10))) for _ in range(5000)]
    with path.open("w") as file:
        for number in range(count):
            answer, question = (" ".join(dice.choices(words, k=length)) for length in (110, 50))
            texts = {"candidate_answer": answer, "question": question}
            metrics = {"duration_ms": round(dice.lognormvariate(7, 0.6), 1), "cost_usd": round(dice.random() / 100, 5)}
            result = a_result(f"case-{number:06}", round(dice.random(), 3), **texts, execution_metrics=metrics)
            file.write(json.dumps(result) + "\n")
    return path


def _finding(path: Path) -> Figure:
    """Find one id among a million results, as `agentv show` does."""
    line = json.dumps(a_result("case-0000000", 0.5, candidate_answer="an answer of some words " * 20)) + "\n"
    with path.open("w") as file:
        file.writelines(line.replace("case-0000000", f"case-{number:07}") for number in range(1_000_000))

    def read() -> None:
        with path.open("rb") as file:
            for _ in file:
                pass

    bare, found = best_of(3, read, lambda: choose(path, ["case-0900000"]))
    path.unlink()
    return Figure("show, one id of 1,000,000 / reading the lines", found / bare, "x", 2, f"{found:.1f} s")


def _in_browser(folder: Path, report: Path) -> Iterator[Figure]:
    with start_browser(folder / "profile") as browser, browser.page() as page:
        start = time.perf_counter()
        page.open(report)
        yield Figure(f"report, {MANY:,} results usable in Chromium", time.perf_counter() - start, "s", 2)
        yield Figure("report, JavaScript heap", page.heap_mb(), "MB", 100)
        filtering = "location.hash = '#q=' + encodeURIComponent('verdict:fail duration>1000');"
        yield Figure("report, filtering by the index", _milliseconds(page, filtering), "ms", 100)
        scrolling = "scrollTo(0, document.documentElement.scrollHeight * 0.7);"
        yield Figure("report, scrolling", _milliseconds(page, scrolling), "ms", 100)
        start = time.perf_counter()
        page.filter("nowhere-to-be-found")
        yield Figure("report, searching all texts", time.perf_counter() - start, "s")


def _milliseconds(page: Page, action: str) -> float:
    """How long the page takes from an action to the next picture."""
    code = f"(async () => {{ const start = performance.now(); {action} {FRAME} return performance.now() - start; }})()"
    return float(page.js(code))
