"""`make bench-peers`: one job through agentv and through five other tools, each installed in a folder of its own.

Each is timed from outside, as a process, in turns with the others, and the best time counts. A case costs the time of
many cases less that of a few, by the number of cases between them. What cannot be installed or run here is said so.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import peer_agentv, peer_agentv_ts, peer_promptfoo
from benchmarks.measure import Figure, best_of
from benchmarks.peer_job import QUIET, Installed, Job, Npm, PyPI, Registry, script

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv-peers"
FEW, TURNS = 20, 3
LIMIT = 0.25


class Peer(NamedTuple):
    """A tool: where it comes from, what it takes to start it and do nothing, and how it is given the job."""

    name: str
    registry: Registry
    start: tuple[str, ...]
    job: Job
    many: int = 2_000
    """So many cases that they take seconds: more for a tool that is quick."""

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    def run(self, command: Sequence[str], folder: Path) -> None:
        program = self.registry.programs(self.folder) / command[0]
        env = {**os.environ, **QUIET, "HOME": str(self.folder)}
        subprocess.run([program, *command[1:]], cwd=folder, env=env, capture_output=True, text=True, check=True)

    def starting(self) -> None:
        self.run(self.start, self.folder)

    def doing(self, count: int) -> Callable[[], None]:
        def do() -> None:
            with tempfile.TemporaryDirectory() as name:
                self.run(self.job(Path(name), count), Path(name))

        return do


PEERS = (
    Peer("agentv", PyPI("agentv", str(ROOT)), ("agentv", "--help"), peer_agentv.job, many=10_000),
    Peer(
        "pydantic-evals",
        PyPI("pydantic-evals", "pydantic-evals"),
        ("python", "-c", "import pydantic_evals"),
        script("peer_pydantic_evals.py"),
        many=10_000,
    ),
    Peer("inspect-ai", PyPI("inspect-ai", "inspect-ai"), ("inspect", "--help"), script("peer_inspect_ai.py")),
    Peer("deepeval", PyPI("deepeval", "deepeval"), ("deepeval", "--help"), script("peer_deepeval.py")),
    Peer("promptfoo", Npm("promptfoo"), ("promptfoo", "--help"), peer_promptfoo.job),
    Peer("agentv-ts", Npm("agentv"), ("agentv", "--help"), peer_agentv_ts.job),
)


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    installed: dict[Peer, Installed] = {}
    for peer in PEERS:
        if not names or peer.name in names:
            try:
                installed[peer] = peer.registry.install(peer.folder)
                peer.doing(FEW)()
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"{peer.name}: not measured: {_reason(error)}", flush=True)
                installed.pop(peer, None)
    costs = measure(installed)
    ours, theirs = costs.get("agentv"), costs.get("pydantic-evals")
    if ours and theirs:
        print(Figure("agentv / pydantic-evals, a case", ours / theirs, "x", LIMIT))


def measure(installed: dict[Peer, Installed]) -> dict[str, float]:
    """Print a row of a table for each tool, and return the seconds that a case costs by the tool's name."""
    jobs = [job for peer in installed for job in (peer.starting, peer.doing(FEW), peer.doing(peer.many))]
    times = best_of(TURNS, *jobs)
    costs: dict[str, float] = {}
    print("| | version | install | start-up | a case |\n| --- | --- | --- | --- | --- |")
    for number, (peer, it) in enumerate(installed.items()):
        start, few, many = times[3 * number : 3 * number + 3]
        cost = costs[peer.name] = (many - few) / (peer.many - FEW)
        size = f"{it.packages} packages, {it.megabytes:.0f} MB"
        print(f"| {peer.name} | {it.version} | {size} | {start * 1e3:.0f} ms | {cost * 1e3:.2f} ms |")
    return costs


def _reason(error: OSError | subprocess.CalledProcessError) -> str:
    """Return the last words of a command that failed, or what kept it from being run."""
    if isinstance(error, OSError):
        return str(error)
    lines = (error.stderr or error.stdout or "").strip().splitlines()
    return f"{error.cmd[0]}: {lines[-1] if lines else f'exit code {error.returncode}'}"


main(sys.argv[1:])
