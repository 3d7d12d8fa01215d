"""A command in a separate terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kits.processes import PATIENCE_SECONDS, start_process

OF_COLOURS = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables that turn colours on or off, wherever these tests run."""


def in_terminal(*args: str | Path, seen: Callable[[str], object] = bool, **environment: str) -> str:
    """What the command shows on a terminal of 60 columns. `seen` is told what there is so far, whenever there is more."""
    master, slave = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in OF_COLOURS}
    env = {**known, "COLUMNS": "60", "LINES": "20", "TERM": "xterm-256color", **environment}
    command: list[Any] = [sys.executable, "-m", "agentv", "eval", *args]
    run = start_process(command, stdout=subprocess.DEVNULL, stderr=slave, env=env)
    os.close(slave)
    shown = read_terminal(master, seen)
    assert run.wait(timeout=PATIENCE_SECONDS) == 0
    return shown


def read_terminal(master: int, seen: Callable[[str], object] = bool) -> str:
    """What was shown on a terminal until nobody writes to it any more; it arrives in pieces. Then it is closed."""
    shown = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # what Linux says at the end
            break
        if not data:
            break
        shown += data
        seen(shown.decode(errors="replace"))
    os.close(master)
    return shown.decode()
