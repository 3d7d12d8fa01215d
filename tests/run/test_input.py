"""`agentv eval` with invalid or unusual input, and its messages."""

import json
import re
import tempfile
from pathlib import Path

import pytest

from tests.kits.cases import as_nobody
from tests.kits.project import Write, a_case, agentv
from tests.kits.runs import HELLO, MOCK, evaluate, results, run_one


@pytest.fixture
def project(write: Write) -> Write:
    write("targets.yaml", MOCK)
    return write


def test_no_targets_file(write: Write, tmp_path: Path) -> None:
    ran = evaluate(write("evals/a.jsonl", [a_case(evaluators=[HELLO])]), expect=2)
    assert f"no targets file found: searched {tmp_path / 'evals'}, {tmp_path}" in ran.stderr
    assert (
        "hint: run 'agentv init' to create one, or write .agentv/targets.yaml, for example:\n"
        "targets:\n  - name: default\n    provider: python"
    ) in ran.stderr


def test_an_unknown_target(project: Write) -> None:
    ran = evaluate(project("a.jsonl", [a_case(execution={"target": "defualt"}, evaluators=[HELLO])]), expect=2)
    assert "a.jsonl:1:1: unknown target 'defualt'" in ran.stderr
    assert "hint: did you mean 'default'?" in ran.stderr


def test_an_unknown_target_on_the_command_line_has_no_file_location(project: Write) -> None:
    ran = evaluate(project("a.jsonl", [a_case(evaluators=[HELLO])]), "--target", "else", expect=2)
    assert ran.stderr == "error: unknown target 'else': not in targets.yaml\nhint: available targets: default\n"


def test_an_unknown_id_suggests_a_similar_one(project: Write) -> None:
    path = project("a.jsonl", [a_case("france", evaluators=[HELLO]), a_case("norway", evaluators=[HELLO])])
    ran = evaluate(path, "--eval-id", "frnace", expect=2)
    assert ran.stderr == "error: no case with id 'frnace'\nhint: did you mean 'france'?\n"
    ran = evaluate(path, "--eval-id", "*.json", expect=2)
    assert ran.stderr == "error: no case with id '*.json'\nhint: --eval-id takes an id or a glob\n"


def test_errors_in_yaml_have_a_column_and_a_relative_path(project: Write) -> None:
    path = project("evals/a.yaml", "evalcases:\n  - id: 5\n    input: x\n    expected_outcome: y\n")
    ran = evaluate(path, expect=2)
    assert ran.stderr == "error: evals/a.yaml:2:5: id: expected a string, got an integer\nhint: quote it\n"


def test_a_strict_run_reports_a_missing_id(project: Write) -> None:
    path = project("a.jsonl", [{"input": "x", "expected_outcome": "y"}])
    ran = evaluate(path, "--strict", expect=2)
    assert ran.stderr == "error: a.jsonl:1:1: Line 1: missing id\nhint: add an id, or run without --strict\n"


def test_a_missing_variable(project: Write) -> None:
    project("targets.yaml", "targets:\n  - {name: default, provider: mock, response: '${{ NOT_SET_AT_ALL }}'}\n")
    ran = evaluate(project("a.jsonl", [a_case(evaluators=[HELLO])]), expect=2)
    assert (
        "targets.yaml:2:37: target 'default': response: the environment variable NOT_SET_AT_ALL is not set"
        in ran.stderr
    )


def test_variables_are_filled_in_and_become_numbers(project: Write) -> None:
    project(
        "targets.yaml", "targets:\n  - {name: default, provider: mock, response: 'a${{ X }}b', delay_ms: '${{ D }}'}\n"
    )
    project(".env", "X=hello\nD=15\n")
    result = run_one(project("a.jsonl", [a_case(evaluators=[HELLO])]))
    assert result["candidate_answer"] == "ahellob"
    assert result["execution_metrics"]["duration_ms"] >= 14


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("- name: a\n", "expected an object, got an array"),
        (MOCK + "  - {name: default, provider: mock}\n", "duplicate name, first used on line 2"),
        ("targets:\n  - {name: default, provider: mok}\n", "unknown provider 'mok'"),
        ("targets:\n  - {name: default, provider: python, function: 'gone.py:f'}\n", "gone.py cannot be loaded"),
        (
            "targets:\n  - {name: default, provider: python, function: 'json:nothing'}\n",
            "json has no function 'nothing'",
        ),
        ("targets:\n  - {name: default, provider: python, function: 'json'}\n", "'json' does not name a function"),
    ],
)
def test_invalid_targets_files(project: Write, text: str, message: str) -> None:
    project("targets.yaml", text)
    ran = evaluate(project("a.jsonl", [a_case(evaluators=[HELLO])]), expect=2)
    assert message in ran.stderr
    assert not Path(".agentv").exists()


def test_an_eval_file_with_no_valid_case(project: Write) -> None:
    ran = evaluate(project("a.jsonl", [{"id": "a"}]), expect=2)
    assert "warning: " in ran.stderr
    assert "no valid case to run" in ran.stderr


def test_an_invalid_line_near_the_end_is_found_before_the_run(project: Write) -> None:
    good = "".join(json.dumps(a_case(str(n), evaluators=[HELLO])) + "\n" for n in range(2000))
    for last, message in (("{oops\n", "Line 2001: Invalid JSON"), (good.split("\n")[5] + "\n", "duplicate id '5'")):
        ran = evaluate(project("a.jsonl", good + last), "--out", "o.jsonl", expect=2)
        assert message in ran.stderr
        assert not Path("o.jsonl").exists()


def test_invalid_cases_are_in_the_ledger(project: Write) -> None:
    ran = evaluate(project("a.jsonl", [a_case("a", evaluators=[HELLO]), {"id": "b"}, {"id": "c"}]))
    assert "3 planned = 1 scored + 2 invalid" in ran.stdout
    assert ran.stderr.count("warning: ") == 3  # one for each, and one that sums up


def test_eval_ids(project: Write) -> None:
    path = project("a.jsonl", [a_case(name, evaluators=[HELLO]) for name in ("one", "two", "three", "[x]")])
    evaluate(path, "--eval-id", "t*", "--eval-id", "[x]", "--out", "o.jsonl")
    assert [result["eval_id"] for result in results("o.jsonl")] == ["two", "three", "[x]"]
    ran = evaluate(path, "--eval-id", "one", "--eval-id", "nope*", expect=2)
    assert "no case with id 'nope*'" in ran.stderr


def test_limit(project: Write) -> None:
    for name in ("a", "b"):
        project(f"evals/{name}.jsonl", [a_case(f"{name}{n}", evaluators=[HELLO]) for n in range(3)])
    evaluate("evals", "--limit", "4", "--out", "o.jsonl")
    assert [result["eval_id"] for result in results("o.jsonl")] == ["a0", "a1", "a2", "b0"]


ODD = [
    "a/b",
    "a_b",
    "a\\b",
    "..",
    "../../up",
    "x" * 300,
    "😀",
    "😁",
    "a b",
    "a:b",
    ".hidden",
    "CON",
    "a_b-0123456789abcdef",
]


def test_names_of_dumps_are_safe_and_never_shared(project: Write, tmp_path: Path) -> None:
    path = project("a.jsonl", [a_case(name, evaluators=[HELLO]) for name in ODD])
    before = {file for file in tmp_path.rglob("*") if ".agentv" not in file.parts}
    evaluate(path, "--dump-prompts", "--dump-traces")
    assert {file for file in tmp_path.rglob("*") if ".agentv" not in file.parts} == before
    for folder in ("prompts", "traces"):
        dumped = [json.loads(file.read_text())["eval_id"] for file in Path(".agentv", folder).iterdir()]
        assert sorted(dumped) == sorted(ODD)


def test_the_same_id_in_two_files_has_two_dumps(project: Write) -> None:
    project("evals/a.jsonl", [a_case("same", evaluators=[HELLO])])
    project("evals/b.jsonl", [a_case("same", evaluators=[HELLO])])
    evaluate("evals", "--dump-prompts")
    assert len(list(Path(".agentv/prompts").iterdir())) == 2


def test_an_unreadable_dotenv(project: Write) -> None:
    path = project("a.jsonl", [a_case(evaluators=[HELLO])])
    project(".env", b"KEY=\xff\xfe\n")
    ran = evaluate(path, expect=2)
    assert ".env: cannot be read: not UTF-8 text" in ran.stderr


def test_a_dotenv_without_permission(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentv import AgentvError
    from agentv.targets.dotenv import load_env

    path = project(".env", "A=b\n")
    path.chmod(0)
    monkeypatch.setattr("os.getcwd", lambda: str(path.parent))
    for parent in path.parents:
        if parent.is_relative_to(tempfile.gettempdir()) and str(parent) != tempfile.gettempdir():
            parent.chmod(0o755)
    with as_nobody(), pytest.raises(AgentvError, match="cannot be read: Permission denied"):
        load_env([path.parent], {})


def test_a_folder_named_dotenv_is_ignored(project: Write) -> None:
    project(".env/bin/python", "")
    assert run_one(project("a.jsonl", [a_case(evaluators=[HELLO])]))["score"] == 1.0


@pytest.mark.parametrize("path", ["a.yaml", "*.yaml"])
def test_a_sidecar_alone_is_nothing_to_run(project: Write, path: str) -> None:
    project("a.jsonl", [a_case(evaluators=[HELLO])])
    project("a.yaml", "dataset: x\n")
    ran = evaluate(path, expect=2)
    assert f"error: no eval file matches {path!r}" in ran.stderr
    assert (
        "hint: eval files end in .yaml, .yml, .jsonl; a sidecar is not an eval file, but extends a .jsonl file"
        in ran.stderr
    )


@pytest.mark.parametrize(
    ("evaluator", "message"),
    [
        ({"type": "contians", "value": "x"}, "evaluators[0]: unknown evaluator type 'contians'"),
        ({"value": "x"}, "evaluators[0]: missing type"),
        ({"type": "contains"}, "evaluator 'contains' has no 'value', and the case has no reference answer"),
        ({"type": "contains", "value": "x", "wieght": 2}, "evaluators[0].wieght: unknown field"),
        ({"type": "contains", "value": "x", "weight": -1}, "evaluators[0].weight: must be at least 0, got -1"),
        ({"type": "contains", "value": "x", "weight": "2"}, "evaluators[0].weight: expected a number, got a string"),
        ({"type": "contains", "value": []}, "evaluators[0].value: must not be empty"),
    ],
)
def test_invalid_evaluators_are_errors_before_the_run(project: Write, evaluator: object, message: str) -> None:
    ran = evaluate(project("a.jsonl", [a_case("x", evaluators=[evaluator])]), expect=2)
    assert re.search(rf"a\.jsonl:1:\d+: case 'x': {re.escape(message)}", ran.stderr)


def test_a_case_without_evaluators_and_judge(project: Write) -> None:
    ran = evaluate(project("a.jsonl", [a_case()]), expect=2)
    assert "'test-1': no evaluators are set, and the default evaluator, llm_judge, needs a judge" in ran.stderr
    assert (
        "hint: add evaluators to the case, such as {type: contains, value: TEXT}, or set judge_target in the target"
        in ran.stderr
    )


def test_an_attachment_deleted_during_the_run_is_an_error_for_its_case(project: Write) -> None:
    attached = [{"role": "user", "content": [{"type": "file", "value": "lost.txt"}]}]
    project("lost.txt", "here for now")
    project("targets.yaml", "targets: [{name: default, provider: cli, command_template: 'rm -f lost.txt; echo hello'}]")
    path = project(
        "a.jsonl", [a_case("a", evaluators=[HELLO]), a_case("b", input_messages=attached, evaluators=[HELLO])]
    )
    evaluate(path, "--out", "o.jsonl", expect=1)
    first, second = results("o.jsonl")
    assert first["score"] == 1.0
    assert second["error"].startswith(f"{path}:2: no such file: lost.txt (searched ")


@pytest.mark.parametrize(
    "flag", [["--fail-under", "2"], ["--agent-timeout", "0"], ["--max-retries", "-1"], ["--limit", "0"], ["--nonsense"]]
)
def test_invalid_flags(project: Write, flag: list[str]) -> None:
    ran = evaluate(project("a.jsonl", [a_case(evaluators=[HELLO])]), *flag, expect=2)
    assert "error: " in ran.stderr


def test_fail_under(project: Write) -> None:
    path = project(
        "a.jsonl", [a_case("a", evaluators=[HELLO]), a_case("b", evaluators=[{"type": "equals", "value": "x"}])]
    )
    evaluate(path, "--fail-under", "0.5")
    ran = evaluate(path, "--fail-under", "0.51", expect=1)
    assert "error: --fail-under 0.51: the mean is 0.500; lowest: " in ran.stderr


def test_help_lists_every_option() -> None:
    text = agentv("eval", "--help").stdout
    for option in (
        (
            "--target NAME|--targets PATH|--eval-id|--workers|--out|--output-format|--dry-run|--dry-run-delay|"
            "--dry-run-delay-min|--dry-run-delay-max|--dump-prompts|--dump-traces|--include-trace|--agent-timeout|"
            "--max-retries|--resume|--fail-under|--limit|--quiet|--verbose"
        )
        .replace(" NAME", "")
        .replace(" PATH", "")
        .split("|")
    ):
        assert f"{option} " in text or f"{option}\n" in text
    assert text.replace("agentv eval", "agentv run") == agentv("run", "--help").stdout.replace(
        "agentv eval", "agentv run"
    )


def test_an_invalid_evaluator_of_a_file_is_reported_once(project: Write) -> None:
    project("a.yaml", "evaluators: [{type: contians}]\n")
    ran = evaluate(project("a.jsonl", [a_case(str(n)) for n in range(500)]), expect=2)
    assert ran.stderr.count("error: ") == 1


def test_planning_stops_after_many_errors(project: Write) -> None:
    ran = evaluate(project("a.jsonl", [a_case(str(n), evaluators=[{"type": f"x{n}"}]) for n in range(500)]), expect=2)
    assert ran.stderr.count("error: ") == 20


def test_control_codes_do_not_reach_the_terminal(project: Write) -> None:
    project("agent.py", "def answer(question):\n    raise ValueError('\\x1b[2J gone \\x07')\n")
    project("targets.yaml", "targets:\n  - {name: default, provider: python, function: 'agent.py:answer'}\n")
    ran = evaluate(project("a.jsonl", [a_case("a\x1b[31m\nFAKE", evaluators=[HELLO])]), "--max-retries", "1", expect=1)
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "\x07" not in ran.stdout + ran.stderr
    assert "\nFAKE" not in ran.stdout + ran.stderr


def test_huge_weights(project: Write) -> None:
    checks = [
        {"type": "contains", "value": "hello", "weight": 1e308},
        {"type": "contains", "value": "x", "weight": 1e308},
    ]
    assert run_one(project("a.jsonl", [a_case(evaluators=checks)]))["score"] == 0.5


def test_a_dry_run_of_an_unknown_target(project: Write) -> None:
    project("targets.yaml", "targets:\n  - {name: default, provider: nope}\n")
    ran = evaluate(project("a.jsonl", [a_case()]), "--dry-run")
    assert "warning: " in ran.stderr
    assert "unknown provider 'nope'" in ran.stderr


@pytest.mark.parametrize(
    "args", [["--workers", "4", "--dump-prompts", "evals/"], ["--dump-prompts", "evals", "--target", "default"]]
)
def test_a_folder_of_evals_after_dump_prompts(project: Write, args: list[str]) -> None:
    project("evals/a.jsonl", [a_case("x", evaluators=[HELLO])])
    evaluate(*args)
    assert Path(".agentv/prompts/x.json").exists()


def test_only_selected_cases_are_planned(project: Write) -> None:
    path = project("a.jsonl", [a_case("a", evaluators=[HELLO]), {"id": "broken"}])
    for flags in (["--eval-id", "a"], ["--limit", "1"]):
        assert "1 planned = 1 scored" in evaluate(path, *flags).stdout


@pytest.mark.parametrize("flag", ["--agent-timeout", "--dry-run-delay"])
def test_invalid_numbers(project: Write, flag: str) -> None:
    ran = evaluate(project("a.jsonl", [a_case(evaluators=[HELLO])]), flag, "nan", expect=2)
    assert "'nan' is not a finite number" in ran.stderr or "nan is not in the range" in ran.stderr


def test_unusual_files_are_reported_without_crashing(project: Write) -> None:
    path = project("a.jsonl", [a_case(evaluators=[HELLO])])
    project("targets.yaml", "targets:\n  - {name: [a], provider: mock}\n")
    assert "name: expected a string, got an array" in evaluate(path, expect=2).stderr
    project("targets.yaml", "targets: {}\n")
    ran = evaluate(path, expect=2)
    assert ran.stderr.count("error: ") == 1
    project("targets.yaml", MOCK)
    project(".env", "A=\0\n")
    assert ".env: cannot be read: contains a NUL character" in evaluate(path, expect=2).stderr
