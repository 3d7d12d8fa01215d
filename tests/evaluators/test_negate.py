"""`negate` on all evaluators: judgements are inverted, and judge failures never pass."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentv.errors import ProviderError
from agentv.evaluators import BUILT_IN
from agentv.evaluators.build import EvaluatorBuilder
from agentv.evaluators.judging.target import NoJudge
from agentv.evaluators.score import negate_score
from agentv.protocols import JudgeTarget
from agentv.records import (
    CaseFile,
    EvalCase,
    EvaluatorResult,
    Exchange,
    Execution,
    Message,
    ProviderRequest,
    ProviderResponse,
    Score,
    TokenUsage,
    TraceEvent,
)

ANSWER = '{"k": 7}'

CRASH = ["sh", "-c", "echo broken >&2; exit 3"]
BAD_PYTHON = "def judge(answer):\n    raise RuntimeError('broken')\n"
SLOW = "a" * 40 + "!"
BROKEN: dict[str, list[dict[str, Any]]] = {
    "code_judge": [{"script": CRASH}, {"script": "kill -9 $$"}, {"script": "sleep 60", "timeout_seconds": 0.01}],
    "command": [
        {"command": "no-such-command-here; exit 127"},
        {"command": "kill -9 $$"},
        {"command": "sleep 60", "timeout_seconds": 0.01},
        {"command": "false; exit 1", "score_from": "stdout"},
    ],
    "composite": [
        {"evaluators": [{"type": "llm_judge"}]},
        {"evaluators": [{"type": "latency", "threshold": 5}]},
        {"evaluators": [{"type": "is_json"}], "aggregator": {"type": "llm_judge"}},
        {"evaluators": [{"type": "is_json"}], "aggregator": {"type": "code_judge", "path": "false; exit 1"}},
    ],
    "contains": [{}],
    "cost": [{"budget": 1}],
    "equals": [{}],
    "field_accuracy": [{"fields": [{"path": "a", "match": "exact"}]}],
    "icontains": [{}],
    "is_json": [],  # there is nothing that it could fail at
    "json_schema": [{"schema": {"type": "string", "pattern": "^(a+)+$"}, "answer": json.dumps(SLOW)}],
    "latency": [{"threshold": 5}],
    "llm_judge": [{}],
    "python": [{"function": "bad.py:judge"}],
    "regex": [{"value": "^(a+)+$", "answer": SLOW}],
    "rubric": [{"rubrics": ["is right"]}],
    "similarity": [{}],
    "starts_with": [{}],
    "token_usage": [{"max_total": 5}, {"max_input": 5}],
    "tool_trajectory": [{"mode": "any_order", "minimums": {"search": 1}}],
}
NEGATES_NO_WRITTEN_SCORE = {"score_from": "stdout"}


class BrokenJudge(NoJudge):
    """A judge whose target fails."""

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        raise ProviderError("the judge is out")


class BrokenJudges:
    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        return BrokenJudge(name or "")


def result(folder: Path, answer: str | ProviderResponse = "an answer", **config: Any) -> EvaluatorResult:
    """The result of an evaluator with these settings for an answer without figures and trace."""
    expected: tuple[Message, ...] = ()
    if config["type"] == "field_accuracy":
        expected = (Message(role="assistant", content={"k": 7}),)
    case = EvalCase(
        "id",
        "outcome",
        (Message(role="user", content="q"),),
        expected,
        file=CaseFile(path=folder / "cases.jsonl", dataset="cases"),
        execution=Execution(target="t", evaluators=(config,)),
    )
    request = ProviderRequest(eval_id="id", question="q")
    response = answer
    if isinstance(response, str):
        response = ProviderResponse(text=response)
    exchange = Exchange(case=case, request=request, response=response)
    built = EvaluatorBuilder(BrokenJudges()).build(case, "t")
    (found,) = asyncio.run(built.results(exchange))
    return found


@pytest.mark.parametrize("type_", sorted(BUILT_IN))
def test_judge_failures_never_pass(tmp_path: Path, type_: str) -> None:
    (tmp_path / "bad.py").write_text(BAD_PYTHON)
    for settings in BROKEN[type_]:
        plain = result(tmp_path, type=type_, **settings)
        assert (plain.score, plain.verdict) == (0.0, "fail"), plain
        if NEGATES_NO_WRITTEN_SCORE.items() <= settings.items():
            assert plain.failed
            continue  # which refuses `negate`
        negated = result(tmp_path, type=type_, negate=True, **settings)
        assert (negated.score, negated.verdict, negated.failed) == (0.0, "fail", True), negated
        assert negated.misses, "it says why"


def test_every_evaluator_type_is_covered() -> None:
    assert BROKEN.keys() == BUILT_IN.keys()


def test_a_judgement_is_inverted(tmp_path: Path) -> None:
    assert negate_score(Score(score=0.25, hits=("a",), misses=("b",))) == Score(
        score=0.75, hits=("not met, as expected: b",), misses=("must not be met: a",)
    )
    assert negate_score(Score(score=0.5)).misses == ("must not be met, but scored 0.5",)
    assert negate_score(Score(score=0.0)).misses == ()
    (tmp_path / "good.py").write_text("def judge(answer):\n    return {'score': 1, 'hits': ['rude']}\n")
    rude = result(tmp_path, type="python", function="good.py:judge", negate=True)
    assert (rude.score, rude.verdict, rude.hits, rude.misses, rude.failed) == (
        0.0,
        "fail",
        (),
        ("must not be met: rude",),
        False,
    )
    far = result(tmp_path, type="similarity", value="zzz", threshold=0.9, negate=True)
    assert (far.score, far.verdict, far.failed) == (1.0, "pass", False)


CALLED_TWICE = [{"type": "tool_call", "name": "search"}, {"type": "tool_call", "name": "search"}]


@pytest.mark.parametrize(
    ("settings", "miss"),
    [
        ({"type": "contains", "value": "7"}, "contains '7', which must not occur"),
        ({"type": "contains", "value": ["7", "8"]}, "contains '7', which must not occur"),
        ({"type": "icontains", "value": "K"}, "contains 'K', which must not occur"),
        ({"type": "starts_with", "value": "{"}, "starts with '{', which must not occur"),
        ({"type": "equals", "value": ANSWER}, f"equals {ANSWER!r}, which must not occur"),
        ({"type": "regex", "value": "[0-9]"}, "matches '[0-9]', which must not occur"),
        ({"type": "is_json"}, "is valid JSON, which must not occur"),
        ({"type": "json_schema", "schema": {"type": "object"}}, "matches the schema, which must not occur"),
        ({"type": "command", "command": "true"}, "'true' succeeded, which must not occur"),
        ({"type": "field_accuracy", "fields": [{"path": "k"}]}, "k: 7, which must not occur"),
        ({"type": "latency", "threshold": 20}, "took 12 ms, expected more than 20 ms"),
        ({"type": "cost", "budget": 2}, "cost 0.5 USD, expected more than 2 USD"),
        ({"type": "token_usage", "max_input": 9}, "5 input tokens, expected more than 9"),
        ({"type": "similarity", "value": ANSWER, "threshold": 0.9}, "similarity 1.000, expected below 0.9"),
        ({"type": "similarity", "value": ANSWER}, "similarity 1.000, which must not occur"),
        (
            {"type": "tool_trajectory", "mode": "any_order", "minimums": {"search": 1}},
            "search called 2 times, expected 0 times",
        ),
        (
            {"type": "tool_trajectory", "mode": "any_order", "minimums": {"search": 2}},
            "search called 2 times, expected fewer than 2",
        ),
        (
            {"type": "tool_trajectory", "mode": "in_order", "expected": [{"tool": "search"}]},
            "search found at call 1, which must not occur",
        ),
        (
            {"type": "tool_trajectory", "mode": "exact", "expected": [{"tool": "search"}, {"tool": "search"}]},
            "call 1 is search, which must not occur",
        ),
    ],
)
def test_the_miss_of_a_negated_check_names_the_expectation(tmp_path: Path, settings: dict[str, Any], miss: str) -> None:
    response = ProviderResponse(
        text=ANSWER,
        duration_ms=12,
        cost_usd=0.5,
        token_usage=TokenUsage(input=5, output=5),
        trace=msgspec.convert(CALLED_TWICE, tuple[TraceEvent, ...]),
    )
    found = result(tmp_path, response, negate=True, **settings)
    assert (found.score, found.verdict, found.failed) == (0.0, "fail", False)
    assert found.misses[0] == miss


def test_negate_keeps_an_explicit_fail() -> None:
    missed_what_is_required = Score(score=0.9, verdict="fail")
    assert negate_score(missed_what_is_required).verdict == "fail"
    with_reason = Score(score=0.9, verdict="fail", hits=("a",), misses=("b",))
    assert negate_score(with_reason).hits == ()
    assert negate_score(with_reason).misses == ("b", "must not be met: a")
    assert negate_score(Score(score=0.9, verdict="pass")).verdict == "fail"


def test_negate_is_not_passed_to_scripts(tmp_path: Path) -> None:
    script = (
        'python3 -c \'import json, sys; print(json.dumps({"score": 1, "details": json.load(sys.stdin)["config"]}))\''
    )
    found = result(tmp_path, type="code_judge", script=script, negate=True, own=1)
    assert (found.score, found.details) == (0.0, {"own": 1})


def test_a_dry_run_passes_nothing(tmp_path: Path) -> None:
    case = EvalCase("id", "o", (Message(role="user", content="q"),))
    settings = (
        {"type": "llm_judge", "negate": True},
        {"type": "composite", "evaluators": [{"type": "llm_judge"}], "negate": True},
    )
    case = EvalCase(
        "id",
        "o",
        case.input_messages,
        file=CaseFile(path=tmp_path / "c.jsonl", dataset="c"),
        execution=Execution(target="t", evaluators=settings),
    )
    exchange = Exchange(
        case=case, request=ProviderRequest(eval_id="id", question="q"), response=ProviderResponse(text="x")
    )
    found = asyncio.run(EvaluatorBuilder(BrokenJudges(), dry_run=True).build(case, "t").results(exchange))
    assert [each.score for each in found] == [0.0, 0.0]
