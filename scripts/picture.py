"""Run the first example and draw what people see: `make picture` writes docs/run.svg, and pictures of its pages.

Pages are drawn by a real browser (see scripts/browser.py); without one their pictures stay as they are.
"""

import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
COLUMNS = 86
PICTURES = (
    ("report.png", "old.html", "", False),
    ("report-case.png", "old.html", "#case=norway", False),
    ("report-comparison.png", "comparison.html", "", True),
)
EVALS = ["capitals.yaml", "sums.jsonl"]
COMMAND = ["compare", "old.jsonl", "new.jsonl"]


def shown(folder: Path) -> str:
    """Return what a command leaves on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": "50", "TERM": "xterm-256color"}
    line = [sys.executable, "-m", "agentv", *COMMAND]
    with subprocess.Popen(line, cwd=folder, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as run:
        os.close(theirs)
        printed = b""
        while chunk := _read(ours):
            printed += chunk
        run.wait()
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # as Linux tells the end of a terminal
        return b""


def draw_terminal() -> None:
    """Draw what a comparison of two runs leaves on a terminal."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "first"
        run_both_versions(folder)
        printed = shown(folder).rstrip()
    console.print(Text.assemble(("$ ", "green"), (f"agentv {' '.join(COMMAND)}", "bold")))
    console.print(Text.from_ansi(printed))
    drawn = console.export_svg(title="agentv", unique_id="agentv-run")
    local = re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # no font is fetched from anywhere
    (ROOT / "docs" / "run.svg").write_text(local, encoding="utf-8")


def run_both_versions(folder: Path) -> None:
    """Run the first example and its next version in a copy of it."""
    shutil.copytree(ROOT / "examples" / "first", folder)
    for out, target in (("old.jsonl", "default"), ("new.jsonl", "better")):
        _agentv(folder, "eval", *EVALS, "--target", target, "--out", out)


def draw_report() -> None:
    """Draw the report of a run of the first example, one of its cases, and the comparison with the next version."""
    from tests.kits.browser import find_chromium, start_browser

    if find_chromium() is None:
        print("no browser: the pictures of the report stay as they are")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_both_versions(folder / "first")
        _agentv(folder / "first", "report", "old.jsonl")
        _agentv(folder / "first", "report", "old.jsonl", "new.jsonl", "--out", "comparison.html")
        with start_browser(folder / "profile") as browser:
            for picture, report, fragment, dark in PICTURES:
                with browser.page(1200, 800, dark=dark) as page:
                    page.open(folder / "first" / report, fragment)
                    time.sleep(0.5)  # until all is drawn
                    page.picture(ROOT / "docs" / picture)


def draw_viewer() -> None:
    """Draw the list of runs, and the page for labels, after a few real runs of the first example."""
    from agentv.view.serve import serving
    from tests.kits.browser import find_chromium, start_browser

    if find_chromium() is None:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "first"
        shutil.copytree(ROOT / "examples" / "first", folder)
        for target in ("default", "default", "default", "better", "default", "better", "better"):
            time.sleep(1.1)  # results files are named by the second
            _agentv(folder, "eval", *EVALS, "--target", target)
        os.chdir(folder)
        with serving([]) as address, start_browser(Path(name) / "profile") as browser, browser.page(1200, 800) as page:
            page.go_to(address)
            time.sleep(1.0)  # until all is drawn
            page.picture(ROOT / "docs" / "view.png")
            page.resize(1200, 480)
            page.go_to(f"{address.partition('#')[0]}review")
            time.sleep(1.0)
            page.picture(ROOT / "docs" / "review.png")
        os.chdir(ROOT)


def _agentv(folder: Path, *args: str) -> None:
    subprocess.run([sys.executable, "-m", "agentv", *args], cwd=folder, capture_output=True, check=False)


if __name__ == "__main__":
    draw_terminal()
    draw_report()
    draw_viewer()
