"""A project folder, a case, and the command line."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.kits.command_line import run_apart, run_in_process

Write = Callable[..., Path]


PRINT_PEAK_KB = "print(next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')))"


"""Not `ru_maxrss`, which a child begins with at the size of the process that started it."""


def a_case(id_: str = "test-1", **fields: Any) -> dict[str, Any]:
    """A case as written in a file, complete by default."""
    message = {"role": "user", "content": "Query"}
    return {"id": id_, "expected_outcome": "Goal", "input_messages": [message]} | fields


def flat(text: str) -> str:
    """The text on one line, wherever it was broken."""
    return " ".join(text.split())


def agentv(
    *args: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """The command line, in this process; with `--cluster` in its own, since Dask reads its settings when imported."""
    if "--cluster" in args:
        return agentv_process(*args, cwd=cwd, env=env)
    return run_in_process(list(map(str, args)), cwd, env)


def agentv_process(
    *args: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """The command line in a separate process."""
    return run_apart(list(map(str, args)), cwd, env)
