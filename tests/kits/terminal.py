"""A command in a terminal of its own."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kits.processes import PATIENCE_SECONDS, start_process


def in_terminal(*args: str | Path, **environment: str) -> str:
    """What the command shows on a terminal of 60 columns."""
    master, slave = pty.openpty()
    env = {**os.environ, "COLUMNS": "60", "LINES": "20", "TERM": "xterm-256color", **environment}
    command: list[Any] = [sys.executable, "-m", "agentv", "eval", *args]
    run = start_process(command, stdout=subprocess.DEVNULL, stderr=slave, env=env)
    os.close(slave)
    shown = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # what Linux says at the end
            break
        if not data:
            break
        shown += data
    os.close(master)
    assert run.wait(timeout=PATIENCE_SECONDS) == 0
    return shown.decode()
