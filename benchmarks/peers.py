"""`make bench-peers`: the same cases through agentv and through pydantic-evals, in turn."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.running import write_project

CASES = 10_000
PEER = Path(__file__).with_name("peer_pydantic_evals.py")


def main() -> None:
    python = Path(sys.prefix).parent / ".venv-peers" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "pydantic-evals"], check=True)
    with tempfile.TemporaryDirectory() as name:
        write_project(Path(name), CASES)
        ours = theirs = float("inf")
        for _ in range(5):
            ours = min(ours, run_ours(Path(name)))
            done = subprocess.run([str(python), str(PEER), str(CASES)], capture_output=True, text=True, check=True)
            theirs = min(theirs, float(done.stdout.split()[-1]))
    detail = (
        f"agentv {ours / CASES * 1e3:.3f} ms a case, all in, results on disk; the peer {theirs / CASES * 1e3:.3f} ms"
    )
    print(Figure("agentv / pydantic-evals, a case", ours / theirs, "x", 0.25, detail))


def run_ours(folder: Path) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--workers", "10", "--quiet"]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


main()
