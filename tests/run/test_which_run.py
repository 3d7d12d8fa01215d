"""A run id, and --resume without --out, refer to one run and never to another."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, evaluate, results
from tests.kits.unprivileged import agentv_unprivileged, unreadable

TWO_TARGETS = """targets:
- {name: default, provider: mock, response: hello from default}
- {name: b, provider: mock, response: hello from b}
"""


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", TWO_TARGETS)
    write("x.jsonl", [a_case(f"x{number}", evaluators=[HELLO]) for number in range(3)])
    write("y.jsonl", [a_case(f"y{number}", evaluators=[HELLO]) for number in range(3)])
    return write


def runs() -> list[dict[str, Any]]:
    """The records of all runs, oldest first."""
    found = [json.loads(path.read_text()) for path in Path(".agentv/runs").glob("*.json")]
    return sorted(found, key=lambda run: run["started"])


def shown(run_id: str) -> list[dict[str, Any]]:
    ran = agentv("show", run_id, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_a_run_id_shows_the_results_of_that_run_after_its_file_was_replaced(project: Write) -> None:
    evaluate("x.jsonl", "--out", "r.jsonl")
    evaluate("x.jsonl", "--target", "b", "--out", "r.jsonl")
    first, second = runs()
    assert {result["target"] for result in shown(first["run_id"])} == {"default"}
    assert {result["target"] for result in shown(second["run_id"])} == {"b"}


def test_a_run_with_missing_results_is_an_error(project: Write) -> None:
    evaluate("x.jsonl", "--out", "r.jsonl")
    evaluate("x.jsonl", "--target", "b", "--out", "r.jsonl")
    Path("r.jsonl.bak").unlink()
    first, _ = runs()
    ran = agentv("show", first["run_id"])
    assert ran.returncode == 2
    assert f"r.jsonl: the results of run {first['run_id']} are missing" in ran.stderr


def test_the_id_of_a_resumed_run_shows_the_file_that_it_completed(project: Write) -> None:
    evaluate("x.jsonl", "--limit", "2", "--out", "r.jsonl")
    evaluate("x.jsonl", "--resume", "--out", "r.jsonl")
    first, second = runs()
    assert len(shown(first["run_id"])) == 2
    assert len(shown(second["run_id"])) == 3
    assert second["resumed_runs"] == [first["run_id"]]


def test_resume_continues_the_newest_run_of_the_same_eval_files(project: Write) -> None:
    evaluate("x.jsonl", "--limit", "2")
    evaluate("y.jsonl")
    ran = evaluate("x.jsonl", "--resume")
    assert "2 already done" in ran.stderr
    x_run, y_run, resumed = runs()
    assert resumed["results"] == x_run["results"]
    assert [result["eval_id"] for result in results(Path(y_run["results"]))] == ["y0", "y1", "y2"]


def test_resume_ignores_runs_of_another_target_and_dry_runs(project: Write) -> None:
    evaluate("x.jsonl", "--dry-run", expect=0)
    evaluate("x.jsonl", "--target", "b", "--limit", "1")
    ran = evaluate("x.jsonl", "--resume")
    assert "no earlier run of these eval files and targets: starting a new run" in ran.stderr
    assert len({run["results"] for run in runs()}) == 3


def test_resume_ignores_a_results_file_that_another_run_replaced(project: Write) -> None:
    evaluate("x.jsonl", "--limit", "1", "--out", "r.jsonl")
    evaluate("y.jsonl", "--out", "r.jsonl")
    ran = evaluate("x.jsonl", "--resume")
    assert "no earlier run" in ran.stderr
    assert [result["eval_id"] for result in results("r.jsonl")] == ["y0", "y1", "y2"]


@pytest.mark.parametrize("flags", [[], ["--plan"]])
def test_resume_never_writes_into_a_file_with_results_of_other_eval_files(project: Write, flags: list[str]) -> None:
    evaluate("x.jsonl", "y.jsonl", "--out", "r.jsonl")
    before = Path("r.jsonl").read_bytes()
    ran = evaluate("y.jsonl", "--out", "r.jsonl", "--resume", *flags, expect=2)
    assert (
        "error: r.jsonl: cannot resume: the file has results of x.jsonl, which is not one of the eval files of this run\n"
        "hint: pass the same eval files as before, or another --out\n"
    ) in ran.stderr
    assert Path("r.jsonl").read_bytes() == before
    assert len(results("r.jsonl")) == 6


@pytest.mark.parametrize("selection", [["--eval-id", "x1"], ["--filter", "id:x*"], ["--limit", "2"]])
def test_files_without_a_selected_case_belong_to_the_run(project: Write, selection: list[str]) -> None:
    evaluate("x.jsonl", "y.jsonl", "--out", "r.jsonl")
    explicit = evaluate("x.jsonl", "y.jsonl", "--out", "r.jsonl", "--resume", *selection)
    newest = evaluate("x.jsonl", "y.jsonl", "--resume", *selection)
    for ran in (explicit, newest):
        assert "\nresuming r.jsonl: " in ran.stderr
        assert "kept but not summarized" not in ran.stderr
    assert len(results("r.jsonl")) == 6


def test_resume_accepts_further_eval_files_and_those_that_are_gone(project: Write) -> None:
    evaluate("x.jsonl", "--out", "r.jsonl")
    ran = evaluate("x.jsonl", "y.jsonl", "--out", "r.jsonl", "--resume")
    assert "resuming r.jsonl: 3 already done\n" in ran.stderr
    Path("x.jsonl").unlink()
    ran = evaluate("y.jsonl", "--out", "r.jsonl", "--resume")
    assert "3 results in r.jsonl kept but not summarized" in ran.stderr


def git(*args: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example", *args]
    subprocess.run(command, check=True, capture_output=True)


def test_the_record_has_the_commit_of_the_eval_files(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    repository = Path.cwd()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    evaluate(repository / "x.jsonl")
    (run,) = runs()
    commit = subprocess.run(["git", "-C", repository, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert run["git"]["commit"] == commit.stdout.strip()
    assert run["git"]["dirty"] is False


def test_an_eval_file_that_git_does_not_track_is_dirty(project: Write) -> None:
    git("init", "-q")
    git("add", "targets.yaml", "y.jsonl")
    git("commit", "-qm", "first")
    evaluate("y.jsonl")
    evaluate("x.jsonl")
    tracked, untracked = runs()
    assert tracked["git"]["dirty"] is False
    assert untracked["git"]["dirty"] is True


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_repository_of_another_user_is_named(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.delenv("SUDO_UID", raising=False)
    os.chown(".", 65534, 65534)
    os.chown(".git", 65534, 65534)
    ran = evaluate("x.jsonl")
    reason = f"the repository of {Path.cwd()} belongs to another user, so Git refuses to read it"
    assert f"warning: the commit is not recorded: {reason}" in ran.stderr
    (run,) = runs()
    assert run["git"] == {"unavailable": reason}


def test_the_record_has_the_reason_for_the_exit_code(project: Write) -> None:
    evaluate("x.jsonl", "--record", "record.json")
    record = json.loads(Path("record.json").read_text())
    assert (record["exit_code"], record["exit_reason"]) == (0, "ok")
    assert record["user"] and record["host"]
    evaluate("x.jsonl", "--fail-under", "1", "--record", "record.json")
    project("z.jsonl", [a_case("z", evaluators=[{"type": "contains", "value": "nothing of this"}])])
    evaluate("z.jsonl", "--fail-under", "1", "--record", "record.json", expect=1)
    record = json.loads(Path("record.json").read_text())
    assert (record["exit_code"], record["exit_reason"]) == (1, "gate")


@pytest.mark.parametrize("flag", ["--record", "--junit", "--report"])
def test_files_to_write_at_the_end_are_checked_before_the_run(project: Write, flag: str) -> None:
    project("file", "")
    ran = agentv("eval", "x.jsonl", flag, "file/of/this.x")
    assert ran.returncode == 2
    assert f"{flag} cannot be written: " in ran.stderr
    assert not Path(".agentv").exists()


@pytest.mark.parametrize("flag", ["--out", "--record", "--junit", "--report"])
def test_no_output_replaces_an_eval_file(project: Write, flag: str) -> None:
    before = Path("x.jsonl").read_bytes()
    ran = agentv("eval", "x.jsonl", flag, "./x.jsonl")
    assert ran.returncode == 2
    assert f"error: x.jsonl: {flag} is one of the eval files\n" in ran.stderr
    assert Path("x.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("flag", "other"), [("--report", "--junit"), ("--record", "--junit"), ("--record", "--report")]
)
def test_two_outputs_in_the_same_file_are_an_error(project: Write, flag: str, other: str) -> None:
    ran = agentv("eval", "x.jsonl", flag, "both", other, "./both")
    assert ran.returncode == 2
    assert f"error: both: {flag} is {other} as well\n" in ran.stderr
    assert not Path("both").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="drops capabilities")
@pytest.mark.parametrize("flag", ["--record", "--junit", "--report"])
@pytest.mark.parametrize("name", ["private/file.x", "private/folder/file.x"])
def test_a_file_in_a_folder_without_permission_is_named_before_the_run(project: Write, flag: str, name: str) -> None:
    private = Path("private")
    private.mkdir()
    with unreadable(private):
        ran = agentv_unprivileged("eval", "x.jsonl", flag, name, cwd=Path.cwd())
    assert ran.returncode == 2
    reason = f"no permission to write to {private.absolute()}"
    assert f"error: {name}: {flag} cannot be written: {reason}\n" in ran.stderr


@pytest.mark.skipif(not Path("/proc").is_dir() or os.getuid() != 0, reason="a folder in which even root cannot write")
def test_a_record_that_cannot_be_written_stops_the_run_before_it_starts(project: Write) -> None:
    ran = agentv("eval", "x.jsonl", "--record", "/proc/record.json", "--out", "out.jsonl")
    assert ran.returncode == 2
    assert "/proc/record.json: cannot be written: " in ran.stderr
    assert not Path("out.jsonl").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("flags", [[], ["--resume", "--target", "b"]])
def test_a_record_that_cannot_be_written_leaves_results_as_they_were(project: Write, flags: list[str]) -> None:
    evaluate("x.jsonl", "--out", "out.jsonl")
    earlier = Path("out.jsonl").read_bytes()

    ran = agentv("eval", "x.jsonl", "--record", "/dev/full", "--out", "out.jsonl", *flags)

    assert ran.returncode == 2
    assert Path("out.jsonl").read_bytes() == earlier
    assert not list(Path().glob("out.jsonl.*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_output_that_a_full_disk_cuts_off_is_a_warning(project: Write) -> None:
    evaluate("x.jsonl", "--out", "out.jsonl")
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "agentv", "show", "out.jsonl"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.stderr == "warning: the output is incomplete: No space left on device\n"


def test_a_state_folder_holds_everything_that_agentv_writes(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("AGENTV_STATE_DIR", str(state))
    evaluate("x.jsonl", "--cache")
    assert not Path(".agentv").exists()
    assert {path.name for path in state.iterdir()} == {"cache", "results", "runs"}
    assert "x0" in agentv("show").stdout
    assert "done" in agentv("runs").stdout


def test_an_internal_error_keeps_the_results_so_far(project: Write) -> None:
    """A package whose extension raises anything is the only way to make the run itself fail from outside."""
    project(
        "broken.py",
        "from agentv.extend import Extension\n"
        "class Broken(Extension):\n"
        "    def written(self, result):\n"
        "        if result.eval_id == 'x1': raise RuntimeError('oh no')\n",
    )
    project("broken-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    project("broken-1.dist-info/entry_points.txt", "[agentv.extensions]\nbroken = broken:Broken\n")
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "agentv", "eval", "x.jsonl", "--out", "r.jsonl"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 70, ran.stderr
    assert "error: internal error: RuntimeError: oh no" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [result["eval_id"] for result in results("r.jsonl")] == ["x0", "x1"]
    (run,) = runs()
    assert (run["exit_code"], run["exit_reason"], run["status"]) == (70, "internal", "failed")
    verbose = subprocess.run([*command, "--verbose"], env=environment, capture_output=True, text=True, check=False)
    assert "Traceback" in verbose.stderr
