"""Timing, and how a figure is shown."""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple


class Figure(NamedTuple):
    """One measured thing and, where something was promised, the most that it may be, or the least."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    detail: str = ""
    least: bool = False

    def __str__(self) -> str:
        promise = "" if self.limit is None else f"at {'least' if self.least else 'most'} {self.limit:g}{self.unit}"
        verdict = "" if self.limit is None else self._verdict(self.limit)
        return f"{self.what:52} {self.value:8.2f}{self.unit:3} {promise:14} {verdict:5} {self.detail}"

    def _verdict(self, limit: float) -> str:
        if self.least:
            return "ok" if self.value >= limit else "UNDER"
        return "ok" if self.value <= limit else "OVER"


def best_of(turns: int, *jobs: Callable[[], object]) -> list[float]:
    """The shortest time of each job in seconds; they take turns, so that a noisy moment hits them all."""
    best = [float("inf")] * len(jobs)
    for _ in range(turns):
        for number, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def process(*args: str) -> Callable[[], object]:
    """A job that runs a process to its end."""
    return lambda: subprocess.run(args, stdout=subprocess.DEVNULL, check=True)


def cpu_seconds(*args: str) -> float:
    """Seconds of the processor, the kernel's included, that a process takes: whoever else is busy matters little."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process(*args)()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


PRINT_PEAK_KB = "print(next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')))"
"""Not `ru_maxrss`, which a child begins with at the size of the process that started it."""


def run_agentv(folder: str, *args: str, modules: str = "agentv.cli.eval") -> tuple[float, float]:
    """Seconds of the processor that a command takes in a folder once these modules are imported, and its peak in MB."""
    code = f"""
import sys, time
from agentv.__main__ import main
import {modules}
start = time.process_time()
sys.argv = ["agentv", *sys.argv[1:], "cases.jsonl", "--workers", "10", "--quiet"]
try:
    main()
finally:
    print(time.process_time() - start)
    {PRINT_PEAK_KB}
"""
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    seconds, peak = done.stdout.split()[-2:]
    return float(seconds), int(peak) / 1024


def peak_mb(code: str, *args: str) -> float:
    """The most memory that a fresh interpreter held while it ran `code`."""
    code += f"\n{PRINT_PEAK_KB}"
    run = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return int(run.stdout.split()[-1]) / 1024
