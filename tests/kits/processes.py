"""Processes: starting them as from a shell, listing live ones, and waiting for them."""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 120.0
_started: list["subprocess.Popen[Any]"] = []


def default_signals() -> None:
    """For `preexec_fn`: a child handles signals as usual, though we may ignore some, as under nohup."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start_process(command: Sequence[str | Path], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process that handles signals as usual, and is killed after the test if it is still there."""
    prepare = options.pop("preexec_fn", None)

    def preexec() -> None:
        default_signals()
        if prepare is not None:
            prepare()

    process = subprocess.Popen(command, preexec_fn=preexec, **options)  # noqa: PLW1509 - it only sets signals
    _started.append(process)
    return process


def end_processes() -> None:
    """Kill what the test has started."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def unique_nap() -> str:
    """A command that sleeps for a long time and is unique on this machine."""
    return f"sleep 9{secrets.randbelow(10**14):014}"


def living(sign: str) -> list[str]:
    """The command lines of running processes that contain a mark. Zombies do not count."""
    return [line for _, line in _living(sign)]


def kill_living(sign: str) -> None:
    """Kill the processes whose command line holds a sign."""
    for pid, _ in _living(sign):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _living(sign: str) -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if sign in line and folder.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z":
                yield int(folder.name), line


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
