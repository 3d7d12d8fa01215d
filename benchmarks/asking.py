"""How fast targets on the network are asked: many requests to a server that takes its time, by many workers.

The ideal is that all workers wait for the server all the time. What a bare client reaches on this machine may be less.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure
from benchmarks.running import write_project

REQUESTS, WORKERS, MS, ROUNDS = 2_000, 50, 20, 5
IDEAL = WORKERS * 1000 / MS
PROMISED = 0.7
BARE = f"""
import asyncio, sys, time
import httpx2 as httpx

async def main(url, count):
    async def ask(numbers):
        for number in numbers:
            (await client.post(url, json={{"question": f"Say hello to number {{number}}"}})).raise_for_status()

    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
    async with httpx.AsyncClient(timeout=None, limits=limits) as client:
        numbers = iter(range(count))
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range({WORKERS}):
                group.create_task(ask(numbers))
        print(time.perf_counter() - start)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
OURS = f"""
import importlib, sys, time
from agentv.__main__ import main
import agentv.cli.eval
importlib.import_module(sys.argv[1])
start = time.perf_counter()
sys.argv = ["agentv", "eval", "cases.jsonl", "--workers", "{WORKERS}", "--quiet", "--out", "out.jsonl"]
try:
    main()
finally:
    print(time.perf_counter() - start)
"""
"""The client's package is imported beforehand: that is paid once a run, and told apart."""


def figures() -> Iterator[Figure]:
    with server() as url:
        targets = {
            "openai": ("openai", {"model": "bench", "base_url": f"{url}/v1", "api_key": "none"}),
            "http": ("httpx2", {"url": url, "response_path": "choices[0].message.content"}),
        }
        for name, (package, settings) in targets.items():
            start = min(run(1, package, name, settings) for _ in range(ROUNDS))
            rounds = [(bare(url), run(REQUESTS, package, name, settings) - start) for _ in range(ROUNDS)]
            plain, ours = ([REQUESTS / seconds for seconds in times] for times in zip(*rounds, strict=True))
            ratio = statistics.median(our / min(IDEAL, its) for its, our in zip(plain, ours, strict=True))
            rates = f"{statistics.median(ours):.0f} requests/s, a bare httpx loop {statistics.median(plain):.0f}"
            detail = f"{rates}, ideal {IDEAL:.0f}; {start * 1e3:.0f} ms before the second request"
            yield Figure(f"asking {name} targets / what can be reached", ratio, "x", PROMISED, detail, least=True)


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.answering", str(MS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.communicate()


def bare(url: str) -> float:
    """Seconds that a loop around the client takes."""
    return _seconds([sys.executable, "-c", BARE, url, str(REQUESTS)])


def run(count: int, package: str, provider: str, settings: dict[str, Any]) -> float:
    """Seconds that a run takes once it is loaded: planning, asking, scores, results on disk, summary."""
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), count)
        target = {"name": "default", "provider": provider, **settings}
        Path(name, "targets.yaml").write_text(json.dumps({"targets": [target]}))
        return _seconds([sys.executable, "-c", OURS, package], name)


def _seconds(command: list[str], folder: str | None = None) -> float:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])
