"""Targets that work on files: workspaces, hooks, kept folders and invalid settings."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from agentv.files.trees import copy_tree
from tests.kits.naps import sleeping
from tests.kits.processes import PATIENCE_SECONDS, living, start_process, wait_until
from tests.kits.project import Write, agentv
from tests.kits.runs import evaluate, results, wait_for_results
from tests.kits.workspaces import PYTHON, Project, command

DIFF = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that only this test uses."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def left(temporary: Path) -> list[str]:
    return sorted(str(path.relative_to(temporary)) for path in temporary.rglob("*"))


def test_a_command_works_in_a_copy_and_its_changes_are_in_the_result(write: Write, temporary: Path) -> None:
    found = Project(write, 'pwd; echo two > a.txt; echo "$AGENTV_EVAL_ID $AGENTV_EVAL_DIR"').one()
    where, told, *_ = found["candidate_answer"].splitlines()
    assert where.startswith(str(temporary))
    assert told == f"a {Path.cwd()}"
    assert found["file_changes"] == DIFF
    assert "workspace_path" not in found
    assert Path("template/a.txt").read_text() == "one\n"
    assert left(temporary) == []


def test_a_target_without_a_workspace_has_no_changes(write: Write) -> None:
    found = Project(write, "echo done", workspace_template=None).one()
    assert "file_changes" not in found


def test_nothing_changed_is_an_empty_diff(write: Write) -> None:
    assert Project(write, "echo done").one()["file_changes"] == ""


def test_changes_by_hooks_and_evaluators_are_not_in_the_diff(write: Write) -> None:
    project = Project(write, before_each="echo set-up > made.txt", after_each="echo x > a.txt")
    project.evaluators = [command("grep set-up made.txt && echo three > a.txt")]
    found = project.one()
    assert (found["score"], found["file_changes"]) == (1.0, DIFF)


def test_evaluators_receive_the_workspace_and_the_changes(write: Write) -> None:
    write(
        "judge.py",
        "import json, os, sys\ngot = json.load(sys.stdin)\n"
        "same = os.path.samefile(got['workspace_path'], os.getcwd())\n"
        "print(json.dumps({'score': float(same), 'details': [got['file_changes'], open('a.txt').read()]}))\n",
    )
    write(
        "mine.py",
        "from pathlib import Path\ndef check(workspace_path, file_changes):\n"
        "    return {'score': 1, 'hits': [Path(workspace_path, 'a.txt').read_text(), file_changes]}\n",
    )
    project = Project(write)
    project.evaluators = [
        {"type": "code_judge", "script": [PYTHON, "judge.py"], "cwd": "workspace"},
        {"type": "python", "function": "mine.py:check"},
    ]
    judged, checked = project.one()["evaluator_results"]
    assert (judged["score"], judged["details"]) == (1.0, [DIFF, "two\n"])
    assert checked["hits"] == ["two\n", DIFF]


def test_a_script_next_to_the_eval_file_takes_precedence_over_the_agents(write: Write) -> None:
    write("check.py", "print(0.25)")
    project = Project(write, "echo 'print(1)' > check.py; echo done")
    project.evaluators = [
        command([PYTHON, "check.py"], score_from="stdout", name="listed"),
        command(f"{PYTHON} check.py", score_from="stdout", name="line"),
    ]
    assert [part["score"] for part in project.one()["evaluator_results"]] == [0.25, 0.25]


def test_a_judge_sees_the_changes(write: Write) -> None:
    reply = '{"score": 1, "checks": [{"id": "rubric-1", "satisfied": true}]}'
    write("judge.py", f"def answer(question):\n    open('asked.txt', 'a').write(question)\n    return {reply!r}\n")
    project = Project(write)
    project.evaluators = [
        {"type": "llm_judge", "judge_target": "judge"},
        {"type": "llm_judge", "judge_target": "judge", "prompt": "Grade only {{ file_changes }} please"},
        {"type": "rubric", "judge_target": "judge", "rubrics": ["It is good."]},
    ]
    project.save()
    targets = json.loads(Path("targets.yaml").read_text())
    targets["targets"].append({"name": "judge", "provider": "python", "function": "judge.py:answer"})
    write("targets.yaml", json.dumps(targets))
    evaluate("cases.jsonl", "--out", "out.jsonl", expect=0)
    asked = Path("asked.txt").read_text()
    assert asked.count("What the agent changed in its files, as a diff:\n<<<") >= 2
    assert "Grade only <<<" in asked
    assert asked.count("-one\n+two\n") >= 3


# Hooks


def test_hooks_run_in_order_with_the_environment(write: Write) -> None:
    log = 'printf "%s:$AGENTV_EVAL_ID:$KIND " >> "$AGENTV_EVAL_DIR/log"'
    project = Project(write, f"{log % 'agent'}; echo done", env={"KIND": "test"})
    project.settings |= {"before_each": [log % "one", log % "two"], "after_each": log % "after"}
    project.evaluators = [command(log % "scored")]
    project.one()
    assert Path("log").read_text() == "one:a:test two:a:test agent:a:test scored:a: after:a:test "


def test_a_failing_before_each_is_an_error_for_the_case(write: Write, temporary: Path) -> None:
    project = Project(write, "touch ../../ran; echo done", after_each='echo x >> "$AGENTV_EVAL_DIR/after"')
    project.settings["before_each"] = ["true", "echo no such package >&2; exit 3"]
    found = project.one(expect=1)
    message = "before_each[1] 'echo no such package >&2; exit 3' failed with exit code 3: no such package"
    assert found["error"] == message
    assert Path("after").read_text() == "x\n"
    assert left(temporary) == []


def test_a_hanging_before_each_is_killed(write: Write, nap: str) -> None:
    found = Project(write, before_each=nap, timeout_seconds=0.5).one(expect=1)
    assert found["error"] == f"before_each {nap!r} timed out after 0.5 s"
    assert living(nap) == []


def test_hooks_do_not_count_towards_the_duration(write: Write) -> None:
    note = 'cut -d" " -f1 /proc/uptime >> "$AGENTV_EVAL_DIR/times"'
    found = Project(write, "echo done", before_each=f"sleep 0.3; {note}", after_each=f"{note}; sleep 0.3").one()
    begin, end = map(float, Path("times").read_text().split())
    assert found["execution_metrics"]["duration_ms"] < (end - begin) * 1000 + 100


def test_a_failing_after_each_is_a_warning_and_a_note(write: Write) -> None:
    project = Project(write, after_each="echo still in use; exit 1")
    found = project.one()
    assert (found["score"], found["file_changes"]) == (1.0, DIFF)
    assert found["note"] == "after_each 'echo still in use; exit 1' failed with exit code 1: still in use"
    assert "warning: case 'a': after_each 'echo still in use; exit 1' failed" in project.ran.stderr


def test_after_each_runs_after_an_error_and_a_timeout(write: Write, nap: str, temporary: Path, reached: str) -> None:
    project = Project(write, f"echo two > a.txt; {reached}; {nap}", timeout_seconds=60)
    project.settings["after_each"] = 'cat a.txt >> "$AGENTV_EVAL_DIR/after"'
    found = project.one(expect=1)
    assert found["failure"] == "timeout"
    assert found["file_changes"] == DIFF
    assert Path("after").read_text() == "two\n"
    assert left(temporary) == []


def test_each_attempt_and_each_trial_has_a_fresh_copy(write: Write, temporary: Path) -> None:
    script = 'cat a.txt >> "$AGENTV_EVAL_DIR/seen"; echo two > a.txt; echo {ATTEMPT}'
    agent = write(
        "codex",
        f"#!{PYTHON}\nimport json, os, sys\nfrom pathlib import Path\nsys.stdin.read()\n"
        "here = Path(__file__).parent\nseen = here / 'seen'\n"
        "open(seen, 'a').write(Path('a.txt').read_text())\nPath('a.txt').write_text('two\\n')\n"
        "if len(seen.read_text().splitlines()) > 2:\n"
        "    print(json.dumps({'type': 'item.completed', 'item': {'type': 'agent_message', 'text': 'ok'}}))\n"
        "    print(json.dumps({'type': 'turn.completed'}))\n",
    )
    agent.chmod(0o755)
    project = Project(write, script)
    project.settings = {
        "name": "default",
        "provider": "codex",
        "executable": "./codex",
        "workspace_template": "template",
    }
    project.settings["before_each"] = 'echo x >> "$AGENTV_EVAL_DIR/hooks"'
    project.settings["after_each"] = 'echo y >> "$AGENTV_EVAL_DIR/hooks"'
    found = project.one("--max-retries", "3")
    assert (found["attempt"], found["file_changes"]) == (3, DIFF)
    assert Path("seen").read_text() == "one\n" * 3
    assert Path("hooks").read_text() == "x\ny\n" * 3
    project.run("--trials", "2")
    assert Path("seen").read_text() == "one\n" * 5
    assert left(temporary) == []


# What is kept


@pytest.mark.parametrize(("rule", "kept"), [("never", []), ("failed", ["bad"]), ("always", ["bad", "good"])])
def test_which_workspaces_are_kept(write: Write, temporary: Path, rule: str, kept: list[str]) -> None:
    project = Project(write, "echo {EVAL_ID} > a.txt; echo {EVAL_ID}", keep_workspaces=rule)
    project.evaluators = [{"type": "contains", "value": "good"}]
    found = {result["eval_id"]: result for result in project.run(ids=("good", "bad"))}
    paths = {id_: result["workspace_path"] for id_, result in found.items() if "workspace_path" in result}
    assert sorted(paths) == kept
    for id_, path in paths.items():
        assert path == f".agentv/workspaces/{found[id_]['run_id']}/{id_}"
        assert Path(path, "a.txt").read_text() == f"{id_}\n"
    assert left(temporary) == []
    shown = agentv("show", "out.jsonl").stdout
    assert shown.count("  workspace   .agentv/workspaces/") == len(kept)
    assert "  changes     a.txt +1 -1\n" in shown


def test_a_failed_case_keeps_its_workspace_under_a_safe_name(write: Write) -> None:
    project = Project(write, "exit 1", keep_workspaces="failed")
    (found,) = project.run(ids=("../../x\n y",), expect=1)
    path = Path(found["workspace_path"])
    assert path.resolve().parent == Path(f".agentv/workspaces/{found['run_id']}").resolve()
    assert (path / "a.txt").read_text() == "one\n"


def test_kept_workspaces_of_trials_and_later_runs_are_separate(write: Write) -> None:
    project = Project(write, "ls -A | tr '\\n' ' '", keep_workspaces="always", workspace_template=".")
    first = project.run("--trials", "2")
    assert [Path(result["workspace_path"]).name for result in first] == ["a-trial-1", "a-trial-2"]
    (again,) = project.run()
    assert ".agentv" in again["candidate_answer"]
    assert not Path(again["workspace_path"], ".agentv/workspaces").exists()


# The environment


def test_variables_of_env_are_set_and_secret_ones_are_masked(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "deep-secret-0815")
    project = Project(write, 'echo "$COLOR $PORT $FLAG $MY_TOKEN"; echo "$MY_TOKEN" > a.txt', workspace_template=None)
    project.settings["env"] = {"COLOR": "red", "PORT": 8080, "FLAG": True, "MY_TOKEN": "${{ FROM_OUTSIDE }}"}
    found = project.one()
    assert found["candidate_answer"] == "red 8080 true ***\n"
    project.settings["workspace_template"] = "template"
    found = project.one()
    assert found["file_changes"].endswith("-one\n+***\n")
    assert "deep-secret-0815" not in Path("out.jsonl").read_text()


def test_env_is_part_of_the_version_except_for_secrets(write: Write) -> None:
    def version(**env: str) -> str:
        project = Project(write, env=env)
        return str(project.one()["digests"]["target"])

    plain = version(COLOR="red", API_KEY="one-one-one")
    assert plain == version(COLOR="red", API_KEY="two-two-two")
    assert plain != version(COLOR="blue", API_KEY="one-one-one")


# Resuming and the cache


@pytest.mark.parametrize("change", ["content", "mode", "name", "link"])
def test_a_changed_template_is_detected(write: Write, change: str) -> None:
    project = Project(write, 'echo x >> "$AGENTV_EVAL_DIR/calls"; echo done')
    Path("template/link").symlink_to("a.txt")
    project.one()
    project.one("--cache")
    assert "1 already done" in _resumed(project)
    project.one("--cache")
    assert Path("calls").read_text() == "x\n" * 2
    match change:
        case "content":
            write("template/a.txt", "1\n")
        case "mode":
            Path("template/a.txt").chmod(0o755)
        case "name":
            write("template/b.txt", "")
        case "link":
            Path("template/link").unlink()
            Path("template/link").symlink_to("b.txt")
    assert "0 already done, 1 to re-run because the target has changed" in _resumed(project)
    project.one("--cache")
    assert Path("calls").read_text() == "x\n" * 4


def _resumed(project: Project) -> str:
    project.one("--resume")
    return str(project.ran.stderr)


def test_files_written_by_runs_do_not_change_a_template(write: Write) -> None:
    project = Project(write, "echo done", workspace_template=".")
    project.save()
    for _ in range(2):
        ran = agentv("eval", "cases.jsonl", "--resume")
    assert "1 already done" in ran.stderr


def test_cached_answers_have_their_changes(write: Write) -> None:
    project = Project(write, 'echo x >> "$AGENTV_EVAL_DIR/calls"; echo two > a.txt; echo done')
    assert [project.one("--cache")["file_changes"] for _ in range(2)] == [DIFF, DIFF]
    assert Path("calls").read_text() == "x\n"
    assert "1 answer served from the cache" in project.ran.stderr


def test_an_answer_whose_evaluators_need_the_workspace_is_requested_again(write: Write) -> None:
    project = Project(write, 'echo x >> "$AGENTV_EVAL_DIR/calls"; echo two > a.txt; echo done')
    project.evaluators = [command("grep two a.txt", name="tests")]
    for _ in range(2):
        assert [result["score"] for result in project.run("--cache", ids=("a", "b"))] == [1.0, 1.0]
    assert Path("calls").read_text() == "x\n" * 4
    told = "target 'default' is called despite --cache: 'tests' may need the workspace files"
    assert project.ran.stderr.count(told) == 1


# Bad settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"workspace_template": "nowhere"}, "workspace_template: no such folder: "),
        ({"workspace_template": "cases.jsonl"}, "workspace_template: a file, not a folder: "),
        ({"cwd": "."}, "workspace_template: cwd is set as well"),
        ({"provider_batching": True}, "workspace_template: provider_batching is set as well"),
        ({"keep_workspaces": "sometimes"}, "unknown keep_workspaces 'sometimes'"),
        ({"keep_workspaces": True}, "keep_workspaces: expected 'always', 'failed' or 'never', got a boolean\n"),
        ({"keep_workspaces": "alway"}, "did you mean 'always'?"),
        ({"before_each": "true", "hooks": {"before_each": "true"}}, "before_each: hooks.before_each is set as well"),
        (
            {"hooks": {"before_each": "true"}, "provider_batching": True, "workspace_template": None},
            "cannot have hooks",
        ),
        ({"after_each": "true", "provider_batching": True, "workspace_template": None}, "cannot have hooks"),
        ({"workspace_template": None, "keep_workspaces": "always"}, "set workspace_template in the target"),
        ({"before_each": []}, "before_each: "),
        ({"before_each": ""}, "before_each: "),
        ({"env": {"A=B": "x"}}, "invalid name or value of the environment variable 'A=B'"),
        ({"env": ["A"]}, "env: "),
        ({"env": {"A": "${{ NOT_SET_ANYWHERE }}"}}, "the environment variable NOT_SET_ANYWHERE is not set"),
    ],
)
def test_settings_that_cannot_be_used_stop_the_run(write: Write, settings: dict[str, Any], words: str) -> None:
    said = Project(write, **settings).refused()
    assert words in said
    assert "targets.yaml" in said
    assert not Path("out.jsonl").exists()


def test_a_template_with_a_symlink_loop_is_copied_unchanged(write: Write) -> None:
    project = Project(write, "readlink loop self")
    Path("template/loop").symlink_to("loop")
    Path("template/self").symlink_to(".")
    found = project.one()
    assert (found["candidate_answer"], found["file_changes"]) == ("loop\n.\n", "")


def test_a_template_that_contains_the_temporary_folder_is_rejected(write: Write, temporary: Path) -> None:
    found = Project(write, workspace_template=str(temporary)).one(expect=1)
    assert "contains the folder for temporary files" in found["error"]


def test_files_that_cannot_be_copied_are_named_once(tmp_path: Path) -> None:
    source = tmp_path / "template"
    source.mkdir()
    (source / "locked").write_text("x")

    def refuse(path: str, _target: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    with pytest.raises(OSError, match="locked") as caught:
        copy_tree(source, tmp_path / "copy", refuse)
    assert str(caught.value) == f"{source / 'locked'}: Permission denied"


def test_an_unreadable_file_in_the_template(write: Write, tmp_path: Path) -> None:
    project = Project(write)
    path = Path("template/locked")
    path.write_text("x")
    path.chmod(0)
    found = project.one(expect=0 if os.geteuid() == 0 else 1)
    if os.geteuid() != 0:
        assert found["error"].startswith("workspace_template cannot be copied: ")
        assert "locked: " in found["error"]


@pytest.mark.parametrize("kind", ["code_judge", "command"])
def test_an_evaluator_in_the_workspace_of_a_target_without_one(write: Write, kind: str) -> None:
    project = Project(write, workspace_template=None)
    evaluator = {"type": kind, "name": "tests", "cwd": "workspace"}
    evaluator["command" if kind == "command" else "script"] = "true"
    project.evaluators = [evaluator]
    said = project.refused()
    assert "cases.jsonl:1:" in said
    assert "evaluator 'tests' needs the agent's workspace, but target 'default' has none" in said
    assert "set workspace_template in the target" in said
    assert "evaluator 'tests' needs the agent's workspace" in agentv("validate", "cases.jsonl").stdout
    ran = evaluate("cases.jsonl", "--dry-run", "--out", "out.jsonl")
    assert results("out.jsonl")[0]["misses"] == ["dry run: no workspace was created"], ran.stderr


# Interruptions


def test_ctrl_c_runs_after_each_and_leaves_nothing(write: Write, nap: str, temporary: Path) -> None:
    project = Project(write, nap, after_each='echo x > "$AGENTV_EVAL_DIR/after"')
    project.save()
    line = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--out", "out.jsonl"]
    run = start_process(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: living(nap) != [])
    run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE_SECONDS) == 130
    assert Path("after").read_text() == "x\n"
    assert left(temporary) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_ends_commands_and_hooks_that_ignore_it(
    write: Write, nap: str, temporary: Path, number: signal.Signals
) -> None:
    """It takes 7 of the 8 seconds that are promised. Without a limit for all hooks together, it would take 38."""
    stubborn = f"test $AGENTV_EVAL_ID = a || {{ trap '' INT TERM HUP; {nap}; }}"
    project = Project(write, f"{stubborn}; echo done", after_each=[stubborn, stubborn, stubborn])
    project.save(ids=("a", "b"))
    line = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--out", "out.jsonl"]
    run = start_process(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_results(Path("out.jsonl"), 1)
    wait_until(lambda: sleeping(nap) == 1)
    run.send_signal(number)
    out, err = run.communicate(timeout=20)
    assert run.returncode == 130
    assert "1 scored + 1 not run" in out
    assert "Traceback" not in err
    assert [result["eval_id"] for result in results("out.jsonl")] == ["a"]
    assert living(nap) == []
    assert left(temporary) == []


@pytest.mark.slow
def test_the_next_run_removes_leftovers_of_a_killed_run(write: Write, temporary: Path) -> None:
    """At most the workspaces of cases in flight are left behind, and the next run removes them."""
    project = Project(write, "echo two > a.txt; sleep 0.05; echo done", keep_workspaces="failed")
    project.settings |= {"before_each": 'echo x > "$AGENTV_EVAL_DIR/begun"', "after_each": "true"}
    project.evaluators = [command("grep two a.txt")]
    project.save(ids=tuple(f"case-{number}" for number in range(60)))
    line = [sys.executable, "-m", "agentv", "eval", "cases.jsonl", "--out", "o.jsonl", "--workers", "2", "--quiet"]
    dice = random.Random(3)
    found = 0
    for _ in range(12):
        run = start_process(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(Path("begun").exists)
        time.sleep(dice.random() / 2)
        run.kill()
        run.wait()
        wait_until(lambda: living(f"guardian.py {run.pid} ") == [])  # noqa: B023 - it is called here
        workspaces = list(temporary.glob("agentv-*/agentv-*"))
        assert len(workspaces) <= 3  # those of two workers, and the folder of the command's own files
        found += len(workspaces)
        Path("begun").unlink()
    assert found > 0, "no kill hit a case"
    project.run("--workers", "2")
    assert left(temporary) == []


def test_a_replayed_answer_has_its_changes(write: Write) -> None:
    write(
        "mine.py",
        "def check(file_changes, workspace_path):\n    return file_changes.count('+two') if not workspace_path else 0\n",
    )
    project = Project(write)
    project.one()
    Path("out.jsonl").rename("stored.jsonl")
    project.settings = {"name": "default", "provider": "replay", "file": "stored.jsonl"}
    project.evaluators = [{"type": "python", "function": "mine.py:check"}]
    found = project.one()
    assert (found["score"], found["file_changes"]) == (1.0, DIFF)


def test_a_coding_agent_that_judges_has_a_workspace_of_its_own(write: Write, temporary: Path) -> None:
    events = [
        {"type": "item.completed", "item": {"type": "agent_message", "text": '{"score": 1}'}},
        {"type": "turn.completed"},
    ]
    replay = "".join(f"echo '{json.dumps(event)}'\n" for event in events)
    write("codex", f"#!/bin/sh\ncat >/dev/null; cat a.txt made >> '{Path.cwd()}/seen'\n{replay}").chmod(0o755)
    project = Project(write)
    project.evaluators = [{"type": "llm_judge", "judge_target": "judge"}]
    project.save()
    judge = {"name": "judge", "provider": "codex", "executable": "./codex", "workspace_template": "template"}
    judge["before_each"] = "echo made > made"
    write("targets.yaml", json.dumps({"targets": [project.settings, judge]}))
    evaluate("cases.jsonl", "--out", "out.jsonl")
    assert results("out.jsonl")[0]["score"] == 1.0
    assert Path("seen").read_text() == "one\nmade\n"
    assert left(temporary) == []


def test_a_coding_agent_without_a_template_works_in_an_empty_workspace(write: Write) -> None:
    events = [
        {"type": "item.completed", "item": {"type": "agent_message", "text": "ok"}},
        {"type": "turn.completed"},
    ]
    replay = "".join(f"echo '{json.dumps(event)}'\n" for event in events)
    write("codex", f"#!/bin/sh\ncat >/dev/null; ls -A >> '{Path.cwd()}/seen'; echo two > a.txt\n{replay}").chmod(0o755)
    project = Project(write)
    project.settings = {"name": "default", "provider": "codex", "executable": "./codex"}
    project.evaluators = [command("grep two a.txt", cwd="workspace")]
    found = project.one()
    assert found["score"] == 1.0
    assert found["file_changes"].endswith("new file mode 100644\n--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+two\n")
    assert Path("seen").read_text() == ""
    project.settings["cwd"] = "."
    assert "evaluator 'command' needs the agent's workspace, but target 'default' has none" in project.refused()


def test_a_folder_named_workspace(write: Write) -> None:
    write("workspace/here.txt", "")
    project = Project(write, workspace_template=None)
    project.evaluators = [command("test -f here.txt", cwd="./workspace")]
    assert project.one()["score"] == 1.0


def test_a_workspace_that_cannot_be_kept_only_adds_a_note(write: Write, temporary: Path) -> None:
    write(".agentv/workspaces", "a file")
    found = Project(write, keep_workspaces="always").one()
    assert (found["score"], found["file_changes"]) == (1.0, DIFF)
    assert found["note"].startswith("the workspace could not be kept in ")
    assert left(temporary) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs two file systems")
def test_a_workspace_on_another_file_system_is_kept(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        found = Project(
            write, "mkfifo pipe; ln -s a.txt link; echo two > a.txt; echo done", keep_workspaces="always"
        ).one()
        assert left(Path(folder)) == []
    kept = Path(found["workspace_path"])
    assert sorted(path.name for path in kept.iterdir()) == ["a.txt", "link"]
    assert (kept / "a.txt").read_text() == "two\n"
    assert [path.name for path in kept.parent.iterdir()] == ["a"]


def test_a_diff_of_10_mb_in_a_result(write: Write) -> None:
    project = Project(write, f'{PYTHON} -c \'open("big", "w").write(("x" * 99 + chr(10)) * 100_000)\'; echo done')
    found = project.one()
    assert 190_000 < len(found["file_changes"].encode()) <= 200_000
    assert found["note"] == "file_changes is truncated at 200 kB, in big"
