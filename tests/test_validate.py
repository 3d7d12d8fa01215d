"""`agentv validate`, as a user runs it."""

import json
from pathlib import Path

import pytest

from agentv.validate import check_file
from tests.conftest import Write, a_case, agentv
from tests.test_bad_input import yaml_case


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
    write("evals/.agentv/targets.yaml", "targets:\n  - {name: a, provider: moc}\n")
    write("evals/.agentv/config.yaml", "guidelines_patterns: []\n")
    write("evals/.agentv/results/eval_1.jsonl", "not an eval file")
    write("evals/docker-compose.yaml", "services: {}")

    ran = agentv("validate", "evals")

    assert ran.stdout.splitlines() == [
        "evals/.agentv/config.yaml:1:1: error: guidelines_patterns: unknown field (did you mean 'guideline_patterns'?)",
        "evals/.agentv/targets.yaml:2:15: error: target 'a': provider: unknown provider 'moc' (did you mean 'mock'?)",
        'evals/bad.jsonl:2:2: error: id: expected a string, got an integer (quote it: "7")',
        "evals/bad.jsonl:3:1: error: Invalid JSON: Expecting value",
        "evals/bad.jsonl:4:2: error: duplicate id 'x', first on line 1 (give each case an id of its own)",
        'evals/bad.yaml:1:1: error: description: expected a string, got an integer (quote it: "5")',
        'evals/bad.yaml:3:5: error: id: expected a string, got an integer (quote it: "42")',
        "evals/bad.yaml:4:5: error: expected_outcome: expected a string, got an array",
        "evals/bad.yaml:6:9: error: input[0].role: unknown role 'usr' (did you mean 'user'?)",
        "evals/bad.yaml:8:5: error: missing expected_outcome; case 'b' is left out",
        f"evals/bad.yaml:15:26: error: no such file: nowhere.md (looked in {Path.cwd()}/evals, {Path.cwd()})",
        "evals/bad.yaml:16:26: warning: empty file: empty.md",
        "evals/bad.yaml:17:5: warning: metdata: unknown field, ignored (did you mean 'metadata'?)",
        "4 files, 3 cases: 11 errors, 2 warnings",
    ]
    assert (ran.stderr, ran.returncode) == ("", 1)


def test_no_problems(write: Write) -> None:
    write("a.yaml", yaml_case())
    ran = agentv("validate", "a.yaml")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("1 file, 1 case: 0 errors, 0 warnings\n", "", 0)


def test_warnings_alone_are_no_failure(write: Write) -> None:
    write("a.jsonl", [a_case(input_messages=[{"role": "user", "content": [{"type": "file", "value": "e.txt"}]}])])
    write("e.txt", "")
    ran = agentv("validate", "a.jsonl")
    assert ran.stdout == "a.jsonl:1:111: warning: empty file: e.txt\n1 file, 1 case: 0 errors, 1 warning\n"
    assert ran.returncode == 0


def test_a_slip_is_told_once_in_a_file(write: Write) -> None:
    path = write("a.jsonl", [a_case("a", inputs=1, notes=2), a_case("b", inputs=1)])
    assert [(p.line, p.message, p.hint) for p in check_file(path).problems] == [
        (1, "inputs: unknown field, ignored", "did you mean 'input'?")
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
                "hint": 'quote it: "42"',
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
    assert "no eval, targets or config file under 'folder'" in ran.stderr


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a"])
def test_an_extension_that_is_not_ours(write: Write, name: str) -> None:
    write(name, "{}")
    ran = agentv("validate", name)
    assert ran.returncode == 1
    assert "eval files end in .yaml, .yml, .jsonl" in ran.stdout


def test_globs_and_files_named_twice(write: Write) -> None:
    write("evals/a.yaml", yaml_case())
    write("evals/deep/b.yaml", yaml_case())
    ran = agentv("validate", "evals/**/*.yaml", "evals/a.yaml", "evals")
    assert ran.stdout == "2 files, 2 cases: 0 errors, 0 warnings\n"


def test_a_sidecar_alone_and_with_its_dataset(write: Write) -> None:
    write("a.jsonl", [a_case()])
    write("a.yaml", "execution: x\nevaluatr: y\n")
    expected = (
        "a.yaml:1:1: error: execution: expected an object, got a string\n"
        "a.yaml:2:1: warning: evaluatr: unknown field, ignored (did you mean 'evaluator'?)\n"
    )
    assert agentv("validate", "a.yaml").stdout == expected + "1 file, 0 cases: 1 error, 1 warning\n"
    both = agentv("validate", ".").stdout
    assert both == expected + "2 files, 1 case: 1 error, 1 warning\n"


def test_a_missing_sidecar_is_mentioned_when_verbose(write: Write) -> None:
    write("a.jsonl", [a_case()])
    assert agentv("validate", "a.jsonl").stderr == ""
    assert agentv("validate", "a.jsonl", "--verbose").stderr == (
        "warning: a.jsonl: no sidecar a.yaml beside this file: using the defaults\n"
    )
