"""`agentv clean`."""

import fcntl
import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK, evaluate, results

DAY = 86_400


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", MOCK)
    write("x.jsonl", [a_case("x", evaluators=[HELLO])])
    return write


def runs() -> list[dict[str, Any]]:
    """The records of all runs, oldest first."""
    found = [json.loads(path.read_text()) for path in Path(".agentv/runs").glob("*.json")]
    return sorted(found, key=lambda run: run["started"])


def files() -> list[str]:
    return sorted(str(path) for path in Path(".agentv").rglob("*") if path.is_file())


def make_old(days: float) -> None:
    """Make all runs and files this much older."""
    for path in Path(".agentv").rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - days * DAY
            os.utime(path, (then, then))
    for path in Path(".agentv/runs").glob("*.json"):
        record = json.loads(path.read_text())
        started = datetime.fromisoformat(record["started"]) - timedelta(days=days)
        record["started"] = started.isoformat()
        path.write_text(json.dumps(record))


def test_the_newest_runs_and_their_results_are_kept(project: Write) -> None:
    evaluate("x.jsonl", "--cache", "--dump-prompts")
    make_old(days=3)
    evaluate("x.jsonl")
    old, new = runs()
    ran = agentv("clean", "--keep-runs", "1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("removed 1 run (")
    assert ran.stdout.endswith("), kept 1 run\n")
    assert files() == [new["results"], f".agentv/runs/{new['run_id']}.json"]
    assert not Path(old["results"]).exists()


def test_a_run_that_either_option_keeps_is_kept(project: Write) -> None:
    evaluate("x.jsonl")
    make_old(days=3)
    assert "kept 1 run" in agentv("clean", "--keep-runs", "1", "--keep-days", "1").stdout
    assert "kept 1 run" in agentv("clean", "--keep-runs", "0", "--keep-days", "4").stdout
    assert len(runs()) == 1
    assert "kept 0 runs" in agentv("clean", "--keep-runs", "0", "--keep-days", "1").stdout
    assert files() == []


def test_a_dry_run_lists_the_files_and_removes_nothing(project: Write) -> None:
    evaluate("x.jsonl")
    make_old(days=3)
    before = files()
    ran = agentv("clean", "--keep-days", "1", "--dry-run")
    *listed, last = ran.stdout.splitlines()
    assert sorted(listed) == before
    assert last.startswith("would remove 1 run (")
    assert files() == before


def test_a_backup_with_results_of_a_kept_run_is_kept(project: Write) -> None:
    evaluate("x.jsonl", "--out", ".agentv/results/r.jsonl")
    evaluate("x.jsonl", "--out", ".agentv/results/r.jsonl")
    make_old(days=3)
    agentv("clean", "--keep-runs", "2")
    assert Path(".agentv/results/r.jsonl.bak").exists()
    agentv("clean", "--keep-runs", "1")
    assert not Path(".agentv/results/r.jsonl.bak").exists()
    assert len(results(".agentv/results/r.jsonl")) == 1


def test_labels_config_and_results_elsewhere_are_never_removed(project: Write) -> None:
    evaluate("x.jsonl", "--out", "mine.jsonl")
    project(".agentv/labels.jsonl", "")
    project(".agentv/config.yaml", "{}")
    make_old(days=3)
    agentv("clean", "--keep-runs", "0")
    assert files() == [".agentv/config.yaml", ".agentv/labels.jsonl"]
    assert Path("mine.jsonl").exists()


def test_files_in_the_results_folder_that_are_no_results_are_never_removed(project: Write) -> None:
    evaluate("x.jsonl")
    evaluate("x.jsonl", "--out", ".agentv/results/o.yaml")
    project(".agentv/results/notes.txt", "mine")
    project(".agentv/results/summary.json", "{}")
    agentv("clean", "--keep-runs", "0")
    assert files() == [".agentv/results/notes.txt", ".agentv/results/summary.json"]


def test_files_without_a_run_stay_as_long_as_runs(project: Write) -> None:
    evaluate("x.jsonl", "--cache")
    for record in Path(".agentv/runs").iterdir():
        record.unlink()
    before = files()
    agentv("clean", "--keep-days", "1")
    assert files() == before
    make_old(days=3)
    agentv("clean", "--keep-days", "1")
    assert files() == []


def test_a_cached_response_of_a_kept_run_is_kept(project: Write) -> None:
    evaluate("x.jsonl", "--cache")
    make_old(days=3)
    evaluate("x.jsonl", "--cache")
    agentv("clean", "--keep-runs", "1")
    assert len(list(Path(".agentv/cache").rglob("*.json"))) == 1


def test_results_of_a_running_run_are_kept(project: Write) -> None:
    evaluate("x.jsonl")
    make_old(days=3)
    (run,) = runs()
    with Path(run["results"]).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert agentv("clean", "--keep-days", "1").returncode == 0
        assert run["results"] in files()
    Path(".agentv/runs", f"{run['run_id']}.json").unlink(missing_ok=True)
    assert agentv("clean", "--keep-days", "1").returncode == 0
    assert files() == []


def test_batch_output_is_kept_as_long_as_older_runs(project: Write) -> None:
    evaluate("x.jsonl")
    project(".agentv/batches/support.jsonl", "{}")
    assert agentv("clean", "--keep-days", "1").returncode == 0
    assert ".agentv/batches/support.jsonl" in files()
    make_old(days=3)
    assert agentv("clean", "--keep-days", "1").returncode == 0
    assert files() == []


def test_one_of_the_options_is_needed(project: Write) -> None:
    ran = agentv("clean")
    assert ran.returncode == 2
    assert "error: pass --keep-days, --keep-runs or both" in ran.stderr
