"""Every output explains why a case does not pass."""

import json
import sys

from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import HELLO, evaluate, results, run_one

CHECKS = "def almost(answer): return 0.7\ndef low(answer): return 0.2\n"
ALMOST = {"type": "python", "name": "almost", "function": "checks.py:almost"}


def write_project(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    write("checks.py", CHECKS)


def test_pass_all_names_a_failed_check_without_misses(write: Write) -> None:
    write_project(write)
    write("cases.jsonl", [a_case("a", evaluators=[HELLO, ALMOST], **{"pass": "all"})])
    ran = agentv("eval", "cases.jsonl", "--out", "out.jsonl")
    assert "- almost is 'borderline' (0.70): 'pass: all' needs 'pass'" in flat(ran.stdout)
    shown = agentv("show", "out.jsonl").stdout
    assert "  verdict     - almost is 'borderline' (0.70): 'pass: all' needs 'pass'\n" in shown


def test_pass_all_adds_nothing_to_checks_that_have_a_miss(write: Write) -> None:
    write_project(write)
    missing = {"type": "contains", "name": "bye", "value": "bye"}
    write("cases.jsonl", [a_case("a", evaluators=[HELLO, missing], **{"pass": "all"})])
    assert run_one("cases.jsonl")["misses"] == ["does not contain 'bye'"]


def test_the_aggregator_all_names_a_failed_member_without_misses(write: Write) -> None:
    write_project(write)
    composite = {"type": "composite", "name": "c", "aggregator": {"type": "all"}, "evaluators": [HELLO, ALMOST]}
    write("cases.jsonl", [a_case("a", evaluators=[composite])])
    assert run_one("cases.jsonl")["misses"] == ["[almost] is 'borderline' (0.70): 'all' needs 'pass'"]


def test_show_explains_a_case_without_a_judgement(write: Write) -> None:
    write_project(write)
    write("cases.jsonl", [a_case("a", evaluators=[{**HELLO, "weight": 0}])])
    warning = "warning: case 'a' cannot be judged: all its evaluators have weight 0, and none is required"
    assert warning in agentv("validate", "cases.jsonl").stdout
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert "case 'a' cannot be judged: all its evaluators have weight 0" in ran.stderr
    shown = agentv("show", "out.jsonl").stdout
    assert (
        "  verdict     - not judged: all evaluators that apply to this case have weight 0, and no evaluator is required"
        in shown
    )


def test_the_mean_names_only_cases_below_it(write: Write) -> None:
    write_project(write)
    low = {"type": "python", "name": "low", "function": "checks.py:low"}
    write("cases.jsonl", [a_case("good", evaluators=[HELLO]), a_case("bad", evaluators=[low])])
    ran = agentv("eval", "cases.jsonl", "--fail-under", "0.9")
    assert "error: --fail-under 0.9: the mean is 0.600; lowest: bad 0.200\n" in ran.stderr


def test_cases_that_were_not_judged_name_the_command_that_judges_them(write: Write) -> None:
    targets = [
        {"name": "default", "provider": "mock", "response": "hello"},
        {"name": "judge", "provider": "mock", "response": "Sorry, I am down."},
    ]
    write("targets.yaml", json.dumps({"targets": targets}))
    judge = {"type": "llm_judge", "judge_target": "judge"}
    write("my cases.jsonl", [a_case("a", evaluators=[HELLO, judge])])
    ran = agentv("eval", "my cases.jsonl", "--out", "out.jsonl")
    command = "agentv grade out.jsonl 'my cases.jsonl' --only judge-failed"
    assert f"error: 1 case was not judged; judge again with: {command}\n" in ran.stderr
    assert "mean 0.500" in ran.stdout
    assert "in 1 result not judged, evaluators that could not judge count as 0 (the mean could be up to 1.000)" in flat(
        ran.stdout
    )
    targets[1]["response"] = '{"score": 1}'
    write("targets.yaml", json.dumps({"targets": targets}))
    graded = agentv("grade", "out.jsonl", "my cases.jsonl", "--only", "judge-failed", "--out", "graded.jsonl")
    assert graded.returncode == 0
    assert results("graded.jsonl")[0]["verdict"] == "pass"


def test_the_command_that_judges_cases_again_names_the_targets_file_of_the_run(write: Write) -> None:
    targets = [
        {"name": "default", "provider": "mock", "response": "hello"},
        {"name": "judge", "provider": "mock", "response": "Sorry, I am down."},
    ]
    write("my targets/targets.yaml", json.dumps({"targets": targets}))
    write("cases.jsonl", [a_case("a", evaluators=[{"type": "llm_judge", "judge_target": "judge"}])])
    ran = agentv("eval", "cases.jsonl", "--targets", "my targets", "--out", "out.jsonl")
    command = "agentv grade out.jsonl cases.jsonl --targets 'my targets' --only judge-failed"
    assert f"error: 1 case was not judged; judge again with: {command}\n" in ran.stderr


def test_the_highest_possible_mean_keeps_what_the_other_evaluators_found(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: python, function: 'agent.py:answer'}]\n")
    write(
        "agent.py", "def answer(eval_id):\n    if eval_id == 'error':\n        raise OSError('down')\n    return 'no'\n"
    )
    write("checks.py", "def broken(answer):\n    raise ValueError('down')\n")
    broken = {"type": "python", "name": "broken", "function": "checks.py:broken"}
    informative = {**broken, "name": "informative", "weight": 0}
    evaluators = [{**HELLO, "weight": 1.5e308}, {**broken, "weight": 0.5e308}, informative]
    write("cases.jsonl", [a_case("a", evaluators=evaluators), a_case("b", evaluators=evaluators)])
    in_both = "in 2 results not judged, evaluators that could not judge count as 0 (the mean could be up to 0.250)"
    assert in_both in flat(agentv("eval", "cases.jsonl", "--out", "out.jsonl").stdout)
    assert in_both in flat(agentv("eval", "cases.jsonl", "--out", "out.jsonl", "--resume").stdout)
    write("cases.jsonl", [a_case("error", evaluators=evaluators), a_case("b", evaluators=evaluators)])
    printed = flat(agentv("eval", "cases.jsonl", "--out", "out.jsonl").stdout)
    assert (
        "1 result without a score counts as 0; in 1 result not judged, evaluators that could not judge count as 0"
        in printed
    )
    assert "(the mean could be up to 0.625)" in printed


def test_an_informative_evaluator_is_not_the_reason_why_a_case_was_not_judged(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock, response: hello}]\n")
    write("checks.py", "def broken(answer):\n    raise ValueError('down')\ndef skips(answer):\n    return None\n")
    informative = {"type": "python", "name": "informative", "function": "checks.py:broken", "weight": 0}
    skips = {"type": "python", "name": "skips", "function": "checks.py:skips"}
    write("cases.jsonl", [a_case("a", evaluators=[informative, skips])])
    ran = agentv("eval", "cases.jsonl", "--out", "out.jsonl")
    assert "a: not judged: all evaluators that apply to this case have weight 0" in flat(ran.stdout)


def test_a_typo_in_a_common_setting_is_recognized(write: Write) -> None:
    write_project(write)
    typo = {"type": "python", "function": "checks.py:low", "requird": True}
    write("cases.jsonl", [a_case("a", evaluators=[typo, {**HELLO, "wieght": 2}])])
    ran = agentv("validate", "cases.jsonl")
    assert "evaluators[0].requird: unknown field (did you mean 'required'?)" in ran.stdout
    assert "evaluators[1].wieght: unknown field (did you mean 'weight'?)" in ran.stdout


def test_a_typo_in_a_setting_passed_to_a_script_is_a_warning(write: Write) -> None:
    write_project(write)
    write("judge.py", "print('{\"score\": 1}')\n")
    script = {"type": "code_judge", "script": [sys.executable, "judge.py"], "requird": True, "model": "x"}
    write("cases.jsonl", [a_case("a", evaluators=[script])])
    warning = "requird: passed on in 'config'"
    ran = agentv("validate", "cases.jsonl")
    assert f"warning: evaluators[0]: {warning} (did you mean 'required'?)" in ran.stdout
    assert ran.stdout.count("warning: ") == 1
    assert warning in agentv("eval", "cases.jsonl").stderr


def test_a_result_of_another_tool_with_an_error_has_not_passed(write: Write) -> None:
    write("results.jsonl", [{"eval_id": "a", "score": 1.0, "verdict": "pass", "error": "boom"}])
    exported = agentv("export", "results.jsonl", "--to", "csv").stdout
    assert exported.splitlines()[1].startswith("a,,,,1.0,fail,")


def test_a_gate_that_is_not_a_number(write: Write) -> None:
    write_project(write)
    write("cases.jsonl", [a_case("a", evaluators=[HELLO])])
    ran = agentv("eval", "cases.jsonl", "--min-pass-rate", "80%")
    assert ran.returncode == 2
    assert "error: invalid value for '--min-pass-rate': '80%' is not a number\n" in ran.stderr
