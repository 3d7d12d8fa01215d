"""A run writes its state to the project, regardless of where it was started."""

import asyncio
import os
from pathlib import Path

import pytest

import agentv as package
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK

ROOT = Path("/")


@pytest.fixture
def project(write: Write, tmp_path: Path) -> Path:
    """A project without a repo, in the folder `project`."""
    write("project/.agentv/targets.yaml", MOCK)
    write("project/evals/a.jsonl", [a_case(evaluators=[HELLO])])
    return tmp_path / "project"


def run(cwd: Path, *args: str | Path) -> None:
    ran = agentv("eval", *args, cwd=cwd)
    assert ran.returncode == 0, ran.stderr


def states(folder: Path) -> list[str]:
    """The folders that have run records, relative to `folder`."""
    found = {path.parent.parent.parent for path in folder.rglob("runs/*.json")}
    return sorted(str(path.relative_to(folder)) for path in found)


@pytest.mark.parametrize("evals", ["evals", "evals/a.jsonl", "evals/*.jsonl", "**/*.jsonl"])
def test_a_run_started_outside_of_a_project_leaves_its_record_in_that_of_the_eval_files(
    project: Path, tmp_path: Path, evals: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run(elsewhere, project / evals, "--cache", "--out", tmp_path / "r.jsonl")
    assert list(elsewhere.iterdir()) == []
    assert states(tmp_path) == ["project"]
    assert (project / ".agentv" / "cache").is_dir()


def test_a_run_started_in_the_root_of_the_file_system_writes_nothing_there(project: Path, tmp_path: Path) -> None:
    before = os.listdir(ROOT)
    run(ROOT, project / "evals", "--out", tmp_path / "r.jsonl", "--cache", "--dump-prompts", "--dump-traces")
    assert os.listdir(ROOT) == before
    assert states(tmp_path) == ["project"]
    for name in ("cache", "prompts", "traces"):
        assert any((project / ".agentv" / name).iterdir()), name


def test_eval_files_without_a_project_keep_the_record_of_a_run_started_in_the_root(
    write: Write, tmp_path: Path
) -> None:
    before = os.listdir(ROOT)
    write("loose/targets.yaml", MOCK)
    evals = write("loose/a.jsonl", [a_case(evaluators=[HELLO])])
    run(ROOT, evals, "--out", tmp_path / "r.jsonl")
    assert os.listdir(ROOT) == before
    assert states(tmp_path) == ["loose"]


def test_results_and_resume_use_the_same_folder_as_the_record(project: Path, tmp_path: Path) -> None:
    run(tmp_path, project / "evals")
    (written,) = (project / ".agentv" / "results").iterdir()
    ran = agentv("eval", project / "evals", "--resume", cwd=tmp_path)
    assert f"resuming {written}: " in ran.stderr
    assert "eval_" in agentv("runs", "--format", "json", cwd=project).stdout


def test_the_current_folder_has_the_record_if_it_is_in_a_project(project: Path, write: Write, tmp_path: Path) -> None:
    run(project / "evals", "a.jsonl", "--out", tmp_path / "r.jsonl")
    assert states(tmp_path) == ["project/evals"]
    # a project that contains that of the eval files, as a repo with a submodule does
    write(".git/HEAD", "")
    run(tmp_path, "project/evals", "--out", "r.jsonl")
    assert states(tmp_path) == [".", "project/evals"]


def test_the_current_folder_has_the_record_if_it_contains_eval_files_without_a_project(
    write: Write, tmp_path: Path
) -> None:
    write("targets.yaml", MOCK)
    write("evals/a.jsonl", [a_case(evaluators=[HELLO])])
    run(tmp_path, tmp_path / "evals", "--out", "r.jsonl")
    assert states(tmp_path) == ["."]


def test_runs_of_python_code_follow_the_same_rule(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_both() -> None:
        await package.evaluate(project / "evals", out=tmp_path / "r.jsonl")
        assert len(os.listdir(project / ".agentv" / "runs")) == 1
        async for _ in package.stream(project / "evals", out=tmp_path / "s.jsonl"):
            pass

    monkeypatch.chdir(ROOT)
    before = os.listdir(ROOT)
    asyncio.run(run_both())
    assert os.listdir(ROOT) == before
    assert len(os.listdir(project / ".agentv" / "runs")) == 2
