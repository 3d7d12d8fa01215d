"""Short commands of agentv: in a process that a prepared one forks, or in a new one where it must be new."""

import atexit
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Thread

PATIENCE_SECONDS = 300
READ_BY_PYTHON = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""How variables begin that count only when a process starts."""
Ran = subprocess.CompletedProcess[str]


class Prepared:
    """A prepared process, see `tests/kits/prepared.py`; it is started for the first command."""

    def __init__(self) -> None:
        self._asker: socket.socket | None = None
        self._environment = dict(os.environ)
        self._busy = Lock()

    def run(self, args: list[str], cwd: Path, environment: Mapping[str, str]) -> Ran | None:
        """Return how a command ended; None if it needs a new process, or another is under way."""
        if sys.platform != "linux" or self._differs(environment) or not self._busy.acquire(blocking=False):
            return None
        try:
            return self._run(args, cwd, environment)
        finally:
            self._busy.release()

    def _differs(self, environment: Mapping[str, str]) -> bool:
        names = {*environment, *self._environment}
        return any(
            name.startswith(READ_BY_PYTHON) and environment.get(name) != self._environment.get(name) for name in names
        )

    def _run(self, args: list[str], cwd: Path, environment: Mapping[str, str]) -> Ran:
        asker = self._asker or self._start()
        request = {"argv": args, "cwd": str(cwd.absolute()), "env": dict(environment), "umask": _umask()}
        pipes = os.pipe(), os.pipe()
        with open(os.devnull, "rb") as nothing:
            socket.send_fds(asker, [json.dumps(request).encode()], [nothing.fileno(), pipes[0][1], pipes[1][1]])
        for _, write in pipes:
            os.close(write)
        pid = int(asker.recv(100))
        outputs = [_reading(read) for read, _ in pipes]
        try:
            status = int(asker.recv(100))
        except TimeoutError:
            self._asker = None
            os.kill(pid, signal.SIGKILL)
            raise
        stdout, stderr = (output.result(PATIENCE_SECONDS) for output in outputs)
        return subprocess.CompletedProcess(args, os.waitstatus_to_exitcode(status), stdout, stderr)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        script = Path(__file__).with_name("prepared.py")
        command = [sys.executable, str(script), str(theirs.fileno())]
        null = subprocess.DEVNULL
        with theirs:
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=self._environment, cwd=script.parent, stdin=null, stdout=null
            )
        ours.settimeout(PATIENCE_SECONDS)
        self._asker = ours
        atexit.register(process.wait)
        atexit.register(ours.close)
        return ours


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reading(stream: int) -> "Future[str]":
    """Return what will be the text of a stream, up to its end."""
    future: Future[str] = Future()

    def read() -> None:
        with open(stream, encoding=io.text_encoding(None), errors="backslashreplace") as text:
            future.set_result(text.read())

    Thread(target=read, daemon=True).start()
    return future


_prepared = Prepared()


def run_agentv(args: list[str], cwd: Path | None, environment: Mapping[str, str] | None = None) -> Ran:
    """Return how a command of agentv ended, with what it printed."""
    environment = os.environ if environment is None else environment
    ran = _prepared.run(args, cwd or Path(), environment)
    if ran is not None:
        return ran
    command = [sys.executable, "-m", "agentv", *args]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
