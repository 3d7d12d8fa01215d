"""A running viewer, started by its command or in this process, and its responses on a plain socket."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.kits.processes import PATIENCE_SECONDS, start_process


class Address(NamedTuple):
    """Where a viewer is."""

    whole: str

    @property
    def port(self) -> int:
        return int(urlsplit(self.whole).port or 0)

    @property
    def token(self) -> str:
        return self.whole.rpartition("token=")[2]

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Reply(NamedTuple):
    """The response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def exchange(port: int, data: bytes) -> bytes:
    """The response to these bytes, until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        with contextlib.suppress(OSError):  # it may answer, and close, before it has read all
            connection.sendall(data)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                received += part
    return received


def request(at: Address, path: str = "/", method: str = "GET", body: bytes = b"", **headers: str | None) -> Reply:
    """What a viewer answers; the headers are those of a page of its own, unless a test says otherwise."""
    own: dict[str, str | None] = {"Host": f"127.0.0.1:{at.port}", "X-Agentv-Token": at.token}
    if method == "POST":
        own |= {"Origin": at.origin, "Content-Length": str(len(body))}
    own |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items() if value is not None)]
    raw = exchange(at.port, "\r\n".join([*lines, "", ""]).encode() + body)
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *others = head.decode().split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in others)}
    return Reply(int(first.split()[1]), fields, rest)


class Viewer(NamedTuple):
    """The command, and where it serves."""

    process: "subprocess.Popen[Any]"
    address: Address


@contextmanager
def viewer(*args: str | Path, **options: Any) -> Iterator[Viewer]:
    """`agentv view` without a browser, ended by Ctrl-C; then its exit code is 0 and it has not complained."""
    command = [sys.executable, "-m", "agentv", "view", "--no-browser", *map(str, args)]
    pipe = subprocess.PIPE
    process: Any = start_process(command, stdout=pipe, stderr=pipe, text=True, **options)
    try:
        line = process.stdout.readline()
        assert line.startswith("Viewer: http://127.0.0.1:"), line + process.stderr.read()
        assert process.stderr.readline() == "press Ctrl-C to stop\n"
        yield Viewer(process, Address(line.split()[-1]))
        process.send_signal(2)
        _, complaints = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0
        assert complaints == ""
    finally:
        process.kill()
        process.wait()
