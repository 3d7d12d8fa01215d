"""Only trusted folders are searched, and unreadable folders are errors."""

import os
from pathlib import Path

import pytest

from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import ANY, MOCK, evaluate, results
from tests.kits.unprivileged import agentv_unprivileged, unreadable

PLANTED = "targets: [{name: default, provider: cli, command_template: 'touch /tmp/never; echo planted'}]"
MINE = "targets: [{name: default, provider: mock, response: mine}]"


@pytest.fixture
def shared(write: Write, tmp_path: Path) -> Path:
    """A folder that everyone can write to, in which another user has put a targets file above our evals."""
    write("shared/.agentv/targets.yaml", PLANTED.replace("/tmp/never", str(tmp_path / "owned")))
    write("shared/mine/evals/a.jsonl", [a_case(evaluators=[ANY])])
    folder = tmp_path / "shared"
    folder.chmod(0o777)
    return folder


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o773])
def test_a_targets_file_in_a_folder_that_others_can_write_to_is_not_used(shared: Path, mode: int) -> None:
    shared.chmod(mode)
    ran = agentv("eval", "a.jsonl", cwd=shared / "mine/evals")
    assert ran.returncode == 2
    message = (
        f"no targets file found: searched {shared}/mine/evals; {shared} was skipped, because other users can write"
    )
    assert message in flat(ran.stderr)
    assert f"hint: pass --targets, or remove the permission with 'chmod o-w {shared}'" in flat(ran.stderr)
    assert not (shared.parent / "owned").exists()


def test_a_folder_that_only_its_owner_can_write_to_is_used(shared: Path) -> None:
    shared.chmod(0o755)
    assert agentv("eval", "a.jsonl", cwd=shared / "mine/evals").returncode == 0
    assert (shared.parent / "owned").exists()


def test_a_planted_git_folder_does_not_make_a_repo(shared: Path) -> None:
    (shared / ".git").mkdir()
    ran = agentv("eval", "a.jsonl", cwd=shared / "mine/evals")
    assert ran.returncode == 2
    assert f"{shared} was skipped, because other users can write to it" in flat(ran.stderr)
    assert not (shared.parent / "owned").exists()


def test_env_and_configuration_are_not_found_there_either(shared: Path, write: Write) -> None:
    write("shared/.env", "ANSWER=planted\n")
    write("shared/.agentv/config.yaml", "guideline_patterns: 5\n")
    write("shared/mine/evals/targets.yaml", "targets: [{name: default, provider: mock, response: '${{ ANSWER }}'}]")
    ran = agentv("eval", "a.jsonl", cwd=shared / "mine/evals")
    assert "the environment variable ANSWER is not set" in flat(ran.stderr)
    assert "guideline_patterns" not in ran.stderr


def test_the_folder_of_the_eval_file_and_the_current_folder_are_given(write: Write, tmp_path: Path) -> None:
    write("open/targets.yaml", MINE)
    write("open/a.jsonl", [a_case(evaluators=[ANY])])
    write("open/evals/b.jsonl", [a_case(evaluators=[ANY])])
    write("open/.agentv/config.yaml", "guideline_patterns: 5\n")
    (tmp_path / "open").chmod(0o777)
    ran = agentv("eval", tmp_path / "open/a.jsonl")
    assert "guideline_patterns: expected an array" in flat(ran.stderr)
    (tmp_path / "open/.agentv/config.yaml").unlink()
    evaluate(tmp_path / "open/a.jsonl")
    ran = agentv("eval", "evals/b.jsonl", "--out", "out.jsonl", cwd=tmp_path / "open")
    assert ran.returncode == 0, ran.stderr
    assert results(tmp_path / "open/out.jsonl")[0]["candidate_answer"] == "mine"


def test_an_open_folder_inside_a_repo_does_not_hide_its_root(write: Write, tmp_path: Path) -> None:
    (tmp_path / "repo/.git").mkdir(parents=True)
    write("repo/.agentv/targets.yaml", MINE)
    write("repo/open/evals/a.jsonl", [a_case(evaluators=[ANY])])
    (tmp_path / "repo/open").chmod(0o777)
    assert agentv("eval", "a.jsonl", cwd=tmp_path / "repo/open/evals").returncode == 0


def test_a_project_in_the_home_folder_is_explained(write: Write, tmp_path: Path) -> None:
    write("home/.agentv/targets.yaml", MINE)
    write("home/evals/a.jsonl", [a_case(evaluators=[ANY])])
    home = tmp_path / "home"
    ran = agentv("eval", "a.jsonl", cwd=home / "evals", env={**os.environ, "HOME": str(home)})
    assert ran.returncode == 2
    assert f"searched {home}/evals; {home} was skipped, because the home folder is not a project" in flat(ran.stderr)
    assert "hint: run from there, pass --targets, or move the project to a separate folder" in flat(ran.stderr)


# ---- folders that cannot be read ----


@pytest.mark.parametrize("pattern", [".", "evals", "evals/**/*.jsonl", "evals/*/*.jsonl"])
@pytest.mark.parametrize("command", ["validate", "eval"])
def test_a_folder_that_cannot_be_read_is_an_error(write: Write, tmp_path: Path, command: str, pattern: str) -> None:
    write("targets.yaml", MOCK)
    write("evals/a/a.jsonl", [a_case(evaluators=[ANY])])
    write("evals/b/b.jsonl", [a_case(evaluators=[ANY])])
    with unreadable(tmp_path / "evals/b"):
        ran = agentv_unprivileged(command, pattern, cwd=tmp_path)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert "error: evals/b: the folder cannot be read: Permission denied" in flat(ran.stderr)
    assert "hint: change its permissions, or pass the files and folders to use" in flat(ran.stderr)


def test_folders_that_are_never_searched_may_be_unreadable(write: Write, tmp_path: Path) -> None:
    write("targets.yaml", MOCK)
    write("evals/a.jsonl", [a_case(evaluators=[ANY])])
    write("evals/node_modules/x.jsonl", "")
    with unreadable(tmp_path / "evals/node_modules"):
        ran = agentv_unprivileged("validate", "evals", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_attachment_that_cannot_be_read_stops_the_run(write: Write, tmp_path: Path) -> None:
    write("targets.yaml", PLANTED.replace("/tmp/never", str(tmp_path / "paid")))
    notes = write("notes.md", "notes")
    blocks = [{"role": "user", "content": [{"type": "file", "value": "notes.md"}]}]
    write("a.jsonl", [a_case("a", evaluators=[ANY]), a_case("b", evaluators=[ANY], input_messages=blocks)])
    with unreadable(notes):
        ran = agentv_unprivileged("eval", "a.jsonl", cwd=tmp_path)
    assert ran.returncode == 2
    assert "a.jsonl:2:106: cannot read the attached file: notes.md" in flat(ran.stderr)
    assert not (tmp_path / "paid").exists()


def test_records_of_runs_that_cannot_be_read_are_an_error(write: Write, tmp_path: Path) -> None:
    write(".agentv/runs/x.json", "{}")
    with unreadable(tmp_path / ".agentv/runs"):
        ran = agentv_unprivileged("runs", cwd=tmp_path)
    assert ran.returncode == 2
    assert "error: .agentv/runs: the records of runs cannot be read: Permission denied" in flat(ran.stderr)


def test_without_records_of_runs_there_are_none(write: Write) -> None:
    ran = agentv("runs")
    assert (ran.returncode, ran.stdout.startswith("no runs yet")) == (0, True)


# ---- what only looks like a sidecar ----


def test_a_yml_file_is_not_a_sidecar(write: Write) -> None:
    write("targets.yaml", MOCK)
    write("a.jsonl", [a_case(evaluators=[ANY])])
    write("a.yml", "dataset: other\n")
    ran = evaluate("a.jsonl")
    message = "this is not the sidecar of a.jsonl: expected a.yaml"
    assert f"warning: a.yml:1:1: {message}, ignored" in flat(ran.stderr)
    checked = agentv("validate", ".")
    assert checked.returncode == 1
    hint = "rename it to a.yaml, if it contains the defaults of the cases"
    assert f"a.yml:1:1: error: {message} ({hint})\n" in checked.stdout
    write("a.yml", "evalcases: [{id: a, expected_outcome: x, input: x, evaluators: [{type: contains, value: ''}]}]\n")
    assert agentv("validate", ".").returncode == 0


# ---- more names of secrets ----


def test_configured_names_are_masked(write: Write) -> None:
    write(".agentv/config.yaml", 'secrets: [GH_PAT, "*_WEBHOOK"]\n')
    write(
        ".agentv/targets.yaml",
        "targets: [{name: default, provider: cli, command_template: 'echo $GH_PAT $MY_WEBHOOK $PLAIN'}]",
    )
    write("evals/a.jsonl", [a_case(evaluators=[ANY])])
    values = {"GH_PAT": "ghp_0123456789", "MY_WEBHOOK": "hook-0123456789", "PLAIN": "plain-0123456789"}
    ran = agentv("eval", "evals", "--out", "out.jsonl", env={**os.environ, **values})
    assert ran.returncode == 0, ran.stderr
    assert results("out.jsonl")[0]["candidate_answer"].strip() == "*** *** plain-0123456789"


def test_names_of_secrets_are_a_list_of_texts(write: Write) -> None:
    path = write(".agentv/config.yaml", "secrets: GH_PAT\n")
    assert "secrets: expected an array, got a string" in agentv("validate", path).stdout
