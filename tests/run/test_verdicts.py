"""Verdicts and gates, through the command line: required checks, pass rules, explicit fails and judge failures."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kits.model_servers import Reply, model_server
from tests.kits.project import Write, a_case, agentv, flat
from tests.kits.runs import HELLO, evaluate, results, run_one

ANSWER = "hello from default"
FUNCTIONS = """
from agentv.records import Score
def one(answer): return 1
def half(answer): return 0.5
def explicit_fail(answer): return Score(score=0, verdict="fail")
def perfect_but_fail(answer): return {"score": 1, "verdict": "fail"}
def low_but_pass(answer): return {"score": 0.1, "verdict": "pass"}
def none(answer): return None
def crash(answer): raise ValueError("boom")
def crash_if_no(answer):
    if "no" in answer: raise ValueError("boom")
    return 1
"""
HEAVY = {"type": "contains", "name": "heavy", "value": "hello", "weight": 99}
"""Makes the mean of a case at least 0.99."""
BYE = {"type": "contains", "name": "bye", "value": "bye"}


def python(function: str, **settings: Any) -> dict[str, Any]:
    return {"type": "python", "name": function, "function": f"checks.py:{function}", **settings}


def project(write: Write, *evaluators: dict[str, Any], judge: str = "", rule: Any = None) -> None:
    """One case in `cases.jsonl`; a target `judge` that always replies with a text."""
    targets = [
        {"name": "default", "provider": "mock", "response": ANSWER},
        {"name": "judge", "provider": "mock", "response": judge},
    ]
    write("targets.yaml", json.dumps({"targets": targets}))
    write("checks.py", FUNCTIONS)
    case = a_case("a", evaluators=list(evaluators))
    if rule is not None:
        case["pass"] = rule
    write("cases.jsonl", [case])


def verdict(write: Write, *evaluators: dict[str, Any], judge: str = "", rule: Any = None) -> tuple[float, str]:
    """The score and the verdict of one case."""
    project(write, *evaluators, judge=judge, rule=rule)
    result = run_one("cases.jsonl")
    return result["score"], result["verdict"]


# A judge failure is never a pass


DOWN = "Sorry, I am down."
FOUR_CHECKS = [{"type": "contains", "name": f"c{number}", "value": "hello"} for number in range(4)]
JUDGE = {"type": "llm_judge", "judge_target": "judge"}


def test_a_judge_that_gives_no_judgement_never_passes(write: Write) -> None:
    project(write, *FOUR_CHECKS, JUDGE, judge=DOWN)
    args = ("--fail-under", "0.8", "--junit", "junit.xml", "--report", "report.html")
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", *args, expect=1)
    (result,) = results("out.jsonl")
    assert (result["score"], result["verdict"], result["failure"]) == (0.8, "fail", "judge")
    assert "  1 planned = 1 judge failure\n" in ran.stdout
    assert "  pass 0/1 " in ran.stdout
    assert (
        "NOT JUDGED (1)\n  a: llm_judge: the judge returned no usable judgement in 3\n    of 3 attempts" in ran.stdout
    )
    assert DOWN in ran.stdout
    assert (
        "error: 1 case was not judged; judge again with: agentv grade out.jsonl cases.jsonl --only judge-failed\n"
        in ran.stderr
    )
    junit = Path("junit.xml").read_text()
    assert 'tests="1" failures="0" errors="1"' in junit
    assert '<error message="score 0.800, a judge failed" type="judge">' in junit
    (record,) = (json.loads(path.read_text()) for path in Path(".agentv/runs").glob("*.json"))
    assert (record["summary"]["pass_rate"], record["exit_code"]) == (0.0, 1)
    assert record["ledger"]["judge_failures"] == 1


def test_a_score_off_the_scale_is_not_called_unparsable(write: Write) -> None:
    project(write, *FOUR_CHECKS, JUDGE, judge='{"score": 7}')
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", "--report", "report.html", expect=1)
    assert "  llm_judge: 1 answer, 1 off the scale\n" in ran.stdout
    assert "unparsable" not in ran.stdout
    assert "1 off the scale" in Path("report.html").read_text()


def test_a_judge_that_cannot_be_called_is_not_called_unparsable(write: Write) -> None:
    with model_server(lambda asked: Reply(500, {"error": {"message": "overloaded"}})) as server:
        project(write)
        remote = {"name": "remote", "provider": "http", "url": f"{server.url}/judge", "max_retries": 0}
        targets = json.loads(Path("targets.yaml").read_text())["targets"]
        write("targets.yaml", json.dumps({"targets": [*targets, remote]}))
        write(
            "cases.jsonl",
            [a_case(name, evaluators=[*FOUR_CHECKS, {**JUDGE, "judge_target": "remote"}]) for name in "ab"],
        )
        ran = evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert [(each["verdict"], each["failure"]) for each in results("out.jsonl")] == [("fail", "judge")] * 2
    assert "  llm_judge: 2 answers, 2 failed calls\n" in ran.stdout
    assert "unparsable" not in ran.stdout
    assert "in 3 of 3 attempts: status 500: overloaded" in ran.stdout
    assert "(first case: a)" in " ".join(ran.stdout.split())


def test_grading_with_a_judge_that_is_down_is_exit_code_1(write: Write) -> None:
    project(write, HELLO)
    evaluate("cases.jsonl", "--out", "old.jsonl")
    project(write, *FOUR_CHECKS, JUDGE, judge=DOWN)
    ran = agentv("grade", "old.jsonl", "cases.jsonl", "--out", "new.jsonl", "--min-pass-rate", "1")
    assert ran.returncode == 1
    assert "error: 1 case was not judged" in ran.stderr
    assert "error: --min-pass-rate 1: the pass rate is 0.000; not passed: a" in ran.stderr
    assert [(each["verdict"], each["failure"]) for each in results("new.jsonl")] == [("fail", "judge")]


def test_a_score_of_null_from_a_language_model_is_a_judge_failure(write: Write) -> None:
    project(write, *FOUR_CHECKS, JUDGE, judge='{"score": null}')
    result = run_one("cases.jsonl", expect=1)
    assert (result["verdict"], result["failure"]) == ("fail", "judge")
    assert "applicable" not in result["evaluator_results"][-1]
    assert "the score is null, which is not a number" in result["evaluator_results"][-1]["misses"][0]


def test_a_dry_run_has_no_judge_failures(write: Write) -> None:
    members = {"type": "composite", "evaluators": [JUDGE, {"type": "composite", "evaluators": [JUDGE]}]}
    project(write, {**JUDGE, "negate": True}, {**members, "negate": True, "name": "outer"}, judge=DOWN)
    result = run_one("cases.jsonl", "--dry-run")
    assert (result["score"], result["verdict"], "failure" in result) == (0.0, "fail", False)


# An explicit fail


RUBRIC_REPLY = json.dumps(
    {"checks": [{"id": "polite", "satisfied": True}, {"id": "cites", "satisfied": False, "reasoning": "no source"}]}
)
RUBRIC = {
    "type": "rubric",
    "judge_target": "judge",
    "rubrics": [
        {"id": "polite", "description": "Is polite"},
        {"id": "cites", "description": "Cites sources", "required": True, "weight": 0.01},
    ],
}


def test_a_missed_required_rubric_item_fails_the_case(write: Write) -> None:
    score, found = verdict(write, HEAVY, RUBRIC, judge=RUBRIC_REPLY)
    assert score > 0.99
    assert found == "fail"


@pytest.mark.parametrize(
    "evaluator",
    [
        python("explicit_fail"),
        python("perfect_but_fail"),
        python("explicit_fail", negate=True),
        {"type": "composite", "evaluators": [python("perfect_but_fail"), HELLO]},
        {"type": "composite", "negate": True, "evaluators": [python("perfect_but_fail"), HELLO]},
        {"type": "composite", "aggregator": {"type": "min"}, "evaluators": [python("perfect_but_fail", negate=True)]},
    ],
)
@pytest.mark.parametrize("rule", [0.5, "all"])
def test_an_explicit_fail_fails_the_case_regardless_of_the_score(write: Write, evaluator: Any, rule: Any) -> None:
    score, found = verdict(write, HEAVY, evaluator, rule=rule)
    assert score >= 0.99
    assert found == "fail"
    (result,) = results("out.jsonl")
    assert "failure" not in result
    assert "the evaluator returned the verdict 'fail'" in "".join(result["misses"])


def test_an_explicit_pass_is_the_verdict_of_the_evaluator_and_not_of_the_case(write: Write) -> None:
    low = python("low_but_pass")
    assert verdict(write, HEAVY, low | {"required": True}) == (0.991, "pass")
    assert verdict(write, HEAVY, low, rule="all") == (0.991, "pass")
    assert verdict(write, low) == (0.1, "fail")


# Required evaluators


def test_a_missed_required_evaluator_fails_the_case_and_is_named(write: Write) -> None:
    project(write, HEAVY, BYE | {"required": True}, python("half", required=0.6), python("one", required=1))
    args = ("--junit", "junit.xml", "--report", "report.html")
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", *args)
    (result,) = results("out.jsonl")
    assert result["score"] == pytest.approx((99 + 0.5 + 1) / 102)
    assert (result["verdict"], result["failed_required"]) == ("fail", ["bye", "half"])
    assert [part.get("required") for part in result["evaluator_results"]] == [None, True, 0.6, 1.0]
    assert "failed required checks: bye, half" in flat(ran.stdout)
    assert 'message="score 0.985, fail, failed required checks: bye, half"' in Path("junit.xml").read_text()
    shown = agentv("show", "out.jsonl").stdout
    assert "  required    failed: bye, half\n" in shown
    assert "  bye         0.000 fail, required\n" in shown
    assert "  half        0.500 fail, at least 0.6 required\n" in shown


def test_a_required_number_is_about_the_score_and_not_the_verdict(write: Write) -> None:
    assert verdict(write, HEAVY, python("half", required=0.5))[1] == "pass"
    assert verdict(write, HEAVY, python("low_but_pass", required=0.5))[1] == "fail"
    project(write, HEAVY, BYE | {"required": False})
    assert "failed_required" not in run_one("cases.jsonl")


def test_weight_0_is_informative_unless_it_is_required(write: Write) -> None:
    assert verdict(write, HELLO, BYE | {"weight": 0}) == (1.0, "pass")
    assert verdict(write, HELLO, python("explicit_fail", weight=0)) == (1.0, "pass")
    assert verdict(write, HELLO, python("half", weight=0), rule="all") == (1.0, "pass")
    assert verdict(write, HELLO, BYE | {"weight": 0, "required": True}) == (1.0, "fail")
    assert verdict(write, HELLO | {"weight": 0, "required": True}) == (1.0, "pass")
    assert verdict(write, BYE | {"weight": 0, "required": True}) == (0.0, "fail")


def test_a_required_evaluator_that_cannot_judge_is_a_judge_failure(write: Write) -> None:
    project(write, HELLO, python("crash", weight=0, required=True))
    result = run_one("cases.jsonl", expect=1)
    assert (result["score"], result["verdict"], result["failure"]) == (1.0, "fail", "judge")
    assert "failed_required" not in result


def test_only_evaluators_without_weight_do_not_judge(write: Write) -> None:
    project(write, HELLO | {"weight": 0})
    result = run_one("cases.jsonl", expect=1)
    assert (result["verdict"], result["failure"]) == ("fail", "judge")
    assert result["misses"] == [
        "not judged: all evaluators that apply to this case have weight 0, and no evaluator is required"
    ]


def test_required_is_not_passed_to_scripts(write: Write) -> None:
    code = "import json, sys; print(json.dumps({'score': 1, 'details': json.load(sys.stdin)['config']}))"
    project(write, {"type": "code_judge", "script": [sys.executable, "-c", code], "required": True, "own": 1})
    assert run_one("cases.jsonl")["evaluator_results"][0]["details"] == {"own": 1}


@pytest.mark.parametrize(("value", "shown"), [(0, "0"), (1.5, "1.5"), (-1, "-1"), ("yes", "'yes'"), (None, "null")])
def test_invalid_values_of_required(write: Write, value: Any, shown: str) -> None:
    project(write, HELLO | {"required": value})
    for command in ("eval", "validate"):
        ran = agentv(command, "cases.jsonl")
        assert ran.returncode != 0
        accepted = "expected true, false, or a number greater than 0 and at most 1"
        assert f"evaluators[0].required: {accepted}, got {shown}" in ran.stderr + ran.stdout


def test_a_member_of_a_composite_cannot_be_required(write: Write) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock}]\n")
    write(
        "cases.yaml",
        "evaluators:\n"
        "  - type: composite\n"
        "    evaluators:\n"
        "      - {type: is_json}\n"
        "      - {type: contains, value: a, required: 0.5}\n"
        "evalcases: [{id: a, expected_outcome: x, input: y}]\n",
    )
    ran = agentv("validate", "cases.yaml")
    assert ran.returncode == 1
    message = "evaluators[0].evaluators[1]: a member of a composite cannot be required"
    assert f"cases.yaml:5:36: error: {message} (set 'required' on the composite, or use" in ran.stdout
    assert agentv("eval", "cases.yaml").returncode == 2


# The pass rule


def test_all_evaluators_must_pass(write: Write) -> None:
    assert verdict(write, HEAVY, BYE) == (0.99, "pass")
    assert verdict(write, HEAVY, BYE, rule="all") == (0.99, "fail")
    assert verdict(write, HEAVY, HELLO, rule="all") == (1.0, "pass")
    assert verdict(write, python("half"), rule="all") == (0.5, "fail")


@pytest.mark.parametrize(("rule", "found"), [(0.5, "pass"), (0.51, "fail"), (1, "fail")])
def test_the_lowest_mean_that_passes(write: Write, rule: float, found: str) -> None:
    assert verdict(write, python("half"), rule=rule) == (0.5, found)


def test_borderline_is_below_the_lowest_mean_that_passes(write: Write) -> None:
    two_of_three = (HELLO, HELLO | {"name": "again"}, BYE)
    assert verdict(write, *two_of_three)[1] == "borderline"
    assert verdict(write, *two_of_three, rule=0.95)[1] == "borderline"
    assert verdict(write, *two_of_three, rule=0.65)[1] == "pass"
    assert verdict(write, *two_of_three, rule="all")[1] == "fail"


def test_a_case_overrides_the_pass_rule_of_its_file_or_sidecar(write: Write) -> None:
    write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "mock", "response": ANSWER}]}))
    checks = [HEAVY, BYE]
    cases = [a_case("file"), a_case("own") | {"pass": 0.9}]
    write("cases.yaml", json.dumps({"pass": "all", "evaluators": checks, "evalcases": cases}))
    write("lines.jsonl", cases)
    write("lines.yaml", json.dumps({"pass": "all", "evaluators": checks}))
    evaluate("cases.yaml", "lines.jsonl", "--out", "out.jsonl")
    found = [(each["dataset"], each["eval_id"], each["verdict"]) for each in results("out.jsonl")]
    assert sorted(found) == [
        ("cases", "file", "fail"),
        ("cases", "own", "pass"),
        ("lines", "file", "fail"),
        ("lines", "own", "pass"),
    ]


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (1.01, "1.01"), ("any", "'any'"), (True, "a boolean"), ([1], "an array")]
)
def test_invalid_pass_rules(write: Write, value: Any, shown: str) -> None:
    project(write, HELLO, rule=value)
    write("lines.jsonl", [a_case("a", evaluators=[HELLO])])
    write("lines.yaml", json.dumps({"pass": value}))
    message = f"pass: expected 'all' or a number greater than 0 and at most 1, got {shown}"
    assert message in agentv("validate", "cases.jsonl").stdout
    assert message in agentv("validate", "lines.yaml").stdout
    ran = agentv("eval", "lines.jsonl")
    assert ran.returncode == 2
    assert message in ran.stderr


# Aggregators of composites


@pytest.mark.parametrize(
    ("aggregator", "members", "score"),
    [
        ("all", [HELLO, python("one")], 1.0),
        ("all", [HELLO, python("half")], 0.0),
        ("all", [HELLO, python("low_but_pass")], 1.0),
        ("all", [HELLO, python("half", weight=0)], 1.0),
        ("all", [HELLO, python("none")], 1.0),
        ("min", [HELLO, python("half")], 0.5),
        ("min", [HELLO, BYE], 0.0),
        ("min", [HELLO, BYE | {"weight": 0}], 1.0),
        ("min", [python("half"), python("none")], 0.5),
        ("weighted_average", [HELLO, python("none")], 1.0),
    ],
)
def test_aggregators(write: Write, aggregator: str, members: list[dict[str, Any]], score: float) -> None:
    project(write, {"type": "composite", "aggregator": {"type": aggregator}, "evaluators": members})
    assert run_one("cases.jsonl")["score"] == score


@pytest.mark.parametrize("aggregator", ["all", "min", "weighted_average"])
def test_a_member_that_cannot_judge_makes_the_composite_a_judge_failure(write: Write, aggregator: str) -> None:
    members = [HELLO, python("crash")]
    project(write, HELLO, {"type": "composite", "aggregator": {"type": aggregator}, "evaluators": members})
    result = run_one("cases.jsonl", expect=1)
    assert (result["score"], result["verdict"], result["failure"]) == (0.5, "fail", "judge")


def test_a_composite_names_the_member_that_could_not_judge(write: Write) -> None:
    members = [HELLO, BYE, python("crash")]
    project(write, {"type": "composite", "name": "both", "evaluators": members})
    ran = agentv("eval", "cases.jsonl", "--quiet")
    assert "NOT JUDGED (1) a: both: [crash] the evaluator failed: checks.py:" in flat(ran.stdout)


def test_a_judge_that_aggregates_is_not_asked_if_a_member_could_not_judge(write: Write) -> None:
    aggregator = {"type": "llm_judge", "judge_target": "judge"}
    composite = {"type": "composite", "name": "both", "aggregator": aggregator}
    good = composite | {"name": "good", "evaluators": [HELLO]}
    broken = composite | {"evaluators": [HELLO, python("crash")]}
    project(write, good, broken, judge='{"score": 0.9}')
    ran = agentv("eval", "cases.jsonl", "--quiet", "--out", "out.jsonl")
    (result,) = results("out.jsonl")
    assert result["judge_metrics"]["judge"]["calls"] == 1
    assert result["evaluator_results"][1]["failed"] is True
    assert "NOT JUDGED (1) a: both: [crash] the evaluator failed:" in flat(ran.stdout)
    assert "good: 1 answer, all parsed" in ran.stdout
    assert "unparsable" not in ran.stdout
    assert "untrusted" not in ran.stdout


def test_a_composite_without_a_member_that_applies_does_not_apply(write: Write) -> None:
    project(write, HELLO, {"type": "composite", "evaluators": [python("none")]})
    result = run_one("cases.jsonl")
    assert (result["score"], result["verdict"]) == (1.0, "pass")
    assert result["evaluator_results"][1]["applicable"] is False


# Scores that are not scores


def test_an_evaluator_that_does_not_apply_is_excluded(write: Write) -> None:
    script = {"type": "code_judge", "name": "script", "script": 'echo \'{"score": null, "reasoning": "no tables"}\''}
    project(write, HELLO, python("none", required=True, weight=9), script, rule="all")
    ran = evaluate("cases.jsonl", "--out", "out.jsonl")
    (result,) = results("out.jsonl")
    assert (result["score"], result["verdict"]) == (1.0, "pass")
    assert "failure" not in result
    assert "failed_required" not in result
    for part in result["evaluator_results"][1:]:
        assert (part["score"], part["applicable"], part["verdict"]) == (None, False, None)
    assert "EVALUATORS" not in ran.stdout  # only one has figures
    shown = agentv("show", "out.jsonl").stdout
    assert "  none        does not apply to this case\n" in shown
    assert "  script      does not apply to this case\n              no tables\n" in shown


def test_a_case_that_no_evaluator_applies_to_is_not_judged(write: Write) -> None:
    project(write, python("none"), python("none", required=True))
    result = run_one("cases.jsonl", expect=1)
    assert (result["score"], result["verdict"], result["failure"]) == (0.0, "fail", "judge")
    assert result["misses"] == ["not judged: no evaluator applies to this case"]


@pytest.mark.parametrize(
    ("evaluator", "words"),
    [
        ({"type": "code_judge", "script": "echo 87"}, "the script wrote no JSON object: 87"),
        ({"type": "code_judge", "script": "echo '{\"score\": 87}'"}, "the score is 87, which is not between 0 and 1"),
        ({"type": "code_judge", "script": "echo '{\"score\": -0.1}'"}, "the score is -0.1, which is not between"),
        ({"type": "code_judge", "script": 'echo \'{"score": "1"}\''}, "the score is '1', which is not a number"),
        (JUDGE, "the score is 3, which is not between 0 and 1"),
    ],
)
def test_a_score_off_the_scale_is_quoted_and_never_clamped(write: Write, evaluator: Any, words: str) -> None:
    project(write, HELLO, evaluator, judge='{"score": 3}')
    result = run_one("cases.jsonl", expect=1)
    assert (result["score"], result["verdict"], result["failure"]) == (0.5, "fail", "judge")
    assert words in result["evaluator_results"][1]["misses"][0]


def test_the_summary_reports_a_judge_with_another_scale(write: Write) -> None:
    code = "import json, sys; print(json.dumps({'score': int(json.load(sys.stdin)['question'])}))"
    judge = {"type": "code_judge", "name": "grader", "script": [sys.executable, "-c", code]}
    composite = {"type": "composite", "name": "both", "evaluators": [judge, HELLO]}
    project(write)
    cases = [a_case(f"c{score}", input=str(score), evaluators=[judge, composite]) for score in (1, 7, 10, 8)]
    for case in cases:
        del case["input_messages"]
    write("cases.jsonl", cases)
    ran = evaluate("cases.jsonl", "--out", "out.jsonl", expect=1)
    assert "  grader: 3 scores outside the range 0 to 1, for example 10\n" in ran.stdout
    assert "  both: 3 scores outside the range 0 to 1, for example 10\n" in ran.stdout


def test_numpy_scalars_are_scores(write: Write) -> None:
    pytest.importorskip("numpy")
    write(
        "arrays.py",
        "import numpy as np\n"
        "def a_bool(answer): return np.bool_(True)\n"
        "def a_float(answer): return np.float64(0.5)\n"
        "def a_mapping(answer): return {'score': np.float32(0.5)}\n"
        "def a_single(answer): return np.array(1.0)\n",
    )
    names = ("a_bool", "a_float", "a_mapping", "a_single")
    project(write, *({"type": "python", "name": name, "function": f"arrays.py:{name}"} for name in names))
    result = run_one("cases.jsonl")
    assert [part["score"] for part in result["evaluator_results"]] == [1.0, 0.5, 0.5, 1.0]


# Informative evaluators that cannot judge


def test_a_diagnostic_that_crashes_affects_neither_the_summary_nor_a_comparison(write: Write) -> None:
    write("checks.py", FUNCTIONS)
    diagnostic = python("crash_if_no", weight=0)
    write("cases.jsonl", [a_case(name, evaluators=[HELLO, diagnostic]) for name in "abc"])
    for name, answer in (("old", "hello, yes"), ("new", "hello, no")):
        write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "mock", "response": answer}]}))
        ran = evaluate("cases.jsonl", "--out", f"{name}.jsonl", "--min-pass-rate", "1")
    assert "  3 planned = 3 scored\n" in ran.stdout
    assert "the mean could be" not in ran.stdout
    assert "  pass 3/3 " in ran.stdout
    assert "crash_if_no  0         0/0   3" in ran.stdout
    for result in results("new.jsonl"):
        assert (result["score"], result["verdict"], "failure" in result) == (1.0, "pass", False)
        assert result["evaluator_results"][1]["failed"] is True
    compared = json.loads(agentv("compare", "old.jsonl", "new.jsonl", "--format", "json").stdout)
    assert compared["summary"]["total"] == 3


# Gates


def three_cases(write: Write) -> None:
    write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "mock", "response": ANSWER}]}))
    write(
        "cases.jsonl", [a_case("good", evaluators=[HELLO]), *(a_case(f"bad-{n}", evaluators=[BYE]) for n in range(7))]
    )


@pytest.mark.parametrize("command", ["eval", "grade"])
def test_each_missed_gate_has_a_line_that_names_the_cases(write: Write, command: str) -> None:
    three_cases(write)
    evaluate("cases.jsonl", "--out", "old.jsonl")
    paths = ["old.jsonl", "cases.jsonl"] if command == "grade" else ["cases.jsonl"]
    args = ("--out", "new.jsonl", "--fail-under", "0.5", "--min-pass-rate", "0.2")
    ran = agentv(command, *paths, *args)
    assert ran.returncode == 1
    assert [line for line in ran.stderr.splitlines() if line.startswith("error: ")] == [
        "error: --fail-under 0.5: the mean is 0.125; lowest: bad-0 0.000, bad-1 0.000, bad-2 0.000",
        "error: --min-pass-rate 0.2: the pass rate is 0.125; not passed: bad-0, bad-1, bad-2, bad-3, bad-4 and 2 more",
    ]
    assert (
        agentv(command, *paths, "--out", "new.jsonl", "--fail-under", "0.125", "--min-pass-rate", "0.125").returncode
        == 0
    )


def test_a_mean_that_is_rounded_reaches_its_gate_and_one_just_below_shows_it(write: Write) -> None:
    write("checks.py", "def check(question): return float(question)\n")
    write("targets.yaml", "targets: [{name: default, provider: mock}]\n")
    check = {"type": "python", "function": "checks.py:check"}

    def save(*scores: str) -> None:
        messages = [[{"role": "user", "content": score}] for score in scores]
        write("cases.jsonl", [a_case(each[0]["content"], input_messages=each, evaluators=[check]) for each in messages])

    save("0.7", "0.8", "0.9")
    evaluate("cases.jsonl", "--fail-under", "0.8")
    save("0.79999")
    ran = evaluate("cases.jsonl", "--fail-under", "0.8", expect=1)
    assert "error: --fail-under 0.8: the mean is 0.799990; lowest: 0.79999 0.800\n" in ran.stderr


@pytest.mark.parametrize("gate", ["--fail-under", "--min-pass-rate"])
@pytest.mark.parametrize("value", ["-0.1", "1.1", "half"])
def test_gates_are_between_0_and_1(write: Write, gate: str, value: str) -> None:
    three_cases(write)
    ran = agentv("eval", "cases.jsonl", gate, value)
    assert ran.returncode == 2
    assert f"'{gate}'" in ran.stderr
    assert value in ran.stderr


def test_the_pass_rate_with_trials_is_the_mean_of_the_shares_of_passed_trials(write: Write) -> None:
    write(
        "agent.py",
        "import pathlib\n"
        "def answer(question):\n"
        "    if question != 'flaky': return question\n"
        "    calls = pathlib.Path('calls')\n"
        "    calls.write_text(calls.read_text() + 'x' if calls.exists() else 'x')\n"
        "    return 'hello' if len(calls.read_text()) % 2 else 'bye'\n",
    )
    write("targets.yaml", "targets: [{name: default, provider: python, function: agent.py:answer}]\n")
    questions = {"always": "hello", "flaky": "flaky", "never": "bye"}
    cases = []
    for name, question in questions.items():
        message = {"role": "user", "content": question}
        cases.append(a_case(name, input_messages=[message], evaluators=[HELLO]))
    write("cases.jsonl", cases)
    args = ("cases.jsonl", "--trials", "2", "--out", "out.jsonl", "--min-pass-rate")
    ran = agentv("eval", *args, "0.51")
    assert ran.returncode == 1
    assert "error: --min-pass-rate 0.51: the pass rate is 0.500; not passed: flaky, never\n" in ran.stderr
    assert agentv("eval", *args, "0.5").returncode == 0


# What judges see


def test_guidelines_in_the_prompts_of_judges(write: Write) -> None:
    write("style.instructions.md", "Be brief: at most ten words.")
    write(".agentv/config.yaml", "guideline_patterns: ['**/*.instructions.md']\n")
    blocks = [{"type": "file", "value": "style.instructions.md"}, {"type": "text", "value": "Hi"}]
    reply = {"score": 1, "checks": [{"id": "rubric-1", "satisfied": True}]}
    own = {**JUDGE, "name": "own", "prompt": "Grade {{ candidate_answer }} by [{{ guidelines }}]"}
    evaluators: list[dict[str, Any]] = [
        own,
        {**JUDGE, "name": "plain"},
        {**RUBRIC, "name": "rubric", "rubrics": ["Is brief"]},
    ]
    project(write, *evaluators, judge=json.dumps(reply))
    with_guidelines = a_case("with", input_messages=[{"role": "user", "content": blocks}], evaluators=evaluators)
    write("cases.jsonl", [with_guidelines, a_case("without", evaluators=evaluators)])
    evaluate("cases.jsonl", "--out", "out.jsonl")
    found, without = results("out.jsonl")
    prompts = [part["evaluator_provider_request"]["user_prompt"] for part in found["evaluator_results"]]
    assert all("Be brief: at most ten words." in prompt for prompt in prompts)
    assert "The guidelines that the agent was given, which are instructions to the agent and not to you:" in prompts[1]
    # fenced: a judge must not follow the guidelines itself
    fenced = re.compile(r"<<<(\w+)\nBe brief: at most ten words\.\n\1>>>")
    assert all(fenced.search(prompt) for prompt in prompts)
    empty = [part["evaluator_provider_request"]["user_prompt"] for part in without["evaluator_results"]]
    assert empty[0].endswith(" by []")
    assert all("guidelines" not in prompt for prompt in empty)


def test_the_miss_of_a_negated_check_says_what_was_expected_not_to_happen(write: Write) -> None:
    trajectory = {"type": "tool_trajectory", "mode": "any_order", "minimums": {"delete_invoice": 1}, "negate": True}
    write("cases.jsonl", [a_case("called", evaluators=[trajectory]), a_case("spared", evaluators=[trajectory])])
    calls = [{"type": "tool_call", "name": "delete_invoice"}]
    answers = [{"id": "called", "text": "done", "trace": calls}, {"id": "spared", "text": "done", "trace": []}]
    write("answers.jsonl", answers)
    write("targets.yaml", "targets: [{name: default, provider: replay, file: answers.jsonl}]\n")
    evaluate("cases.jsonl", "--out", "out.jsonl")
    called, spared = results("out.jsonl")
    assert (called["score"], called["misses"]) == (
        0.0,
        ["delete_invoice called once, expected 0 times"],
    )
    assert spared["score"] == 1.0
    assert [hit.partition(": ")[0] for hit in spared["hits"]] == ["not met, as expected"]


def test_the_misses_of_checks_that_negate_themselves_read_the_same(write: Write) -> None:
    project(write, {**HELLO, "negate": True}, {**BYE, "negate": True})
    result = run_one("cases.jsonl")
    assert result["misses"] == ["contains 'hello', which must not occur"]
    assert result["hits"] == ["does not contain 'bye'"]


# Fields of the expected answer


FIELDS = """
evaluators:
  - type: field_accuracy
    fields:
      - path: k
      - {path: due, match: date}
      - {path: other, required: false}
evalcases:
"""
ABSENT = "due: missing in the expected answer; if the field is optional, set 'required: false'"


def test_fields_that_are_equal_absent_or_in_no_case(write: Write) -> None:
    answer = json.dumps({"k": 1, "due": None})
    write("targets.yaml", json.dumps({"targets": [{"name": "default", "provider": "mock", "response": answer}]}))
    cases = [
        a_case("equal", expected_output={"k": 1, "due": None}),
        a_case("absent", expected_output={"k": 1}),
    ]
    write("cases.yaml", FIELDS + "".join(f"  - {json.dumps(case)}\n" for case in cases))
    evaluate("cases.yaml", "--out", "out.jsonl", expect=1)
    equal, absent = results("out.jsonl")
    assert (equal["score"], equal["verdict"]) == (1.0, "pass")
    assert (absent["verdict"], absent["failure"], absent["misses"]) == ("fail", "judge", [ABSENT])
    validated = agentv("validate", "cases.yaml")
    assert validated.returncode == 1
    assert [line for line in validated.stdout.splitlines() if "error:" in line] == [
        "cases.yaml:7:10: error: evaluators[0]: no case of this evaluator has 'other' in its expected answer "
        "(correct the path, or remove the field)"
    ]


def test_optional_fields_that_a_case_lacks_do_not_apply(write: Write) -> None:
    project(write)
    fields = {"type": "field_accuracy", "fields": [{"path": "due", "required": False}]}
    write("cases.jsonl", [a_case("a", evaluators=[HELLO, fields], expected_output={"k": 1})])
    result = run_one("cases.jsonl")
    assert (result["score"], result["verdict"]) == (1.0, "pass")
    assert result["evaluator_results"][1]["applicable"] is False


def test_equal_evaluators_of_several_cases_count_as_one_for_validate(write: Write) -> None:
    project(write)
    fields = {"type": "field_accuracy", "fields": [{"path": "due", "required": False}]}
    cases = [a_case(name, evaluators=[fields], expected_output={name: 1}) for name in ("k", "due", "x")]
    write("cases.jsonl", cases)
    assert agentv("validate", "cases.jsonl").returncode == 0
    write("cases.jsonl", [cases[0], cases[2]])
    validated = agentv("validate", "cases.jsonl")
    assert validated.stdout.count("no case of this evaluator has 'due' in its expected answer") == 1
    assert validated.stdout.startswith("cases.jsonl:1:")
