"""Files are locked while they are written, even on file systems without locks."""

import errno
import fcntl
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentv.files.temporary import make_folder, remove_all, remove_folder
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK, evaluate, results


@pytest.fixture
def project(write: Write, monkeypatch: pytest.MonkeyPatch) -> Write:
    """A project on a file system without locks."""

    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case("a", evaluators=[HELLO]), a_case("b", evaluators=[HELLO])])
    return write


def test_a_file_system_without_locks_is_a_warning(project: Write) -> None:
    ran = evaluate("a.jsonl", "--out", "r.jsonl", "--limit", "1")
    assert "warning: r.jsonl: this file system does not support locks: using r.jsonl.lock" in ran.stderr
    assert not Path("r.jsonl.lock").exists()
    evaluate("a.jsonl", "--out", "r.jsonl", "--resume")
    assert [result["eval_id"] for result in results("r.jsonl")] == ["a", "b"]
    assert not Path("r.jsonl.lock").exists()


def test_a_lock_file_of_a_dead_process_is_removed(project: Write) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    project("r.jsonl.lock", f"{platform.node()} {ended.pid} 1\n")
    evaluate("a.jsonl", "--out", "r.jsonl")
    assert not Path("r.jsonl.lock").exists()


def test_a_lock_file_of_a_live_process_stops_the_run(project: Write) -> None:
    project("r.jsonl", "")
    project("r.jsonl.lock", f"{platform.node()} {os.getppid()}\n")
    ran = agentv("eval", "a.jsonl", "--out", "r.jsonl")
    assert ran.returncode == 2
    assert "r.jsonl: another run is writing to this file" in ran.stderr


def test_a_lock_file_of_another_machine_stops_the_run(project: Write) -> None:
    project("r.jsonl", "")
    project("r.jsonl.lock", "another-host 4711 1\n")
    ran = agentv("eval", "a.jsonl", "--out", "r.jsonl")
    assert ran.returncode == 2
    assert "r.jsonl.lock: process 4711 on host another-host is writing to this file" in ran.stderr
    assert "remove the lock file if that process has ended" in ran.stderr


def test_a_folder_that_cannot_be_removed_stays_locked_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    folder = make_folder()
    (folder / "file").touch()
    with monkeypatch.context() as no_files:

        def scandir(path: Any) -> Any:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        no_files.setattr(os, "scandir", scandir)
        remove_folder(folder)
        assert folder.exists()
    remove_all()
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_any_bytes_are_accepted_in_paths(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case("a", evaluators=[HELLO])])
    evals = Path(os.fsdecode(b"e\xfe.jsonl"))
    out = Path(os.fsdecode(b"o\xff.jsonl"))
    os.rename("a.jsonl", evals)
    evaluate(evals, "--out", out)
    ran = evaluate(evals, "--out", out)
    assert "o\\udcff.jsonl already existed: moved it to o\\udcff.jsonl.bak" in ran.stderr
    (result,) = results(out)
    assert (result["dataset"], result["file"]) == ("e\\udcfe", "e\\udcfe.jsonl")
    assert "1 already done" in evaluate(evals, "--resume").stderr
    assert "e\\udcfe.jsonl:1" in agentv("show").stdout


def test_a_project_in_a_folder_that_is_not_utf8(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / os.fsdecode(b"p\xff")
    write("p/agent.py", "def answer(question):\n    return 'hello'\n")
    write("p/targets.yaml", "targets:\n- {name: default, provider: python, function: 'agent.py:answer'}\n")
    attached = [{"role": "user", "content": [{"type": "file", "value": "notes.txt"}]}]
    write("p/a.jsonl", [a_case("a", evaluators=[HELLO], input_messages=attached)])
    write("p/notes.txt", "Notes")
    (tmp_path / "p").rename(folder)
    (folder / "a.jsonl").rename(folder / os.fsdecode(b"a\xfe.jsonl"))
    monkeypatch.chdir(folder)

    assert "1 scored" in evaluate(".", "--cache").stdout
    assert "1 answer served from the cache" in evaluate(".", "--cache").stderr
    assert "1 already done" in evaluate(".", "--resume").stdout
    assert "hello" in agentv("show").stdout
