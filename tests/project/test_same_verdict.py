"""`agentv validate` reports what `agentv eval` rejects, and neither calls a target."""

import json
from pathlib import Path

import pytest

from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import ANY, MOCK, evaluate

CASES = "evalcases:\n  - {id: a, expected_outcome: x, input: x, evaluators: [{type: contains, value: ''}]}\n"
PAID = "targets: [{name: default, provider: cli, command_template: 'touch paid; echo hello'}]"
FILE_BLOCK = [{"role": "user", "content": [{"type": "text", "value": "see"}, {"type": "file", "value": "gone.md"}]}]

QUOTED_KEY = '"value": '


def refused(*expected: str) -> None:
    """Both commands refuse the folder, with these words."""
    ran = agentv("validate", ".")
    assert ran.returncode == 1, ran.stdout
    run = evaluate(".", expect=2)
    for text in expected:
        assert text in flat(ran.stdout)
        assert text in flat(run.stderr)


def test_a_missing_targets_file(write: Write) -> None:
    write("a.yaml", CASES)
    write("b.yaml", CASES)
    refused("no targets file found: searched ")
    ran = agentv("validate", ".")
    assert ran.stdout.startswith("a.yaml:1:1: error: no targets file found: searched ")
    assert "(run 'agentv init' to create one)\n2 files, 2 cases: 1 error, 0 warnings\n" in ran.stdout


def test_eval_files_that_are_named_can_be_checked_without_a_targets_file(write: Write) -> None:
    write("a.yaml", CASES)
    assert agentv("validate", "a.yaml").returncode == 0


def test_a_default_target_that_does_not_exist(write: Write) -> None:
    write("targets.yaml", "targets: [{name: other, provider: mock, response: x}]")
    write("a.yaml", CASES)
    refused(
        "unknown target 'default': ",
        "not in targets.yaml",
        "choose a target with --target, or with 'execution: {target: NAME}' in the eval file: other",
    )


def test_the_target_of_the_run_is_checked_instead_of_default(write: Write) -> None:
    write("targets.yaml", "targets: [{name: other, provider: mock, response: hello}]")
    write("a.yaml", CASES)
    assert agentv("validate", ".", "--target", "other").returncode == 0
    evaluate(".", "--target", "other")
    ran = agentv("validate", ".", "--target", "othr")
    assert ran.returncode == 1
    assert "unknown target 'othr': not in targets.yaml (did you mean 'other'?)" in ran.stdout
    run = evaluate(".", "--target", "othr", expect=2)
    assert "unknown target 'othr': " in run.stderr


@pytest.mark.parametrize("key", ["evalcase", "eval_cases", "evalCases", "EvalCase"])
def test_a_misspelt_list_of_cases(write: Write, key: str) -> None:
    write("targets.yaml", MOCK)
    write("good.yaml", CASES)
    write("a.yaml", CASES.replace("evalcases", key))
    refused(f"{key}: unknown field", "did you mean 'evalcases'?")
    assert agentv("validate", "a.yaml").stdout == (
        f"a.yaml:1:1: error: {key}: unknown field (did you mean 'evalcases'?)\n1 file, 0 cases: 1 error, 0 warnings\n"
    )


def test_a_misspelt_key_of_a_sidecar(write: Write) -> None:
    write("targets.yaml", "targets: [{name: other, provider: mock, response: x}]")
    write("a.jsonl", [a_case(evaluators=[ANY])])
    write("a.yaml", "exec: {target: other}\n")
    refused("exec: unknown field", "did you mean 'execution'?", "unknown target 'default'")


def test_a_folder_without_eval_files_is_a_warning(write: Write) -> None:
    write("targets.yaml", MOCK)
    ran = agentv("validate", ".")
    assert ran.returncode == 0
    assert "warning: no eval file in '.': only targets and config files are checked" in flat(ran.stderr)
    assert "no eval file matches '.'" in evaluate(".", expect=2).stderr


@pytest.mark.parametrize("name", ["a.jsonl", "a.yaml"])
def test_nothing_runs_if_an_attachment_is_missing(write: Write, name: str) -> None:
    write("targets.yaml", PAID)
    cases = [a_case("one", evaluators=[ANY]), a_case("two", evaluators=[ANY], input_messages=FILE_BLOCK)]
    if name == "a.yaml":
        lines = "".join(f"  - {json.dumps(case)}\n" for case in cases)
        write(name, f"evalcases:\n{lines}")
    else:
        write(name, cases)
    refused("no such file: gone.md", "searched ")
    assert not Path("paid").exists()
    text = Path(name).read_text()
    before = text[: text.index("gone.md")]
    line = before.count("\n") + 1
    column = len(before.rpartition("\n")[2]) - len(QUOTED_KEY)
    assert f"{name}:{line}:{column}: error: no such file: gone.md" in agentv("validate", name).stdout
    place = f"{name}:{line}:{column}"
    assert f"error: {place}: no such file: gone.md" in agentv("eval", name).stderr
    evaluate(name, "--eval-id", "one")
    assert Path("paid").exists()


def test_an_attachment_of_a_case_beyond_the_limit_is_not_needed(write: Write) -> None:
    write("targets.yaml", PAID)
    write("a.jsonl", [a_case("one", evaluators=[ANY]), a_case("two", evaluators=[ANY], input_messages=FILE_BLOCK)])
    evaluate("a.jsonl", "--limit", "1")
