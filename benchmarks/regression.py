"""What a case costs now, next to what it cost at an earlier commit: both are measured in the same run, in turn.

The commit is `AGENTV_BENCH_BASE`, else the parent of HEAD. CPU time is counted, which a busy machine changes least.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.running import write_project

ROOT = Path(__file__).parent.parent
CASES, ROUNDS = 20_000, 7
LIMIT = 1.1
LIMITS = {"b2b251a": 0.65}
"""What was promised against one commit; against all others, that it has not become much more."""
CODE = """
import sys, time
import agentv.cli.eval
from agentv.__main__ import main
assert agentv.__file__.startswith(sys.argv[1]), agentv.__file__
sys.argv = ["agentv", "eval", "cases.jsonl", "--workers", "10", "--quiet", "--out", "out.jsonl"]
start = time.process_time()
try:
    main()
finally:
    print(time.process_time() - start)
"""


def figures() -> Iterator[Figure]:
    base = base_commit()
    if base is None:
        print("a case now / at an earlier commit: skipped, there is no such commit here (AGENTV_BENCH_BASE names one)")
        return
    with tempfile.TemporaryDirectory() as name:
        before, now = costs(check_out(base, Path(name)), ROOT / "src")
    limit = next((limit for commit, limit in LIMITS.items() if base.startswith(commit)), LIMIT)
    detail = f"CPU time: {now * 1e6:.0f} us a case now, {before * 1e6:.0f} us at {base[:7]}; {CASES:,} cases"
    yield Figure(f"a case now / at {base[:7]}", now / before, "x", limit, detail)


def base_commit() -> str | None:
    """Return the hash of the commit to compare with; None if there is no history, or not that much of it."""
    if not (ROOT / ".git").exists():
        return None
    wanted = os.environ.get("AGENTV_BENCH_BASE") or "HEAD^"
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}"]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def check_out(commit: str, folder: Path) -> Path:
    """Write the sources of a commit into the folder, and return where they are."""
    archive = ["git", "-C", str(ROOT), "archive", commit, "src"]
    files = subprocess.run(archive, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=files, check=True)
    return folder / "src"


def costs(*sources: Path) -> list[float]:
    """Return the seconds of a case by each of these sources, at its best; they take turns."""
    with tempfile.TemporaryDirectory() as many, tempfile.TemporaryDirectory() as one:
        write_project(Path(many), CASES + 1)
        write_project(Path(one), 1)
        runs = [(source, folder) for source in sources for folder in (many, one)]
        rounds = [[run(source, folder) for source, folder in runs] for _ in range(ROUNDS)]
    best = [min(times) for times in zip(*rounds, strict=True)]
    return [(whole - start) / CASES for whole, start in zip(best[::2], best[1::2], strict=True)]


def run(source: Path, folder: str) -> float:
    """Return the CPU seconds of a whole run by these sources, once they are imported."""
    Path(folder, "out.jsonl").unlink(missing_ok=True)
    command = [sys.executable, "-c", CODE, str(source)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])
