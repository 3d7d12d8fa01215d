"""What a case costs whose target is a command: next to a bare spawn of it, and when one process answers them all."""

import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path

from agentv.cli.eval import command
from benchmarks.measure import Figure
from benchmarks.running import CODE, run, write_project

CASES, ROUNDS = 200, 15
RECORDS = 100_000
COMMAND = "echo hello {PROMPT} > {OUTPUT_FILE}"
BATCH = """
import json, sys
with open(sys.argv[1]) as asked, open(sys.argv[2], "w") as answers:
    for line in asked:
        answers.write(json.dumps({"id": json.loads(line)["id"], "text": "hello there"}) + "\\n")
"""


def figures() -> Iterator[Figure]:
    for workers, limit in ((1, 1.3), (10, 1.5)):
        bare, ours = spawns_and_cases(workers)
        ratio = statistics.median(our / its for its, our in zip(bare, ours, strict=True))
        per_case = statistics.median(bare) / CASES
        detail = f"{(ratio - 1) * per_case * 1e3:.2f} ms over the {per_case * 1e3:.2f} ms of the process"
        yield Figure(f"a command's case / a bare spawn ({workers} at a time)", ratio, "x", limit, detail)
    mock = min(run(RECORDS)[0] for _ in range(2))
    batch = min(run_batch(RECORDS) for _ in range(2))
    detail = f"{batch / RECORDS * 1e6:.0f} us a record, {mock / RECORDS * 1e6:.0f} us a mock case; the command included"
    yield Figure("a batch of 100,000 / as many mock cases", batch / mock, "x", 3, detail)


def spawns_and_cases(workers: int) -> tuple[list[float], list[float]]:
    """Seconds that bare spawns and whole runs took; they take turns, so that a noisy moment hits them both."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        write_project(Path(name), CASES)
        target = {"name": "default", "provider": "cli", "command_template": COMMAND}
        Path(name, "targets.yaml").write_text(json.dumps({"targets": [target]}))
        rounds = [(bare_spawns(Path(name), workers), cases(workers)) for _ in range(ROUNDS + 1)]
        bare, ours = zip(*rounds[1:], strict=True)
        return list(bare), list(ours)


def bare_spawns(folder: Path, workers: int) -> float:
    """Seconds that it takes to spawn the same command and wait for it, from so many threads."""
    argv = ["/bin/sh", "-c", f"echo hello there > {folder}/$$"]

    def spawn() -> None:
        for _ in range(CASES // workers):
            os.waitpid(os.posix_spawn(argv[0], argv, os.environ), 0)

    threads = [threading.Thread(target=spawn) for _ in range(workers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def cases(workers: int) -> float:
    """Seconds that a whole run takes: planning, processes, scores, results on disk, summary."""
    Path("out.jsonl").unlink(missing_ok=True)
    args = ["cases.jsonl", "--workers", str(workers), "--quiet", "--out", "out.jsonl"]
    start = time.perf_counter()
    with redirect_stdout(io.StringIO()):
        try:
            command.main(args, standalone_mode=False)
        except SystemExit as done:
            assert done.code == 0
    return time.perf_counter() - start


def run_batch(count: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), count)
        Path(name, "batch.py").write_text(BATCH)
        command = f"{sys.executable} batch.py {{BATCH_FILE}} {{OUTPUT_FILE}}"
        target = {"name": "default", "provider": "cli", "command_template": command, "provider_batching": True}
        Path(name, "targets.yaml").write_text(json.dumps({"targets": [target]}))
        return _timed(name, CODE)


def _timed(folder: str, code: str) -> float:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-2])
