"""A run reports what it will run, what it skips, and what it takes from an earlier run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.processes import PATIENCE_SECONDS
from tests.kits.project import Write, a_case, agentv_process
from tests.kits.runs import HELLO, MOCK, evaluate, results, start

AGENT = "def answer(question):\n    return 'hello'\n"
PYTHON = "targets:\n  - {name: default, provider: python, function: agent.py:answer}\n"


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", PYTHON)
    write("agent.py", AGENT)
    write("a.jsonl", [a_case("a", evaluators=[HELLO]), a_case("b", evaluators=[HELLO])])
    return write


# 1. A first line says what runs


def first_line(stderr: str) -> str:
    return stderr.splitlines()[0]


def test_the_first_line_says_what_runs(project: Write) -> None:
    ran = evaluate("a.jsonl", "--workers", "3")
    expected = "running 2 cases from 1 file on default (python agent.py:answer), targets from targets.yaml, 3 workers"
    assert first_line(ran.stderr) == expected
    assert evaluate("a.jsonl", "--quiet").stderr == ""


def test_the_first_line_names_models_and_commands(project: Write) -> None:
    targets = [
        {"name": "default", "provider": "cli", "command_template": "echo hello {PROMPT}"},
        {"name": "model", "provider": "openai", "model": "gpt-x", "api_key": "k"},
    ]
    project("targets.yaml", json.dumps({"targets": targets}))
    assert "on default (cli echo hello {PROMPT})" in first_line(evaluate("a.jsonl").stderr)
    ran = evaluate("a.jsonl", "--target", "model", "--dry-run")
    assert first_line(ran.stderr).startswith("DRY RUN: running 2 cases from 1 file on model (mock), targets from ")


def test_a_dumb_terminal_gets_plain_lines(project: Write) -> None:
    code = (
        "import os, pty, sys\n"
        "os.environ['TERM'] = 'dumb'\n"
        "sys.exit(os.waitstatus_to_exitcode(pty.spawn([sys.executable, '-m', 'agentv', 'eval', 'a.jsonl'])))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout
    assert "\x1b" not in ran.stdout
    assert "running 2 cases from 1 file" in ran.stdout
    assert "2/2 done" in ran.stdout


@pytest.mark.slow  # the first line of progress comes after five seconds
def test_a_pipe_receives_progress_while_the_first_case_runs(project: Write) -> None:
    wait = "while not os.path.exists('heard'):\n        time.sleep(0.02)"
    project("agent.py", f"import os, time\ndef answer(question):\n    {wait}\n    return 'hello'\n")
    run = start("a.jsonl", "--limit", "1")
    assert run.stderr is not None
    assert any(re.match(r"0/1 done, 0:\d\d elapsed, running: a\n", line) for line in run.stderr)
    project("heard", "")
    run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 0


# 2. Dry runs are marked


def test_dry_runs_are_marked_and_rerun_by_resume(project: Write) -> None:
    ran = evaluate("a.jsonl", "--dry-run", "--out", "o.jsonl")
    assert ran.stdout.startswith("DRY RUN: mock answers only, no target or judge was called\n")
    assert [result["dry_run"] for result in results("o.jsonl")] == [True, True]
    ran = evaluate("a.jsonl", "--resume", "--out", "o.jsonl")
    assert "resuming o.jsonl: 0 already done, 2 to re-run because a mock answered in a dry run" in ran.stderr
    assert [(result.get("dry_run"), result["candidate_answer"]) for result in results("o.jsonl")] == [
        (None, "hello")
    ] * 2
    ran = evaluate("a.jsonl", "--resume", "--dry-run", "--out", "o.jsonl")
    assert "resuming o.jsonl: 2 already done" in ran.stderr
    assert [result["candidate_answer"] for result in results("o.jsonl")] == ["hello", "hello"]


# 3. Resume does not mix agents


def test_resume_reruns_cases_of_another_target_version(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    assert "2 already done\n" in evaluate("a.jsonl", "--resume", "--out", "o.jsonl").stderr
    project("agent.py", AGENT.replace("hello", "hello again"))
    kept = evaluate("a.jsonl", "--resume", "--keep-stale", "--out", "o.jsonl").stderr
    assert "2 already done, 2 kept although the target has changed" in kept
    ran = evaluate("a.jsonl", "--resume", "--out", "o.jsonl")
    again = "0 already done, 2 to re-run because the target has changed (--keep-stale keeps them)"
    assert again in ran.stderr
    assert "previous answers saved in o.jsonl.bak" in ran.stderr
    assert [result["candidate_answer"] for result in results("o.jsonl")] == ["hello again"] * 2
    assert [result["candidate_answer"] for result in results("o.jsonl.bak")] == ["hello"] * 2


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ({"command_template": "sh answer.sh"}, "answer.sh"),
        ({"command_template": "sh answer.sh", "cwd": "words"}, "words/answer.sh"),
    ],
)
def test_the_scripts_that_a_command_names_are_part_of_the_target(
    project: Write, target: dict[str, str], file: str
) -> None:
    project(file, "echo hello\n")
    project("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "cli", **target}]}))
    evaluate("a.jsonl", "--out", "o.jsonl")
    assert "2 already done\n" in evaluate("a.jsonl", "--resume", "--out", "o.jsonl").stderr
    project(file, "echo hello world\n")
    assert "2 to re-run because the target has changed" in evaluate("a.jsonl", "--resume", "--out", "o.jsonl").stderr


def test_a_log_that_a_command_writes_is_not_part_of_the_target(project: Write) -> None:
    command = "echo run >> log.txt; echo hello | tee last.txt"
    project(
        "targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "cli", "command_template": command}]})
    )
    project("log.txt", "")
    evaluate("a.jsonl", "--out", "o.jsonl")
    assert "2 already done\n" in evaluate("a.jsonl", "--resume", "--out", "o.jsonl").stderr


def test_settings_that_do_not_affect_answers_are_not_part_of_the_version(project: Write) -> None:
    evaluate("a.jsonl", "--out", "o.jsonl")
    project("targets.yaml", PYTHON.replace("}", ", workers: 4}"))
    assert "2 already done\n" in evaluate("a.jsonl", "--resume", "--out", "o.jsonl").stderr


# 6. Invalid cases stop a strict run, and are told of in the last lines of others


def test_strict_runs_stop_at_an_invalid_case(project: Write) -> None:
    project("a.jsonl", [a_case("a", evaluators=[HELLO]), {"id": "b", "input": "no outcome"}])
    ran = evaluate("a.jsonl", "--strict", "--out", "o.jsonl", expect=2)
    assert (
        "error: a.jsonl:2:1: Line 2: missing expected_outcome\nhint: add expected_outcome, or run without --strict"
        in ran.stderr
    )
    assert not Path("o.jsonl").exists()
    ran = evaluate("a.jsonl", "--out", "o.jsonl")
    last = "warning: 1 case was skipped as invalid, see the warnings above (--strict makes them errors)"
    assert ran.stderr.splitlines()[-1] == last
    project(".agentv/config.yaml", "strict: true\n")
    said = evaluate("a.jsonl", "--out", "o.jsonl", expect=2).stderr
    assert "hint: add expected_outcome, or remove 'strict: true' from .agentv/config.yaml\n" in said


# 7. Backups, and results on stdout


def test_no_backup_is_overwritten(project: Write) -> None:
    for name in ("o.jsonl.bak", "o.jsonl.bak.2", "o.jsonl.bak.3"):
        evaluate("a.jsonl", "--out", "o.jsonl")
        assert f"o.jsonl already existed: moved it to {name}" in evaluate("a.jsonl", "--out", "o.jsonl").stderr
        os.unlink("o.jsonl")
    assert [len(results(name)) for name in ("o.jsonl.bak", "o.jsonl.bak.2", "o.jsonl.bak.3")] == [2, 2, 2]


def test_results_on_stdout(project: Write) -> None:
    ran = agentv_process("eval", "a.jsonl", "--out", "-")
    assert ran.returncode == 0, ran.stderr
    assert [json.loads(line)["eval_id"] for line in ran.stdout.splitlines()] == ["a", "b"]
    assert "SUMMARY" in ran.stderr
    assert "Results:" not in ran.stderr
    assert not Path("-").exists()
    ran = evaluate("a.jsonl", "--out", "-", "--resume", expect=2)
    assert "error: --resume needs a results file, but --out is stdout" in ran.stderr


# 10. Too many errors stop a run


def test_a_run_stops_after_too_many_errors(project: Write) -> None:
    project("agent.py", "def answer(question):\n    raise ValueError('no')\n")
    project("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(20)])
    ran = evaluate("a.jsonl", "--max-errors", "3", "--out", "o.jsonl", expect=1)
    assert len(results("o.jsonl")) == 3
    assert "17 not run" in " ".join(ran.stdout.split())
    assert "stopped after 3 errors: finished cases are saved; continue with --resume" in ran.stderr
    ran = evaluate("a.jsonl", "--max-errors", "1", "--out", "one.jsonl", expect=1)
    assert "stopped after 1 error: finished cases are saved" in ran.stderr
    project("agent.py", AGENT)
    ran = evaluate("a.jsonl", "--resume", "--max-errors", "3", "--out", "o.jsonl")
    assert len(results("o.jsonl")) == 20


def test_equal_errors_are_one_line(project: Write) -> None:
    project("agent.py", "def answer(eval_id):\n    raise ValueError('odd' if eval_id == '3' else 'no')\n")
    project("a.jsonl", [a_case(str(n), evaluators=[HELLO]) for n in range(5)])
    ran = evaluate("a.jsonl", expect=1)
    errors = ran.stdout.partition("\n\n")[0].splitlines()
    assert errors[0] == "ERRORS (5)"
    assert errors[1].startswith("  4 cases: ")
    assert " ".join(line.strip() for line in errors[1:3]).endswith("ValueError: no (first case: 0)")
    assert errors[3].startswith("  3: ")


# 11. Only what did not pass


def test_only_cases_that_did_not_pass_are_rerun(project: Write) -> None:
    project("agent.py", "def answer(eval_id):\n    return 'hello' if eval_id == 'a' else 'no'\n")
    evaluate("a.jsonl", "--out", "old.jsonl")
    project("agent.py", AGENT)
    evaluate("a.jsonl", "--failed-in", "old.jsonl", "--out", "new.jsonl")
    assert [result["eval_id"] for result in results("new.jsonl")] == ["b"]
    ran = evaluate("a.jsonl", "--failed-in", "new.jsonl", "--out", "none.jsonl")
    assert "nothing to run: all 1 results in new.jsonl passed" in ran.stderr
    assert not Path("none.jsonl").exists()
    ran = evaluate("a.jsonl", "--failed-in", "nowhere.jsonl", expect=2)
    assert "nowhere.jsonl: cannot be read: No such file or directory" in ran.stderr
    project("c.jsonl", [a_case("c", evaluators=[HELLO])])
    ran = evaluate("c.jsonl", "--failed-in", "old.jsonl", expect=2)
    assert "--failed-in: none of the cases that failed in that run is in these eval files" in ran.stderr


def test_resume_failed_reruns_cases_that_did_not_pass(project: Write) -> None:
    project("agent.py", "def answer(eval_id):\n    return 'hello' if eval_id == 'a' else open('b').read()\n")
    project("b", "no")
    evaluate("a.jsonl", "--out", "o.jsonl")
    project("b", "hello")
    ran = evaluate("a.jsonl", "--resume", "--failed", "--out", "o.jsonl")
    assert "1 already done, 1 to re-run because of --failed, previous answers saved in o.jsonl.bak" in ran.stderr
    assert {result["eval_id"]: result["verdict"] for result in results("o.jsonl")} == {"a": "pass", "b": "pass"}
    ran = evaluate("a.jsonl", "--failed", expect=2)
    assert "error: --failed needs --resume" in ran.stderr


# 14. Equal ids


def test_an_id_in_two_eval_files_is_a_warning(write: Write) -> None:
    write("targets.yaml", MOCK)
    for name in ("x", "y"):
        write(f"evals/{name}.jsonl", [a_case("same", evaluators=[HELLO]), a_case(name, evaluators=[HELLO])])
    ran = evaluate("evals")
    assert "warning: evals/y.jsonl:1:1: duplicate id 'same', also in evals/x.jsonl" in ran.stderr
    assert "use unique ids: otherwise only the dataset distinguishes the results" in ran.stderr


def test_a_warning_names_its_file_relative_to_the_current_folder(write: Write) -> None:
    write("targets.yaml", MOCK + "  - {name: other, provider: cli, command_template: '${{ NOT_SET_ANYWHERE }}'}\n")
    ran = evaluate(write("a.jsonl", [a_case(evaluators=[HELLO])]), "--quiet")

    assert ran.stderr.startswith("warning: targets.yaml:3:")
