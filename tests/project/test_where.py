"""Discovery: the project's root, the user's code, and files that are not eval files."""

import json
import os
from pathlib import Path

import pytest

from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, evaluate, results

ANSWERS = "targets:\n  - {name: default, provider: mock, response: hello from %s}\n"
PYTHON = "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n"
AGENT = "def answer(question):\n    return 'hello from %s'\n"


def answer_of(*args: str | Path, cwd: str | None = None, home: str | None = None) -> str:
    """The answer to the one case that a run asks."""
    environment = {**os.environ, "HOME": home} if home else None
    out = Path("out.jsonl").absolute()
    ran = agentv("eval", *args, "--out", out, cwd=Path(cwd) if cwd else None, env=environment)
    assert ran.returncode == 0, ran.stderr
    (result,) = results(out)
    out.unlink()
    return str(result["candidate_answer"]).removeprefix("hello from ")


@pytest.fixture
def project(write: Write) -> Write:
    write("project/.agentv/targets.yaml", ANSWERS % "the project")
    write("project/evals/a.jsonl", [a_case(evaluators=[HELLO])])
    return write


# ---- the root of a project outside of Git ----


def test_the_project_is_found_from_inside_it(project: Write) -> None:
    for _ in range(2):  # the second run meets the .agentv/results of the first
        assert agentv("eval", "a.jsonl", cwd=Path("project/evals")).returncode == 0
        assert answer_of("a.jsonl", cwd="project/evals") == "the project"
    assert Path("project/evals/.agentv/results").is_dir()


def test_the_project_is_found_from_elsewhere_before_the_current_folder(project: Write) -> None:
    project("elsewhere/targets.yaml", ANSWERS % "elsewhere")
    assert answer_of("../project/evals", cwd="elsewhere") == "the project"


def test_without_a_project_the_current_folder_counts(write: Write) -> None:
    write("here/targets.yaml", ANSWERS % "here")
    write("there/a.jsonl", [a_case(evaluators=[HELLO])])
    assert answer_of("../there/a.jsonl", cwd="here") == "here"


def test_env_and_config_are_found_up_to_the_root(project: Write) -> None:
    project("project/.agentv/targets.yaml", ANSWERS.replace("hello from %s", "'hello from ${{ WHO_ANSWERS }}'"))
    project("project/.env", "WHO_ANSWERS=the .env\n")
    project("project/.agentv/config.yaml", "guideline_patterns: 5\n")
    ran = agentv("eval", "a.jsonl", cwd=Path("project/evals"))
    assert "config.yaml:1:1: guideline_patterns: expected an array, got an integer" in ran.stderr
    project("project/.agentv/config.yaml", "guideline_patterns: []\n")
    assert answer_of("a.jsonl", cwd="project/evals") == "the .env"


def test_an_agentv_folder_next_to_a_targets_file_is_a_root(write: Write) -> None:
    write("project/.agentv/results/eval_1.jsonl", "")
    write("project/targets.yaml", ANSWERS % "the project")
    write("project/evals/a.jsonl", [a_case(evaluators=[HELLO])])
    assert answer_of("a.jsonl", cwd="project/evals") == "the project"


def test_the_home_folder_is_not_a_project(write: Write, tmp_path: Path) -> None:
    write("home/.agentv/targets.yaml", ANSWERS % "home")
    write("home/work/evals/a.jsonl", [a_case(evaluators=[HELLO])])
    write("here/targets.yaml", ANSWERS % "here")
    assert answer_of("../home/work/evals", cwd="here", home=str(tmp_path / "home")) == "here"
    assert answer_of("work/evals", cwd="home", home=str(tmp_path / "home")) == "home"


def test_a_world_writable_folder_is_not_a_project(write: Write, tmp_path: Path) -> None:
    write("shared/.agentv/targets.yaml", ANSWERS % "a stranger")
    write("shared/mine/a.jsonl", [a_case(evaluators=[HELLO])])
    write("here/targets.yaml", ANSWERS % "here")
    (tmp_path / "shared").chmod(0o1777)
    assert answer_of("../shared/mine", cwd="here") == "here"


def test_attached_files_are_searched_in_the_root(project: Write) -> None:
    content = [{"type": "file", "value": "notes.md"}]
    project("project/evals/a.jsonl", [a_case(evaluators=[HELLO], input=[{"role": "user", "content": content}])])
    project("project/notes.md", "notes")
    assert answer_of("../project/evals", cwd=str(Path("project").parent / "project")) == "the project"
    project("elsewhere/x", "")
    assert answer_of("../project/evals", cwd="elsewhere") == "the project"


# ---- the user's code ----


def test_code_is_searched_next_to_the_eval_file_then_the_targets_file_then_here(write: Write) -> None:
    write("project/.agentv/targets.yaml", PYTHON)
    write("project/evals/a.jsonl", [a_case(evaluators=[HELLO])])
    write("here/agent.py", AGENT % "here")
    assert answer_of("../project/evals", cwd="here") == "here"
    write("project/agent.py", AGENT % "the project")
    assert answer_of("../project/evals", cwd="here") == "the project"
    write("project/evals/agent.py", AGENT % "the evals")
    assert answer_of("../project/evals", cwd="here") == "the evals"


def test_modules_are_found_in_the_same_folders(write: Write) -> None:
    write("project/.agentv/targets.yaml", PYTHON.replace("agent.py:", "tools.agent:"))
    write("project/tools/agent.py", "import words\ndef answer(question):\n    return words.HELLO\n")
    write("project/words.py", "HELLO = 'hello from words'\n")
    check = {"type": "python", "function": "tools.checks:polite"}
    write("project/tools/checks.py", "def polite(answer):\n    return True\n")
    write("project/evals/a.jsonl", [a_case(evaluators=[check])])
    write("here/x", "")
    assert answer_of("../project/evals", cwd="here") == "words"


def test_an_error_lists_all_searched_folders(write: Write, tmp_path: Path) -> None:
    write("project/.agentv/targets.yaml", PYTHON)
    check = {"type": "python", "function": "nowhere:polite"}
    write("project/evals/a.jsonl", [a_case(evaluators=[check])])
    write("here/x", "")
    places = f"{tmp_path}/project/evals, {tmp_path}/project/.agentv, {tmp_path}/project, {tmp_path}/here"
    ran = agentv("eval", "../project/evals", cwd=Path("here"))
    assert ran.stderr == (
        "error: ../project/evals/a.jsonl:1:138: case 'test-1': evaluators[0]: nowhere cannot be loaded: no such module\n"
        f"hint: searched {places}, and among the installed packages\n"
    )
    write("project/evals/a.jsonl", [a_case(evaluators=[HELLO])])
    ran = agentv("eval", "../project/evals", cwd=Path("here"))
    assert ran.stderr == (
        f"error: {tmp_path}/project/.agentv/targets.yaml:2:39: target 'default': function: "
        f"agent.py cannot be loaded: no such file\nhint: searched {places}\n"
    )


def test_all_errors_of_python_targets_at_once(write: Write, tmp_path: Path) -> None:
    write(
        "targets.yaml",
        "targets:\n"
        "  - {name: a, provider: python, functon: x, function: 'nowhere.py:f'}\n"
        "  - {name: b, provider: python,\n     function: 'agent.py:anser'}\n"
        "  - {name: c, provider: python, function: 'agent.py:odd'}\n",
    )
    write("agent.py", "def answer(q): return q\ndef odd(one, two): return one\n")
    write("a.jsonl", [a_case(name, evaluators=[HELLO], execution={"target": name}) for name in "abc"])
    ran = evaluate("a.jsonl", expect=2)
    assert ran.stderr.splitlines() == [
        "error: targets.yaml:2:33: target 'a': functon: unknown field",
        "hint: did you mean 'function'?",
        "error: targets.yaml:2:45: target 'a': function: nowhere.py cannot be loaded: no such file",
        f"hint: searched {tmp_path}",
        "error: targets.yaml:4:6: target 'b': function: agent.py has no function 'anser'",
        "hint: did you mean 'answer'?",
        "error: targets.yaml:5:33: target 'c': function: the function's parameters 'one', 'two' cannot be supplied",
        "hint: available parameters: question, guidelines, chat_prompt, messages, eval_id, files, request, config, "
        "vars, metadata, trial, attempt, session, state, workspace_path",
    ]


# ---- results among eval files ----


@pytest.mark.parametrize("name", ["results.jsonl", "results.yaml"])
def test_results_among_eval_files_are_skipped(project: Write, name: str) -> None:
    out = Path("project", name)
    evaluate("project", "--out", out)
    ran = evaluate("project", "--out", out)
    assert f"note: skipped, because this is a results file of agentv: {out}\n" in ran.stderr
    assert "1 planned" in ran.stdout
    ran = evaluate(f"{out}*", "project/evals", expect=2)  # the backup, too
    assert f"it contains only results of agentv, such as {out}\n" in ran.stderr
    checked = agentv("validate", "project")
    assert (checked.stdout, checked.returncode) == ("2 files, 1 case: 0 errors, 0 warnings\n", 0)
    assert checked.stderr == f"note: skipped, because this is a results file of agentv: {out}\n"


def test_several_results_are_one_note(project: Write) -> None:
    for name in ("1", "2", "3"):
        evaluate("project/evals/a.jsonl", "--out", f"project/{name}.jsonl")
    ran = evaluate("project/*", "project/evals", "--out", "project/3.jsonl")
    left_out = "project/1.jsonl, project/2.jsonl, project/3.jsonl"
    assert ran.stderr.count("note: skipped") == 1
    assert f"note: skipped, because these are results of agentv: {left_out}\n" in ran.stderr


@pytest.mark.parametrize("command", ["eval", "validate"])
def test_results_passed_as_eval_files_are_an_error(project: Write, command: str) -> None:
    evaluate("project", "--out", "results.jsonl")
    ran = agentv(command, "results.jsonl")
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert ran.stderr == (
        "error: results.jsonl: this is a results file of agentv, not an eval file\n"
        "hint: pass an eval file; to read results, use 'agentv show' or 'agentv compare'\n"
    )


def test_results_with_a_long_answer_are_recognized(project: Write) -> None:
    project("project/.agentv/targets.yaml", ANSWERS % ("x" * 100_000))
    evaluate("project", "--out", "project/results.jsonl")
    assert "project/results.jsonl" in evaluate("project").stderr


def test_cases_with_fields_of_results_are_cases(write: Write) -> None:
    write("targets.yaml", ANSWERS % "x")
    write("a.jsonl", [a_case(evaluators=[HELLO], score=1, verdict="pass", timestamp="now")])
    assert evaluate(".").returncode == 0


# ---- tracebacks of the user's code ----

BROKEN = """
def answer(question):
    return lookup({})

def lookup(known):
    return known["x"]

async def slowly(question):
    return lookup({})

def leave(question):
    raise SystemExit(3)

def check(candidate_answer):
    raise ValueError("s3cr3t-t0k3n")
"""


def run_broken(write: Write, name: str, *args: str) -> tuple[dict[str, object], str]:
    write("evals/agent.py", BROKEN)
    write("targets.yaml", PYTHON.replace("answer", name))
    write("evals/a.jsonl", [a_case(evaluators=[HELLO])])
    ran = evaluate("evals", "--out", "out.jsonl", *args, expect=1)
    (result,) = results("out.jsonl")
    return result, ran.stderr + ran.stdout


@pytest.mark.parametrize(("name", "line"), [("answer", 3), ("slowly", 9)])
def test_an_exception_in_a_target_is_reported_with_its_last_line(write: Write, name: str, line: int) -> None:
    result, said = run_broken(write, name)
    assert result["error"] == "evals/agent.py:6 in lookup: KeyError: 'x'"
    assert result["error_details"] == (
        "Traceback (most recent call last):\n"
        f'  File "evals/agent.py", line {line}, in {name}\n    return lookup({{}})\n'
        '  File "evals/agent.py", line 6, in lookup\n    return known["x"]\n'
        "KeyError: 'x'"
    )
    assert "evals/agent.py:6 in lookup: KeyError: 'x'" in said


def test_verbose_shows_the_traceback(write: Write) -> None:
    write("evals/agent.py", BROKEN)
    write("targets.yaml", PYTHON)
    write("evals/a.jsonl", [a_case(evaluators=[HELLO])])
    ran = agentv("eval", "evals", "--verbose")
    assert "note: case 'test-1': the target failed\nnote: Traceback (most recent call last):\n" in ran.stderr
    assert 'note:   File "evals/agent.py", line 3, in answer\n' in ran.stderr
    assert "site-packages" not in ran.stderr
    assert "src/agentv" not in ran.stderr


def test_a_function_that_exits_has_a_location(write: Write) -> None:
    result, _ = run_broken(write, "leave")
    assert result["error"] == "evals/agent.py:12 in leave: SystemExit: 3"


def test_an_evaluator_that_crashes_has_its_traceback_without_secrets(write: Write) -> None:
    write("agent.py", BROKEN)
    write("targets.yaml", ANSWERS % "x")
    write(".env", "MY_TOKEN=s3cr3t-t0k3n\n")
    write("a.jsonl", [a_case(evaluators=[{"type": "python", "function": "agent.py:check"}])])
    evaluate("a.jsonl", "--out", "out.jsonl", expect=1)
    (result,) = results("out.jsonl")
    assert (result["failure"], result["verdict"]) == ("judge", "fail")
    (part,) = result["evaluator_results"]
    assert part["misses"] == ["the evaluator failed: agent.py:15 in check: ValueError: ***"]
    assert part["error_details"].endswith('line 15, in check\n    raise ValueError("***")\nValueError: ***')
    assert "error_details" not in result


def test_hits_and_misses_are_always_present(write: Write) -> None:
    write("targets.yaml", ANSWERS % "x")
    write("a.jsonl", [a_case(evaluators=[{"type": "python", "function": "one.py:one"}])])
    write("one.py", "def one(answer):\n    return 1\n")
    evaluate("a.jsonl", "--out", "out.jsonl")
    raw = json.loads(Path("out.jsonl").read_text())
    assert (raw["hits"], raw["misses"]) == ([], [])
    assert [(part["hits"], part["misses"]) for part in raw["evaluator_results"]] == [([], [])]
