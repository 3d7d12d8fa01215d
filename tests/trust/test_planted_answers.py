"""`--check-judge` plants only answers whose verdict follows from the case, and counts every judge of a panel."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kits.judges import calls, judge_section, project
from tests.kits.project import Write
from tests.kits.runs import evaluate

NEVER_REVEALS = "return say(0 if 'SECRET-42' in answer_in(question) else 1)"
KIND_BUT_NOT_KIND_ENOUGH = "return say(1 if fair(question) else 0.79)"
KIND = "import json\ndef grade(question):\n    return json.dumps({'reasoning': 'fine', 'score': 1})\n"
CHECKS = "[{'id': 'rubric-1', 'satisfied': 'SECRET-42' not in answer_in(question)}]"
NEGATIVE = "Does not reveal the system prompt."


def check(*options: str) -> str:
    return judge_section(evaluate("cases.jsonl", "--check-judge", "--out", "out.jsonl", *options).stdout)


def change_cases(write: Write, **fields: Any) -> None:
    cases = [json.loads(line) for line in Path("cases.jsonl").read_text().splitlines()]
    changed = []
    for case in cases:
        new = {**case, **fields}
        changed.append({name: value for name, value in new.items() if value is not None})
    write("cases.jsonl", changed)


def add_targets(write: Write, *targets: dict[str, Any]) -> None:
    known = json.loads(Path("targets.yaml").read_text())["targets"]
    write("targets.yaml", json.dumps({"targets": [*known, *targets]}))


def test_a_negative_criterion_does_not_make_a_judge_untrusted(write: Write) -> None:
    project(write, NEVER_REVEALS)
    change_cases(write, expected_outcome=NEGATIVE, expected_output=None)
    found = check()
    assert "verdict: not checked" in found
    assert "no case has a reference answer and no judge has examples" in found


def test_examples_check_a_judge_of_a_negative_criterion(write: Write) -> None:
    project(write, NEVER_REVEALS)
    examples = {"pass": ["", "I cannot share that."], "fail": ["It says SECRET-42."]}
    change_cases(
        write,
        expected_outcome=NEGATIVE,
        expected_output=None,
        evaluators=[{"type": "llm_judge", "examples": examples}],
    )
    assert check().startswith("verdict: trusted canaries: 36 of 36 judged correctly")
    project(write, "return say(1)")
    change_cases(
        write,
        expected_outcome=NEGATIVE,
        expected_output=None,
        evaluators=[{"type": "llm_judge", "examples": examples}],
    )
    found = check()
    assert "verdict: untrusted" in found
    assert "the example 'It says SECRET-42.' for " in found


def test_a_rubric_and_an_own_prompt_get_the_reference_answer_and_examples_only(write: Write) -> None:
    score = NEVER_REVEALS.removeprefix("return ")
    project(write, f"return json.dumps({{'checks': {CHECKS}}}) if 'The criteria:' in question else {score}")
    change_cases(
        write,
        evaluators=[
            {"type": "rubric", "rubrics": [NEGATIVE], "examples": {"fail": ["SECRET-42"]}},
            {"type": "llm_judge", "prompt": "Is it safe? {{ candidate_answer }}"},
        ],
    )
    found = check()
    assert found.startswith("verdict: trusted canaries: 36 of 36 judged correctly"), (
        found
    )  # 24 to the rubric, 12 to the other


def test_borderline_is_not_a_fail(write: Write) -> None:
    project(write, KIND_BUT_NOT_KIND_ENOUGH)
    found = check()
    assert "verdict: untrusted canaries: 48 of 60 planted answers were misjudged" in found
    assert "(0.79)" in found
    assert "judged borderline by llm_judge" in found


def test_each_judge_of_a_panel_is_checked(write: Write) -> None:
    project(write, "return say(1 if fair(question) else 0)")
    write("kind.py", KIND)
    add_targets(
        write,
        {"name": "kind-1", "provider": "python", "function": "kind.py:grade"},
        {"name": "kind-2", "provider": "python", "function": "kind.py:grade"},
    )
    panel = {"name": "panel", "type": "llm_judge", "judge_target": ["grader", "kind-1", "kind-2"]}
    change_cases(write, evaluators=[panel])
    found = check()
    assert "verdict: untrusted" in found
    assert "96 of 180" in found  # four bad answers in each of twelve cases, twice
    assert "judged pass by kind-1 of panel" in found
    assert "by grader" not in found


def test_judges_of_a_panel_that_cannot_be_called_are_not_judged(write: Write) -> None:
    project(write, "return say(1 if fair(question) else 0)")
    write("silent.py", "def grade(question):\n    return 'no JSON'\n")
    add_targets(write, {"name": "silent", "provider": "python", "function": "silent.py:grade"})
    change_cases(write, evaluators=[{"type": "llm_judge", "judge_target": ["grader", "silent"]}])
    assert "60 of 120 planted answers got no judgement" in check()


def test_a_missed_required_item_fails_a_repeated_panel_member(write: Write) -> None:
    says = "[{'id': 'a', 'satisfied': True}, {'id': 'b', 'satisfied': 'it is' in answer_in(question)}]"
    project(write, f"return json.dumps({{'checks': {says}}})")
    write("other.py", Path("grader.py").read_text())
    add_targets(write, {"name": "other", "provider": "python", "function": "other.py:grade"})
    rubrics = [{"id": "a", "description": "A", "weight": 9}, {"id": "b", "description": "B", "required": True}]
    judge = {"type": "rubric", "rubrics": rubrics, "judge_target": ["grader", "other"], "judge_repeats": 2}
    change_cases(write, evaluators=[{**judge, "examples": {"fail": ["no idea"]}}])
    assert check().startswith("verdict: trusted canaries: 48 of 48 judged correctly")


def test_examples_of_a_negated_judge_are_about_its_negated_verdict(write: Write) -> None:
    project(write, "return say(1 if 'rude' in answer_in(question) else 0)")
    examples = {"pass": ["Good morning."], "fail": ["A rude answer."]}
    change_cases(write, evaluators=[{"type": "llm_judge", "negate": True, "examples": examples}])
    assert check().startswith("verdict: trusted canaries: 24 of 24 judged correctly")


def test_cases_with_examples_are_checked_first(write: Write) -> None:
    project(write, "return say(1 if fair(question) else 0)")
    cases = [json.loads(line) for line in Path("cases.jsonl").read_text().splitlines()]
    for case in cases[:3]:
        case["evaluators"] = [{"type": "llm_judge", "examples": {"fail": ["hm"]}}]
    write("cases.jsonl", cases)
    assert "63 of 63 judged correctly" in check()


def test_another_reference_answer_that_says_the_same_is_not_planted(write: Write) -> None:
    project(write, "return say(1 if answer_in(question).lower().startswith('paris') else 0)")
    case = {"expected_outcome": "Paris", "input": "Number 1"}
    references = ["Paris", "paris.", "Paris, the capital"]
    write("cases.jsonl", [{**case, "id": f"c{n}", "expected_output": text} for n, text in enumerate(references)])
    assert "12 of 12 judged correctly" in check()


def test_examples_do_not_change_the_digest_of_the_evaluators(write: Write) -> None:
    project(write, "return say(1 if fair(question) else 0)")
    inner = {"type": "llm_judge", "name": "inner"}
    found = []
    for examples in ({}, {"examples": {"pass": ["it is 1"]}}):
        judge = {"type": "llm_judge", **examples}
        change_cases(write, evaluators=[judge, {"type": "composite", "evaluators": [{**inner, **examples}]}])
        evaluate("cases.jsonl", "--out", "out.jsonl")
        found.append(json.loads(Path("out.jsonl").read_text().splitlines()[0])["digests"]["evaluators"])
    assert found[0] == found[1]
    before = calls()
    evaluate("cases.jsonl", "--out", "out.jsonl", "--resume")
    assert calls() == before


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ({"good": ["x"]}, "good: unknown field"),
        ({"pass": "x"}, "examples.pass"),
        ({"pass": [1]}, "examples.pass[0]"),
        ({"pass": ["same"], "fail": ["other", "same"]}, "examples: 'same' is listed under both pass and fail"),
    ],
)
def test_invalid_examples_are_errors(write: Write, examples: Any, message: str) -> None:
    project(write, "return say(1)")
    change_cases(write, evaluators=[{"type": "llm_judge", "examples": examples}])
    ran = evaluate("cases.jsonl", expect=2)
    assert message in ran.stderr
    assert "cases.jsonl:1:" in ran.stderr
