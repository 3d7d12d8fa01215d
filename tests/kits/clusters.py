"""Real Dask clusters on this machine: a scheduler and workers in separate processes that a test can kill."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kits.processes import start_process, wait_until
from tests.kits.project import Write, a_case

AGENT = """
import os, time

def answer(question):
    with open({calls!r}, "a") as calls:
        calls.write(question + "\\n")
    {script}
    return "hello " + question
"""


def a_project(write: Write, cases: int, script: str = "time.sleep(0.05)", **settings: Any) -> Path:
    """Write a project whose target is a function that notes each call, and return the eval file."""
    folder = write("calls", "").parent
    write("agent.py", AGENT.format(calls=str(folder / "calls"), script=script))
    entry = {"name": "default", "provider": "python", "function": "agent.py:answer", **settings}
    write("targets.yaml", json.dumps({"targets": [entry]}))
    check = {"type": "contains", "value": "hello"}
    return write("cases.jsonl", [cluster_case(n, evaluators=[check]) for n in range(cases)])


def cluster_case(number: int, **fields: Any) -> dict[str, Any]:
    """The case `c7` asks `q7`."""
    return a_case(f"c{number}", input_messages=[{"role": "user", "content": f"q{number}"}], **fields)


def calls() -> list[str]:
    """The questions to the function, in order."""
    return Path("calls").read_text().split()


def children(process: "subprocess.Popen[Any]", sign: str = "local_cluster") -> list[int]:
    """The living children of a process whose command line holds a sign, such as the workers of `local:N`."""
    found = []
    for task in Path(f"/proc/{process.pid}/task").glob("*"):
        try:
            pids = (task / "children").read_text().split()
            found += [int(pid) for pid in pids if sign.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
        except OSError:
            continue
    return found


def is_living(pid: int) -> bool:
    """Whether a process is running. Zombies do not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Cluster:
    """A scheduler and its workers, with their logs in `folder`."""

    def __init__(self, folder: Path, *args: str, env: dict[str, str] | None = None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "scheduler.json"
        self.workers: list[subprocess.Popen[Any]] = []
        places = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        file = ("--scheduler-file", str(self.file))
        self.scheduler = self._start("dask_scheduler", "scheduler", *places, *file, *args, env=env)
        wait_until(lambda: _read(self.file) is not None)
        found: Any = _read(self.file)
        self.url: str = found["address"]
        self.pages = f"http://127.0.0.1:{found['services']['dashboard']}"

    def add(self, *args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> "subprocess.Popen[Any]":
        """Start one more worker, without anybody who starts it again."""
        name = f"w{len(self.workers) + 1}"
        options = ("--no-nanny", "--nthreads", "1", "--name", name, "--host", "127.0.0.1", "--no-dashboard", *args)
        own = ("--local-directory", str(self.folder / name))
        worker = self._start("dask_worker", name, self.url, *options, *own, env=env, cwd=cwd)
        self.workers.append(worker)
        wait_until(lambda: "Registered to" in self.log(name) or worker.poll() is not None)
        return worker

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.folder.glob("*.log"))

    def _start(self, module: str, name: str, *args: str, **options: Any) -> "subprocess.Popen[Any]":
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-m", f"distributed.cli.{module}", *args]
            return start_process(command, stdout=log, stderr=log, **options)


def _read(file: Path) -> Any:
    """The scheduler's own description, or None while it is being written."""
    try:
        return json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return None


def an_environment(**variables: str) -> dict[str, str]:
    return {**os.environ, **variables}
