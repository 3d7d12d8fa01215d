"""The command line without root's privilege to read every file, for tests in a container."""

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.kits.command_line import PATIENCE_SECONDS, Ran

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2


def _drop_privileges() -> None:
    """For `preexec_fn`: the program that is executed next obeys permissions, even as root (Linux)."""
    if os.getuid() != 0:
        return
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        assert libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0


def agentv_unprivileged(*args: str | Path, cwd: Path) -> Ran:
    """Run a command of agentv in a process that obeys permissions."""
    return subprocess.run(
        [sys.executable, "-m", "agentv", *map(str, args)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        preexec_fn=_drop_privileges,
    )


@contextlib.contextmanager
def unreadable(folder: Path) -> Iterator[None]:
    """Take away all permissions of a folder."""
    mode = folder.stat().st_mode
    folder.chmod(0)
    try:
        yield
    finally:
        folder.chmod(mode)
