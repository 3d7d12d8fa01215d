"""Runs the first example and draws what the terminal shows: `make picture` writes docs/run.svg."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
COLUMNS = 86
COMMAND = ["eval", "examples/first", "--workers", "3"]


def shown() -> str:
    """What is left on a terminal after a real run."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": "50", "TERM": "xterm-256color"}
    line = [sys.executable, "-m", "agentv", *COMMAND, "--out", os.devnull]
    with subprocess.Popen(line, cwd=ROOT, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as run:
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


def main() -> None:
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    printed = re.sub(r"\n*Results: .*\n", "\n", shown()).rstrip()
    console.print(Text.assemble(("$ ", "green"), (f"agentv {' '.join(COMMAND)}", "bold")))
    console.print(Text.from_ansi(printed))
    drawn = console.export_svg(title="agentv", unique_id="agentv-run")
    local = re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # no font is fetched from anywhere
    (ROOT / "docs" / "run.svg").write_text(local, encoding="utf-8")


main()
