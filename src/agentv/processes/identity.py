"""Whether a process is still running. Its start time distinguishes it from a later process with the same id."""

import os
from pathlib import Path

_START_TIME = 19
"""The index of `starttime` in `/proc/PID/stat`, counted from the field after the name."""


def start_time_of(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, or an empty string where it is unknown."""
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    # the second field is the name in parentheses, which may contain spaces; see proc(5)
    _, _, after_name = line.rpartition(b")")
    fields = after_name.split()
    if len(fields) <= _START_TIME:
        return ""
    return fields[_START_TIME].decode()


def is_running(pid: int, started: str = "") -> bool:
    """Return whether a process of this machine is running and was started at that time."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists, and belongs to another user
    return not started or started == start_time_of(pid)
