"""Temporary folders are removed however a run ends, but never while they are in use."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentv.files.temporary import keep_folder, make_folder, remove_all, remove_folder, remove_stale
from tests.kits.naps import sleeping
from tests.kits.processes import PATIENCE_SECONDS, living, start_process, wait_until
from tests.kits.project import Write, a_case
from tests.kits.runs import ANY, evaluate, start, target

HOLD = """
import sys
from agentv.files.temporary import make_folder, keep_folder
folder = make_folder()
(folder / "file").write_text("in use")
if sys.argv[1:] == ["keep"]:
    keep_folder(folder)
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    remove_all()
    monkeypatch.undo()
    tempfile.tempdir = None


def hold(*args: str) -> "tuple[subprocess.Popen[Any], Path]":
    """A process with a temporary folder, and the folder."""
    command = [sys.executable, "-c", HOLD, *args]
    process = start_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_is_for_this_user_only_and_leaves_nothing_behind(temporary: Path) -> None:
    folder = make_folder()
    assert folder.parent == temporary / f"agentv-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    (folder / "sealed").mkdir()
    (folder / "sealed" / "file").touch()
    (folder / "sealed").chmod(0o500)
    remove_folder(folder)
    assert list(temporary.iterdir()) == []


def test_folders_of_dead_processes_are_removed_and_those_of_live_ones_kept(temporary: Path) -> None:
    dead, lost = hold()
    alive, used = hold()
    own = make_folder()
    remove_stale()
    assert lost.exists()
    dead.kill()
    dead.wait()
    remove_stale()
    assert not lost.exists()
    assert (used / "file").read_text() == "in use"
    assert own.exists()
    alive.kill()
    alive.wait()
    remove_folder(own)
    remove_stale()
    assert list(temporary.iterdir()) == []


def test_a_folder_in_another_parent_is_removed_too(temporary: Path, tmp_path: Path) -> None:
    code = "import os; from pathlib import Path; from agentv.files.temporary import make_folder\n"
    code += "make_folder(Path('.'), '.agentv-'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert len(list(tmp_path.glob(".agentv-*"))) == 1
    remove_stale()
    assert list(tmp_path.glob(".agentv-*")) == []
    assert list(temporary.iterdir()) == []


def test_kept_folders_are_not_removed(temporary: Path) -> None:
    process, folder = hold("keep")
    process.kill()
    process.wait()
    remove_stale()
    assert (folder / "file").read_text() == "in use"
    own = make_folder()
    keep_folder(own)
    remove_all()
    assert own.exists()


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_an_unsafe_parent_folder_is_not_used(temporary: Path, tmp_path: Path, kind: str) -> None:
    parent = temporary / f"agentv-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        parent.symlink_to(elsewhere)
    elif kind == "file":
        parent.touch()
    else:
        parent.mkdir()
        parent.chmod(0o777)
        (parent / "1-bait.lock").write_text(str(elsewhere))
    folder = make_folder()
    remove_stale()
    assert folder.parent == temporary
    assert elsewhere.exists()
    remove_all()
    assert not folder.exists()
    assert list(temporary.iterdir()) == [parent]


def test_a_kill_leaves_folders_that_the_next_run_removes(write: Write, temporary: Path, nap: str) -> None:
    write("targets.yaml", target(f"cat {{PROMPT_FILE}} > {{OUTPUT_FILE}}; {nap}"))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    run = start("cases.jsonl", "--out", "killed.jsonl")
    wait_until(lambda: sleeping(nap) != 0)
    write("targets.yaml", "targets:\n  - {name: default, provider: mock, response: hello}\n")
    evaluate("cases.jsonl", "--out", "beside.jsonl")
    assert len([path for path in temporary.rglob("*") if path.suffix == ".output"]) == 1
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert list(temporary.iterdir()) != []
    evaluate("cases.jsonl", "--out", "next.jsonl")
    assert list(temporary.iterdir()) == []


def test_a_second_interruption_leaves_no_folder(write: Write, temporary: Path, nap: str) -> None:
    command = f"trap 'touch asked' TERM; cat {{PROMPT_FILE}} > {{OUTPUT_FILE}}; {nap} & while :; do wait; done"
    write("targets.yaml", target(command))
    write("cases.jsonl", [a_case("a", evaluators=[ANY])])
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: sleeping(nap) != 0)
    assert list(temporary.iterdir()) != []
    run.send_signal(signal.SIGINT)
    wait_until(Path("asked").exists)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE_SECONDS)
    assert (run.returncode, living(nap)) == (130, [])
    assert list(temporary.iterdir()) == []
