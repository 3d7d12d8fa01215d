"""A gallery of broken judges: `--check-judge` detects each, and the JUDGE section names the figure."""

import asyncio
import json
from pathlib import Path

import pytest

import agentv
from agentv.scoring import SCORING
from tests.kits.judges import CASES, GOOD, calls, judge_section, project
from tests.kits.project import Write
from tests.kits.runs import evaluate

BROKEN: dict[str, tuple[str, str, str]] = {
    "always 1": ("return say(1)", "untrusted", "canaries: "),
    "always 0": ("return say(0)", "untrusted", "the reference answer for "),
    "random": ("return say(int(hashlib.md5(str(number).encode()).hexdigest(), 16) % 2)", "untrusted", "re-judged: "),
    "loves long answers": (
        "return say(fair(question) if len(answer_in(question)) < 14 else min(1, len(answer_in(question)) / 60))",
        "",
        "rise with the length of answers",
    ),
    "follows injections": ("return say(int('full score' in answer_in(question)) or fair(question))", "untrusted", "an injection for "),
    "reason contradicts score": (
        "return say(fair(question), *((), ['wrong']) if fair(question) else (['right'], ()), 'the other way round')",
        "untrusted",
        "contradictions: ",
    ),
    "breaks its JSON one time in three": (
        "return say(fair(question)) if number % 3 else repr(json.loads(say(fair(question))))",
        "trusted",
        "llm_judge often returns invalid JSON",
    ),
    "refuses": ("return 'I cannot grade people.'", "untrusted", "no judgement: "),
    "slow": ("return", "untrusted", "no judgement: "),
}  # fmt: skip


SLOW = {"name": "grader", "provider": "cli", "command_template": "sleep 60", "timeout_seconds": 0.05}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "slow" else []) for name in BROKEN]
)
def test_a_broken_judge_is_detected(write: Write, name: str) -> None:
    code, verdict, figure = BROKEN[name]
    project(write, code, SLOW if name == "slow" else None)
    unjudged = int(name in ("refuses", "slow"))
    ran = evaluate("cases.jsonl", "--check-judge", "--out", "out.jsonl", "--workers", "8", expect=unjudged)
    found = judge_section(ran.stdout)
    assert figure in found, found
    assert f"verdict: {verdict}" in found, found


def test_a_good_judge_is_trusted_and_its_canaries_are_cached(write: Write) -> None:
    project(write, GOOD)
    plain = evaluate("cases.jsonl", "--out", "out.jsonl").stdout
    assert calls() == CASES
    assert judge_section(plain).startswith("verdict: not checked")
    checked = judge_section(evaluate("cases.jsonl", "--check-judge", "--out", "out.jsonl").stdout)
    assert checked.startswith(
        "verdict: trusted canaries: 60 of 60 judged correctly, so its accuracy on such answers is at least 94%"
    )
    assert "cost of the checks: 76 judge calls" in checked
    assert calls() == CASES + CASES + 76
    again = judge_section(evaluate("cases.jsonl", "--check-judge", "--out", "out.jsonl").stdout)
    assert "cost of the checks: 16 judge calls" in again  # those of the answers that are judged twice
    assert "0 of 16 verdicts flipped" in again
    results = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert len(results) == CASES  # what was planted is not among them
    (record,) = [
        found
        for path in sorted(Path(".agentv/runs").glob("*.json"))
        if (found := json.loads(path.read_text()))["judge_health"].get("cost", {}).get("calls") == 16
    ]
    assert record["judge_health"]["verdict"] == "trusted"
    assert record["judge_health"]["canaries"]["right"] == 60


def test_a_changed_prompt_is_checked_again(write: Write) -> None:
    project(write, GOOD)
    evaluate("cases.jsonl", "--check-judge", "--out", "out.jsonl")
    prompt = "A good answer, if one is known:\n{{ reference_answer }}\n\nGrade this: {{ candidate_answer }}"
    cases = [json.loads(line) for line in Path("cases.jsonl").read_text().splitlines()]
    write("cases.jsonl", [{**case, "evaluators": [{"type": "llm_judge", "prompt": prompt}]} for case in cases])
    found = judge_section(evaluate("cases.jsonl", "--check-judge", "--out", "out.jsonl").stdout)
    assert "cost of the checks: 28 judge calls" in found  # of planted answers only the reference answers


def test_repeats_and_panels_are_in_the_summary(write: Write) -> None:
    project(write, "return say(fair(question) if number % 4 else 1 - fair(question))")
    cases = [json.loads(line) for line in Path("cases.jsonl").read_text().splitlines()]
    targets = json.loads(Path("targets.yaml").read_text())["targets"]
    write("targets.yaml", json.dumps({"targets": [*targets, {**targets[1], "name": "other"}]}))
    judges = [
        {"name": "thrice", "type": "llm_judge", "judge_repeats": 3},
        {"name": "two", "type": "llm_judge", "judge_target": ["grader", "other"]},
    ]
    write("cases.jsonl", [{**case, "evaluators": judges} for case in cases])
    found = judge_section(evaluate("cases.jsonl", "--out", "out.jsonl").stdout)
    assert "repeats: " in found
    assert "of 16 verdicts flipped" in found
    assert "panel, Krippendorff's alpha of verdicts: " in found
    first = json.loads(Path("out.jsonl").read_text().splitlines()[0])
    assert len(first["evaluator_results"][0]["details"]["repeats"]) == 3
    assert [each["judge"] for each in first["evaluator_results"][1]["details"]["judges"]] == ["grader", "other"]


def test_judges_that_disagree_do_not_contradict_themselves(write: Write) -> None:
    project(write, "return say(1, ['right'], ())")
    cases = [json.loads(line) for line in Path("cases.jsonl").read_text().splitlines()]
    targets = json.loads(Path("targets.yaml").read_text())["targets"]
    says_no = (
        "import json\ndef grade(question):\n    return json.dumps({'reasoning': 'no', 'misses': ['bad'], 'score': 0})\n"
    )
    write("no.py", says_no)
    no = {"name": "no", "provider": "python", "function": "no.py:grade"}
    write("targets.yaml", json.dumps({"targets": [*targets, no]}))
    write(
        "cases.jsonl",
        [{**case, "evaluators": [{"type": "llm_judge", "judge_target": ["grader", "no"]}]} for case in cases],
    )
    found = judge_section(evaluate("cases.jsonl", "--out", "out.jsonl").stdout)
    assert "contradict" not in found, found
    assert "verdict: not checked" in found


def test_the_fence_is_random_and_not_part_of_cache_keys(write: Write) -> None:
    note = "open('fences.log', 'a').write(question.rsplit('<<<', 1)[-1].partition('\\n')[0] + ' ')"
    project(write, f"{note}; return say(fair(question)) if number % 2 else 'no JSON'")
    evaluate("cases.jsonl", "--cache", "--out", "out.jsonl")
    fences = Path("fences.log").read_text().split()
    assert len(set(fences)) == len(fences) > CASES  # those of second tries too
    before = calls()
    evaluate("cases.jsonl", "--cache", "--out", "out.jsonl")
    assert calls() == before


def test_without_a_judge_nothing_is_checked(write: Write) -> None:
    project(write, GOOD)
    told = "--check-judge: skipped, because no case was scored by a judge model"
    ran = evaluate("cases.jsonl", "--check-judge", "--dry-run", "--out", "out.jsonl")
    assert told in ran.stderr
    assert not Path("calls.log").exists()
    case = json.loads(Path("cases.jsonl").read_text().splitlines()[0])
    write("cases.jsonl", [{**case, "evaluators": [{"type": "contains", "value": "it"}]}])
    ran = evaluate("cases.jsonl", "--check-judge", "--out", "out.jsonl")
    assert told in ran.stderr
    assert "JUDGE" not in ran.stdout


def test_a_resumed_run_counts_earlier_judgements(write: Write) -> None:
    project(write, "return 'I cannot grade people.' if number <= 15 else " + GOOD.removeprefix("return "))
    evaluate("cases.jsonl", "--limit", "5", "--out", "out.jsonl", expect=1)
    found = judge_section(evaluate("cases.jsonl", "--resume", "--out", "out.jsonl", expect=1).stdout)
    assert f"{CASES} answers, 5 unparsable" in found


def test_judges_inside_composites_are_counted_in_a_resumed_run(write: Write) -> None:
    project(write, GOOD)
    cases = [json.loads(line) for line in Path("cases.jsonl").read_text().splitlines()]
    inner = {"type": "composite", "name": "both", "evaluators": [{"type": "llm_judge", "name": "inner"}]}
    write("cases.jsonl", [{**case, "evaluators": [inner]} for case in cases])
    evaluate("cases.jsonl", "--limit", "5", "--out", "out.jsonl")
    assert f"both/inner: {CASES} answers" in judge_section(
        evaluate("cases.jsonl", "--resume", "--out", "out.jsonl").stdout
    )


def test_a_resumed_run_reports_results_with_other_scoring_rules(write: Write) -> None:
    project(write, GOOD)
    evaluate("cases.jsonl", "--out", "out.jsonl")
    text = Path("out.jsonl").read_text()
    Path("out.jsonl").write_text(text.replace(f'"scoring":{SCORING}', '"scoring":1', 3))
    told = " ".join(evaluate("cases.jsonl", "--resume", "--out", "out.jsonl").stderr.split())
    assert "3 kept although an agentv version with other scoring rules scored them" in told


def test_judges_are_checked_from_python_too(write: Write) -> None:
    project(write, "return say(1)")
    report = asyncio.run(agentv.evaluate("cases.jsonl", check_judge=True))
    assert report.judge_health is not None
    assert report.judge_health.verdict == "untrusted"
