"""`agentv validate`, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentv.project.validate import check_file
from tests.kits.cases import yaml_case
from tests.kits.project import Write, a_case, agentv


def test_every_problem_of_every_file_in_one_pass(write: Write) -> None:
    write(
        "evals/bad.yaml",
        """description: 5
evalcases:
  - id: 42
    expected_outcome: [x]
    input:
      - role: usr
        content: hi
  - id: b
    input: hi
  - id: c
    outcome: x
    input:
      - role: user
        content:
          - {type: file, value: nowhere.md}
          - {type: file, value: empty.md}
    metdata: {}
""",
    )
    write("evals/empty.md", "")
    write("evals/bad.jsonl", json.dumps(a_case("x")) + '\n{"id": 7}\nnope\n' + json.dumps(a_case("x")) + "\n")
    write("evals/.agentv/targets.yaml", "targets:\n  - {name: default, provider: moc}\n")
    write("evals/.agentv/config.yaml", "guidelines_patterns: []\n")
    write("evals/.agentv/results/eval_1.jsonl", "not an eval file")
    write("evals/docker-compose.yaml", "services: {}")

    ran = agentv("validate", "evals")

    assert ran.stdout.splitlines() == [
        "evals/.agentv/config.yaml:1:1: error: guidelines_patterns: unknown field (did you mean 'guideline_patterns'?)",
        "evals/.agentv/targets.yaml:2:21: error: target 'default': provider: unknown provider 'moc' (did you mean 'mock'?)",
        "evals/bad.jsonl:2:1: error: Line 2: missing expected_outcome, input_messages",
        "evals/bad.jsonl:2:2: error: Line 2: id: expected a string, got an integer (quote it)",
        "evals/bad.jsonl:3:1: error: Line 3: Invalid JSON: Expecting value",
        "evals/bad.jsonl:4:2: error: duplicate id 'x', first on line 1 (use unique ids)",
        "evals/bad.yaml:1:1: error: description: expected a string, got an integer (quote it)",
        "evals/bad.yaml:3:5: error: id: expected a string, got an integer (quote it)",
        "evals/bad.yaml:4:5: error: expected_outcome: expected a string, got an array",
        "evals/bad.yaml:6:9: error: input[0].role: unknown role 'usr' (did you mean 'user'? one of assistant, system, tool, user)",
        "evals/bad.yaml:8:5: error: missing expected_outcome; case 'b' is skipped",
        f"evals/bad.yaml:15:26: error: no such file: nowhere.md (searched {Path.cwd()}/evals, {Path.cwd()})",
        "evals/bad.yaml:16:26: warning: empty file: empty.md",
        "evals/bad.yaml:17:5: error: metdata: unknown field (did you mean 'metadata'?)",
        "4 files, 3 cases: 13 errors, 1 warning",
    ]
    assert (ran.stderr, ran.returncode) == ("", 1)


def test_no_problems(write: Write) -> None:
    write("a.yaml", yaml_case())
    ran = agentv("validate", "a.yaml")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("1 file, 1 case: 0 errors, 0 warnings\n", "", 0)


def test_warnings_alone_are_not_a_failure(write: Write) -> None:
    write("a.jsonl", [a_case(input_messages=[{"role": "user", "content": [{"type": "file", "value": "e.txt"}]}])])
    write("e.txt", "")
    ran = agentv("validate", "a.jsonl")
    assert ran.stdout == "a.jsonl:1:111: warning: empty file: e.txt\n1 file, 1 case: 0 errors, 1 warning\n"
    assert ran.returncode == 0


def test_a_repeated_mistake_is_reported_once_per_file(write: Write) -> None:
    path = write("a.jsonl", [a_case("a", inputs=1, notes=2), a_case("b", inputs=1)])
    own = "put custom data under 'metadata', which is copied to the result"
    assert [(p.line, p.message, p.hint) for p in check_file(path).problems] == [
        (1, "inputs: unknown field (in 2 cases)", "did you mean 'input'?"),
        (1, "notes: unknown field", own),
    ]


def test_json_for_tools(write: Write) -> None:
    write("a.yaml", yaml_case(id="42"))
    ran = agentv("validate", "a.yaml", "--format", "json")
    assert json.loads(ran.stdout) == {
        "problems": [
            {
                "message": "id: expected a string, got an integer",
                "severity": "error",
                "file": "a.yaml",
                "line": 2,
                "column": 5,
                "hint": "quote it",
            }
        ],
        "summary": {"files": 1, "cases": 0, "errors": 1, "warnings": 0},
    }
    assert ran.returncode == 1


@pytest.mark.parametrize("path", ["nope.yaml", "nope/", "no/*.yaml"])
def test_a_path_that_does_not_exist(write: Write, path: str) -> None:
    write("a.yaml", yaml_case())
    ran = agentv("validate", "a.yaml", path)
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert ran.stderr.startswith(f"error: no file matches {path!r}\nhint: ")


def test_an_empty_folder(write: Write) -> None:
    write("folder/x.txt", "")
    ran = agentv("validate", "folder")
    assert ran.returncode == 2
    assert "no eval, targets or config file in 'folder'" in ran.stderr


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a"])
def test_an_unsupported_extension(write: Write, name: str) -> None:
    write(name, "{}")
    ran = agentv("validate", name)
    assert ran.returncode == 1
    assert "eval files end in .yaml, .yml, .jsonl" in ran.stdout


def test_globs_and_files_named_twice(write: Write) -> None:
    write("evals/a.yaml", yaml_case())
    write("evals/deep/b.yaml", yaml_case())
    write(".agentv/targets.yaml", MOCKS.replace("response: x", "response: x, judge_target: judge"))
    ran = agentv("validate", "evals/**/*.yaml", "evals/a.yaml", "evals")
    assert ran.stdout == "2 files, 2 cases: 0 errors, 0 warnings\n"


def test_a_sidecar_alone_and_with_its_dataset(write: Write) -> None:
    write("a.jsonl", [a_case()])
    write("a.yaml", "execution: x\nevaluatr: y\n")
    expected = (
        "a.yaml:1:1: error: execution: expected an object, got a string\n"
        "a.yaml:2:1: error: evaluatr: unknown field (did you mean 'evaluator'?)\n"
    )
    assert agentv("validate", "a.yaml").stdout == expected + "1 file, 0 cases: 2 errors, 0 warnings\n"
    both = agentv("validate", "a.jsonl", "a.yaml").stdout
    assert both == expected + "2 files, 1 case: 2 errors, 0 warnings\n"


def test_a_missing_sidecar_is_mentioned_when_verbose(write: Write) -> None:
    write("a.jsonl", [a_case()])
    assert agentv("validate", "a.jsonl").stderr == ""
    assert agentv("validate", "a.jsonl", "--verbose").stderr == (
        "warning: a.jsonl: no sidecar a.yaml beside this file: using the defaults\n"
    )


@pytest.mark.parametrize("value", ["5", "true", "[{id: a, outcome: x, input: hi}, 5]"])
def test_evalcases_of_a_wrong_kind(write: Write, value: str) -> None:
    write("a.yaml", f"evalcases: {value}\n")
    ran = agentv("validate", "a.yaml")
    assert ran.returncode == 1
    assert "a.yaml:1:" in ran.stdout


def test_cases_on_one_line_are_distinguished(write: Write) -> None:
    file = "[{role: user, content: [{type: file, value: nope}]}]"
    text = f"evalcases: [{{id: a, outcome: x, input: {file}}}, {{id: b, outcome: x, input: hi, inputt: 3}}]\n"
    problems = check_file(write("a.yaml", text)).problems
    assert [text[(p.column or 0) - 1 :].split(":", maxsplit=1)[0] for p in problems] == ["value", "inputt"]


def test_a_mistake_in_a_skipped_case(write: Write) -> None:
    for name, text in (
        ("a.yaml", "evalcases:\n  - id: a\n    expected_outcom: x\n    input: hi\n"),
        ("b.jsonl", '{"id": "a", "expected_outcom": "x", "input": "hi"}\n'),
    ):
        hints = [problem.hint for problem in check_file(write(name, text)).problems]
        assert "did you mean 'expected_outcome'?" in hints


def test_a_line_with_very_many_problems(write: Write) -> None:
    path = write("a.jsonl", [a_case(input_messages=[1] * 20_000)])
    problems = check_file(path).problems
    assert len(problems) == 51
    assert problems[0].message == "Line 1: more than 50 problems here"


def test_a_file_with_very_many_problems(write: Write) -> None:
    path = write("a.jsonl", "x\n" * 5000)
    problems = check_file(path).problems
    assert len(problems) == 1001
    assert problems[-1].message == "1000 problems: the rest of the file was not checked"


def test_files_that_a_prompt_cannot_take(write: Write, tmp_path: Path) -> None:
    write("binary.dat", b"\xff\x00")
    os.mkfifo(tmp_path / "pipe")
    blocks = [{"type": "file", "value": "binary.dat"}, {"type": "file", "value": "pipe"}]
    path = write("a.jsonl", [a_case(input_messages=[{"role": "user", "content": blocks}])])
    assert [(p.severity, p.message) for p in check_file(path).problems] == [
        ("warning", "not a text file: binary.dat"),
        ("error", "not a regular file: pipe"),
    ]


def test_the_root_does_not_depend_on_the_current_folder(write: Write, tmp_path: Path) -> None:
    write("a/.git/HEAD", "")
    write("b/code.py", "x")
    write("b/x.jsonl", [a_case(input_messages=[{"role": "user", "content": [{"type": "file", "value": "code.py"}]}])])
    assert agentv("validate", "../b/x.jsonl", cwd=tmp_path / "a").returncode == 0


def test_one_file_by_several_names(write: Write, tmp_path: Path) -> None:
    write("a.yaml", yaml_case())
    (tmp_path / "loop").symlink_to(".")
    ran = agentv("validate", "a.yaml", tmp_path / "a.yaml", "**/*.yaml")
    assert ran.stdout == "1 file, 1 case: 0 errors, 0 warnings\n"


def test_an_empty_argument_is_not_a_path(write: Write) -> None:
    write("a.yaml", yaml_case())
    assert agentv("validate", "").returncode == 2


def test_from_inside_the_agentv_folder(write: Write, tmp_path: Path) -> None:
    write(".agentv/config.yaml", "nonsense: 1\n")
    write(".agentv/results/r.jsonl", "{}\n")
    ran = agentv("validate", ".", cwd=tmp_path / ".agentv")
    assert ran.stdout.startswith("config.yaml:1:1: error: nonsense: unknown field")
    assert ran.stdout.endswith("1 file, 0 cases: 1 error, 0 warnings\n")


def test_file_content_cannot_imitate_a_message(write: Write) -> None:
    write("targets.yaml", 'targets:\n- {name: a, provider: mock, "x\\ny.yaml:1:1: error: fake": 1}\n')
    ran = agentv("validate", "targets.yaml")
    assert len(ran.stdout.splitlines()) == 2


def test_a_file_name_that_is_not_utf8(write: Write, tmp_path: Path) -> None:
    write("a.yaml", "evalcases: []\n").rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.yaml"))
    ran = agentv("validate", "--format", "json", ".")
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["problems"][0]["file"] == "caf\ufffd.yaml"


def test_variables_in_dotenv_count(write: Write) -> None:
    write("targets.yaml", "targets:\n- {name: a, provider: openai, model: m, api_key: '${{ SOME_KEY_HERE }}'}\n")
    assert "SOME_KEY_HERE is not set" in agentv("validate", "targets.yaml").stdout
    write(".env", "SOME_KEY_HERE=12345678\n")
    assert agentv("validate", "targets.yaml").stdout == "1 file, 0 cases: 0 errors, 0 warnings\n"


def test_a_broken_sidecar_does_not_hide_its_dataset(write: Write) -> None:
    write("a.yaml", "x: [\n")
    path = write("a.jsonl", '{"id": 5}\n')
    assert {problem.file and problem.file.name for problem in check_file(path).problems} == {"a.yaml", "a.jsonl"}


def test_a_closed_pipe_ends_the_command_quietly(write: Write) -> None:
    write("a.jsonl", "x\n" * 900)
    line = f"{sys.executable} -m agentv validate a.jsonl 2>err.txt | head -n 1; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert run.stdout == "a.jsonl:1:1: error: Line 1: Invalid JSON: Expecting value\n"
    assert run.returncode == 1
    assert Path("err.txt").read_text() == ""


def test_secrets_are_masked(write: Write) -> None:
    write("a.jsonl", [a_case(input_messages=[{"role": "hunter2hunter2", "content": "x"}])])
    ran = agentv("validate", "a.jsonl", env={**os.environ, "MY_TOKEN": "hunter2hunter2"})
    assert "unknown role '***'" in ran.stdout
    assert "hunter2" not in ran.stdout + ran.stderr


# ---- all that stops a run ----

MOCKS = "targets:\n  - {name: default, provider: mock, response: x}\n  - {name: judge, provider: mock, response: x}\n"


def test_a_case_without_evaluators_and_judge(write: Write) -> None:
    write(".agentv/targets.yaml", MOCKS)
    write("a.jsonl", [a_case()])
    message = "no evaluators are set, and the default evaluator, llm_judge, needs a judge"
    ran = agentv("validate", "a.jsonl")
    assert ran.stdout == (
        f"a.jsonl:1:1: error: case 'test-1': {message} "
        "(add evaluators to the case, such as {type: contains, value: TEXT}, or set judge_target in the target)\n"
        "1 file, 1 case: 1 error, 0 warnings\n"
    )
    assert ran.returncode == 1
    assert message in agentv("eval", "a.jsonl").stderr


def test_a_missing_judge_and_a_missing_target(write: Write) -> None:
    write("targets.yaml", MOCKS)
    judged = {"type": "llm_judge", "judge_target": "jugde"}
    check = {"type": "contains", "value": "x"}
    write(
        "a.jsonl",
        [a_case("a", evaluators=[judged]), a_case("b", evaluators=[check], execution={"target": "gone"})],
    )
    ran = agentv("validate", "a.jsonl", "targets.yaml")
    assert ran.stdout.splitlines() == [
        "a.jsonl:1:1: error: case 'a': judge_target: unknown target 'jugde' (did you mean 'judge'?)",
        "a.jsonl:2:1: error: unknown target 'gone': not in targets.yaml (available targets: default, judge)",
        "2 files, 2 cases: 2 errors, 0 warnings",
    ]


def test_problems_of_a_used_target_are_reported_once(write: Write) -> None:
    write(
        "targets.yaml",
        "targets:\n"
        "  - {name: default, provider: python, functon: x, function: 'gone.py:f'}\n"
        "  - {name: mine, provider: python, function: 'agent.py:anser'}\n"
        "  - {name: unused, provider: python, function: 'gone.py:f'}\n",
    )
    write("agent.py", "raise SystemExit('this is not run')\ndef answer(q): pass\n")
    check = {"type": "python", "function": "agent.py:chek"}
    cases = [a_case("a", evaluators=[check]), a_case("b", evaluators=[check], execution={"target": "mine"})]
    write("a.jsonl", cases)
    write("b.jsonl", [a_case("a", evaluators=[{"type": "python", "function": "agent.py:answer"}])])
    ran = agentv("validate", ".")
    assert ran.stdout.splitlines() == [
        "a.jsonl:1:133: error: case 'a': evaluators[0]: agent.py has no function 'chek' (put the name of one of its functions after the colon)",
        "a.jsonl:2:133: error: case 'b': evaluators[0]: agent.py has no function 'chek' (put the name of one of its functions after the colon)",
        "targets.yaml:2:39: error: target 'default': functon: unknown field (did you mean 'function'?)",
        f"targets.yaml:2:51: error: target 'default': function: gone.py cannot be loaded: no such file (searched {Path.cwd()})",
        "targets.yaml:3:36: error: target 'mine': function: agent.py has no function 'anser' (did you mean 'answer'?)",
        "3 files, 3 cases: 5 errors, 0 warnings",
    ]


def test_without_a_targets_file_the_cases_alone_are_checked(write: Write) -> None:
    write("a.jsonl", [a_case(execution={"target": "anything"})])
    assert agentv("validate", "a.jsonl").stdout == "1 file, 1 case: 0 errors, 0 warnings\n"


def test_several_errors_of_one_case(write: Write) -> None:
    write("targets.yaml", MOCKS)
    write(
        "a.yaml",
        "evalcases:\n"
        "  - id: 42\n"
        "    expected_outcom: x\n"
        "    input: [{role: user}, {role: usr, content: x}]\n"
        "    execution: {targt: x}\n"
        "    evaluators: [{type: contans, value: x}, {type: equals, value: 5}]\n",
    )
    expected = [
        "a.yaml:2:5: error: id: expected a string, got an integer (quote it)",
        "a.yaml:2:5: error: missing expected_outcome (did you mean 'expected_outcome' by 'expected_outcom'?)",
        "a.yaml:3:5: error: expected_outcom: unknown field (did you mean 'expected_outcome'?)",
        "a.yaml:4:28: error: input[1].role: unknown role 'usr' (did you mean 'user'? one of assistant, system, tool, user)",
        "a.yaml:5:17: error: execution.targt: unknown field (did you mean 'target'?)",
        "a.yaml:6:19: error: evaluators[0]: unknown evaluator type 'contans' (did you mean 'contains'?)",
        "a.yaml:6:60: error: evaluators[1].value: expected a string or an array, got an integer (quote it)",
    ]
    ran = agentv("validate", "a.yaml")
    assert sorted(ran.stdout.splitlines()[:-1]) == sorted(expected)
    stopped = agentv("eval", "a.yaml")
    assert stopped.returncode == 2
    for words in ("id: expected a string", "missing expected_outcome", "unknown role 'usr'", "unknown evaluator type"):
        assert words in stopped.stderr


def test_a_run_warns_about_a_mistake_and_continues(write: Write) -> None:
    write("targets.yaml", MOCKS)
    write("a.yaml", yaml_case() + "    metdata: {}\n    evaluators: [{type: contains, value: x}]\nevaluatr: x\n")
    check = {"type": "contains", "value": "x"}
    write("b.jsonl", [a_case("b", evaluators=[check]), {"id": "c", "expected_outcom": "x", "input": "x"}])
    write("b.yaml", "evaluatrs: []\n")
    ran = agentv("eval", "a.yaml", "b.jsonl")
    assert ran.stderr.splitlines()[:4] == [
        "warning: a.yaml:7:1: evaluatr: unknown field, ignored (did you mean 'evaluator'?)",
        "warning: a.yaml:5:5: metdata: unknown field, ignored (did you mean 'metadata'?)",
        "warning: b.yaml:1:1: evaluatrs: unknown field, ignored (did you mean 'evaluators'?)",
        "warning: b.jsonl:2:1: Line 2: missing expected_outcome; case 'c' is skipped (did you mean 'expected_outcome' by 'expected_outcom'?)",
    ]
    assert ran.returncode == 0
    assert "1 invalid" in ran.stdout


@pytest.mark.parametrize("command", ["eval", "validate"])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a.csv", "convert it with 'agentv import'"),
        ("a.tsv", "convert it with 'agentv import'"),
        ("a.xlsx", "save it as .csv and convert that with 'agentv import'"),
        ("a.txt", "rename the file, or pass another one"),
    ],
)
def test_tables_are_imported(write: Write, command: str, name: str, hint: str) -> None:
    write(name, "id,question\n")
    ran = agentv(command, name)
    assert hint in ran.stdout + ran.stderr
    assert "is not supported: eval files end in .yaml, .yml, .jsonl" in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "targets:\n  name: default\n  provider: mock\n",
            "targets.yaml:1:1: error: 'targets' must be a list "
            "(put a dash before the first setting of each target: '- name: default')",
        ),
        (
            "- name: default\n",
            "targets.yaml:1:1: error: expected an object, got an array (list the targets under 'targets:')",
        ),
    ],
)
def test_targets_that_are_not_a_list(write: Write, text: str, message: str) -> None:
    write("targets.yaml", text)
    assert agentv("validate", "targets.yaml").stdout.splitlines()[0] == message
    write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "x"}])])
    assert message.rpartition("(")[2].removesuffix(")") in agentv("eval", "a.jsonl").stderr


def test_cases_that_are_not_a_list(write: Write) -> None:
    write("a.yaml", "evalcases:\n  id: a\n")
    assert "(put a dash before the first field of each case: '- id: …')" in agentv("validate", "a.yaml").stdout


def test_a_program_that_is_not_installed(write: Write) -> None:
    write("targets.yaml", MOCKS)
    write("a.jsonl", [a_case(evaluators=[{"type": "code_judge", "script": ["no-such-bun", "run", "x.ts"]}])])
    checked = agentv("validate", "a.jsonl")
    words = "evaluators[0]: script: no such command: no-such-bun"
    assert checked.stdout == (
        f"a.jsonl:1:142: warning: {words} (install it, or name another program)\n1 file, 1 case: 0 errors, 1 warning\n"
    )
    assert checked.returncode == 0
    dry = agentv("eval", "a.jsonl", "--dry-run", "--out", "out.jsonl")
    assert (dry.returncode, f"warning: a.jsonl:1:142: {words}" in dry.stderr) == (0, True)
    assert json.loads(Path("out.jsonl").read_text())["misses"] == ["dry run: script: no such command: no-such-bun"]
    real = agentv("eval", "a.jsonl")
    assert (real.returncode, real.stdout) == (2, "")
    assert f"error: a.jsonl:1:142: case 'test-1': {words}\nhint: install it" in real.stderr


def test_no_reference_answer_to_compare_with(write: Write) -> None:
    write("targets.yaml", MOCKS)
    write("a.jsonl", [a_case("a", expected_output="x"), a_case("b")])
    write("a.yaml", "evaluators:\n  - {type: equals, name: same}\n")
    message = "case 'b': evaluator 'same' has no 'value', and the case has no reference answer"
    hint = "set 'value' in the evaluator, or 'expected_output' in the case"
    assert f"a.jsonl:2:1: error: {message} ({hint})\n" in agentv("validate", "a.jsonl").stdout
    ran = agentv("eval", "a.jsonl")
    assert (ran.returncode, ran.stderr) == (2, f"error: a.jsonl:2:1: {message}\nhint: {hint}\n")
