"""A process that has imported agentv, and forks a child for each command: a child like any other, but ready at once.

    python prepared.py DESCRIPTOR

Most of the time of a short command is importing, and the tests run thousands of them. DESCRIPTOR is a socket. A
request is JSON (`argv`, `cwd`, `env`, `umask`) with the child's three streams; it is answered by the child's number
and, when the child has ended, by its status as `os.waitpid` has it. The first request that is empty is the end.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import Any

LONGEST = 1 << 20
APART = ("agentv.__main__", "agentv.pytest_plugin", "agentv.run.executors.worker", "agentv.project.templates")
"""What is run by its name, and what other programs import: pytest, Dask's workers and users."""
OTHERS = ("dotenv", "fastjsonschema", "httpx2", "json_repair", "openai", "rich.console", "yaml")
"""What agentv imports when it is used, and many tests use."""
LARGE = ("anthropic", "google.genai")
"""What is imported when a child has imported it: the next one probably does so, too."""


def prepare() -> None:
    """Import what commands import."""
    import agentv

    folder = Path(agentv.__file__).parent
    for path in folder.rglob("*.py"):
        name = ".".join(("agentv", *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        if not name.startswith(APART):
            importlib.import_module(name)
    for name in OTHERS:
        importlib.import_module(name)
    gc.freeze()


def next_request(asker: socket.socket) -> dict[str, Any]:
    """Fork a child for each request, and wait for it; return the request, in the child."""
    told, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    while True:
        data, streams, _, _ = socket.recv_fds(asker, LONGEST, 3)
        if not data:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            asker.close()
            os.close(told)
            atexit.register(
                lambda: os.write(tell, "".join(f"{name} " for name in LARGE if name in sys.modules).encode())
            )
            request: dict[str, Any] = json.loads(data)
            return request
        for stream in streams:
            os.close(stream)
        asker.send(str(pid).encode())
        asker.send(str(os.waitpid(pid, 0)[1]).encode())
        with contextlib.suppress(BlockingIOError):  # it has imported none of them, or was killed
            for name in os.read(told, LONGEST).decode().split():
                importlib.import_module(name)
            gc.freeze()


def become(request: dict[str, Any]) -> None:
    """Let this process be as if it had been started by the request."""
    from agentv.processes import child, guardian
    from agentv.redact import clean, secrets_in

    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["agentv", *request["argv"]]
    sys.path[0] = request["cwd"]
    random.seed()
    time.tzset()
    clean.__init__(secrets_in(os.environ))  # type: ignore[misc] # these two read the environment when they are imported
    child._INHERITED_MARKS = os.environb.get(guardian.MARK_VARIABLE.encode(), b"")


if __name__ == "__main__":
    prepare()
    become(next_request(socket.socket(fileno=int(sys.argv[1]))))
    runpy.run_module("agentv", run_name="__main__", alter_sys=True)
