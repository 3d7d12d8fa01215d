"""Secrets on a cluster: never in logs, on the dashboard, in results, or sent unencrypted."""

import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.kits.clusters import Cluster, a_project, an_environment, cluster_case
from tests.kits.processes import PATIENCE_SECONDS
from tests.kits.project import Write, agentv
from tests.kits.runs import ANY, results, start, target, wait_for_results

pytestmark = pytest.mark.slow


CANARY = "canary-5e3f9a1c7d2b"
PAGES = (
    "info/main/workers.html",
    "info/logs.html",
    "info/main/tasks.html",
    "json/identity.json",
    "json/counts.json",
    "json/index.html",
    "sitemap.json",
    "metrics",
)


class Wire:
    """Forwards and records the traffic between a driver and a scheduler."""

    def __init__(self, url: str):
        self._target = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.seen = bytearray()

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            back = threading.Thread(target=self._hand_on, args=(server, client), daemon=True)
            back.start()
            self._hand_on(client, server)
            back.join()

    def _hand_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                self.seen += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def a_wire(cluster: Cluster) -> Iterator[Wire]:
    wire = Wire(cluster.url)
    threading.Thread(target=wire.serve, daemon=True).start()
    try:
        yield wire
    finally:
        wire.close()


def project(write: Write, command: str) -> Path:
    path = a_project(write, 6)
    write("targets.yaml", target(command))
    write("cases.jsonl", [cluster_case(n, evaluators=[ANY]) for n in range(6)])
    return path


def test_variables_are_sent_only_over_encrypted_connections(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.add()
    path = project(write, "echo ${{ AGENT_API_KEY }}")
    environment = an_environment(AGENT_API_KEY=CANARY)
    with a_wire(cluster) as wire:
        far = agentv("eval", path, "--cluster", f"tcp://127.1:{wire.port}", env=environment)
        assert far.returncode == 2
        assert "the environment variable AGENT_API_KEY is not set" in " ".join(far.stderr.split())
        assert b"agentv" in wire.seen
        assert CANARY.encode() not in wire.seen
        near = agentv("eval", path, "--cluster", f"tcp://127.0.0.1:{wire.port}", "--out", "out.jsonl", env=environment)
        assert near.returncode == 0, near.stderr
        assert CANARY.encode() in wire.seen
    assert len(results("out.jsonl")) == 6
    assert CANARY not in Path("out.jsonl").read_text()
    assert CANARY not in cluster.logs()


def test_a_worker_uses_the_secrets_that_it_has_and_sends_none(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.add(env=an_environment(AGENT_API_KEY=CANARY))
    path = project(write, "env | grep AGENT_API_KEY")
    with a_wire(cluster) as wire:
        ran = agentv(
            *("eval", path, "--cluster", f"tcp://127.1:{wire.port}", "--out", "out.jsonl"),
            env=an_environment(AGENT_API_KEY="another-secret-of-the-driver"),
        )
        assert ran.returncode == 0, ran.stderr
        assert CANARY.encode() not in wire.seen
        assert b"another-secret" not in wire.seen
    assert [result["candidate_answer"] for result in results("out.jsonl")] == ["AGENT_API_KEY=***\n"] * 6


def test_no_secret_is_in_a_log_or_on_a_page(write: Write, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    worker = cluster.add()
    script = f"time.sleep(0.2); print('{CANARY}'[:0]); raise ValueError(os.environ['AGENT_API_KEY'])"
    path = a_project(write, 60, script)
    write(".env", f"AGENT_API_KEY={CANARY}\n")
    run = start(str(path), "--cluster", cluster.url, "--workers", "2", "--out", "out.jsonl")
    wait_for_results(Path("out.jsonl"), 10)
    pages = read_pages(cluster)
    worker.kill()
    cluster.add()
    _, err = run.communicate(timeout=200)
    assert "agentv-" in pages["info/logs.html"] or "w1" in pages["info/main/workers.html"]
    texts = {**pages, **read_pages(cluster), "logs": cluster.logs(), "screen": err}
    texts["results"] = Path("out.jsonl").read_text()
    assert len(results("out.jsonl")) == 60
    assert [name for name, text in texts.items() if CANARY in text] == []


def test_no_secret_is_in_a_log_of_dask_at_level_debug(write: Write, tmp_path: Path) -> None:
    debugging = an_environment(DASK_LOGGING__DISTRIBUTED="debug")
    cluster = Cluster(tmp_path / "cluster", env=debugging)
    cluster.add(env=debugging)
    path = a_project(write, 3, f"assert os.environ['AGENT_API_KEY'] == {CANARY!r}", judge_target="${{ AGENT_API_KEY }}")
    environment = an_environment(AGENT_API_KEY=CANARY)
    ran = agentv("eval", path, "--cluster", cluster.url, "--out", "out.jsonl", env=environment)
    assert ran.returncode == 0, ran.stderr
    logs = cluster.logs()
    assert "'do': 'start'" in logs  # messages are logged
    assert CANARY not in logs


def read_pages(cluster: Cluster) -> dict[str, str]:
    """All pages of the scheduler, with those of its workers and tasks."""
    found: dict[str, str] = {}
    started = re.findall(r"Start worker at:\s+(\S+)", cluster.logs())
    assert started
    addresses = [address.replace("/", "%2F").replace(":", "%3A") for address in started]
    own = [f"info/{kind}/{address}.html" for kind in ("worker", "logs", "call-stacks") for address in addresses]
    for name in (*PAGES, *own):
        found[name] = page(cluster, name)
    return found


def page(cluster: Cluster, name: str) -> str:
    try:
        with urllib.request.urlopen(f"{cluster.pages}/{name}", timeout=PATIENCE_SECONDS) as answer:
            text: str = answer.read().decode()
            return text
    except urllib.error.HTTPError as error:
        return error.read().decode()
