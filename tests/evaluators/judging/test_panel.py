"""Repeated judges and panels: many judgements become one score."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentv.errors import ProviderError
from agentv.evaluators.build import EvaluatorBuilder, InvalidEvaluators
from agentv.evaluators.judging.target import NoJudge
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
)


class ScriptedJudge(NoJudge):
    """A judge that says one thing after another, and notes which attempt was asked for."""

    def __init__(self, name: str, said: Iterator[Any]):
        super().__init__(name)
        self._said = said
        self.attempts: list[int] = []
        self.fences: list[str] = []

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        self.attempts.append(request.attempt)
        self.fences.append(request.fence)
        assert request.question.count(request.fence) >= 2
        said = next(self._said)
        if isinstance(said, ProviderError):
            raise said
        text = said if isinstance(said, str) else json.dumps({"reasoning": f"worth {said}", "score": said})
        return ProviderResponse(text=text)


class Judges:
    def __init__(self, **said: list[Any]):
        self.by_name = {name: ScriptedJudge(name, iter(what)) for name, what in said.items()}

    def judge(self, case: EvalCase, target: str, name: str | None) -> JudgeTarget:
        return self.by_name[name or "default"]


def result(judges: Judges, **config: Any) -> EvaluatorResult:
    case = EvalCase(
        "id",
        "outcome",
        (Message(role="user", content="q"),),
        file=CaseFile(path=Path("cases.jsonl").absolute(), dataset="cases"),
        execution=Execution(target="t", evaluators=({"type": "llm_judge", **config},)),
    )
    request = ProviderRequest(eval_id="id", question="q")
    exchange = Exchange(case=case, request=request, response=ProviderResponse(text="an answer"))
    (found,) = asyncio.run(EvaluatorBuilder(judges).build(case, "t").results(exchange))
    return found


def test_each_call_has_its_own_fence() -> None:
    judges = Judges(a=[1.0, "no JSON", 1.0], b=[1.0, 1.0])
    result(judges, judge_target=["a", "b"], judge_repeats=2)
    fences = [fence for judge in judges.by_name.values() for fence in judge.fences]
    assert len(set(fences)) == len(fences) == 5


def test_repeats_are_a_mean_and_each_is_in_the_details() -> None:
    judges = Judges(default=[1.0, 0.5, 0.9])
    found = result(judges, judge_repeats=3)
    assert (found.score, found.verdict) == (0.8, "pass")
    assert found.details == {"repeats": [1.0, 0.5, 0.9]}
    assert found.reasoning == "worth 0.9"  # the words of the one nearest to the mean


def test_each_repeat_has_its_own_cache_entry() -> None:
    judges = Judges(default=[1.0, "no JSON", 1.0, 1.0])
    result(judges, judge_repeats=2)
    assert len(set(judges.by_name["default"].attempts)) == len(judges.by_name["default"].attempts) == 3


def test_a_plain_judge_has_no_details() -> None:
    judges = Judges(default=[0.7])
    found = result(judges)
    assert (found.score, found.details, judges.by_name["default"].attempts) == (0.7, None, [1])


def test_a_panel_is_the_mean_of_those_that_answered() -> None:
    gone = ProviderError("out of office")
    found = result(Judges(a=[1.0], b=[0.5], c=[gone]), judge_target=["a", "b", "c"])
    assert (found.score, found.failed) == (0.75, False)
    first, second, third = found.details["judges"]
    assert first == {"judge": "a", "score": 1.0, "verdict": "pass", "reasoning": "worth 1.0"}
    assert (second["judge"], second["verdict"]) == ("b", "fail")
    assert third == {"judge": "c", "error": "the judge returned no usable judgement in 1 of 3 attempts: out of office"}
    assert found.details["judging"] == {"call_failed": 1}


def test_a_panel_with_repeats_weighs_each_judge_alike() -> None:
    found = result(Judges(a=[1.0, 1.0], b=[0.0, "?", "?", "?"]), judge_target=["a", "b"], judge_repeats=2)
    assert found.score == 0.5
    assert [each["repeats"] for each in found.details["judges"]] == [[1.0, 1.0], [0.0, None]]


def test_no_judge_answers() -> None:
    found = result(Judges(a=["?"] * 3, b=["?"] * 3), judge_target=["a", "b"], negate=True)
    assert (found.score, found.failed) == (0.0, True)
    assert found.misses[0].startswith("the judge returned no usable judgement in 3 of 3 attempts")


def test_repaired_and_retried_replies_are_counted() -> None:
    found = result(Judges(default=["?", "{'score': 0.9,}"]))
    assert (found.score, found.details) == (0.9, {"judging": {"repaired": 1, "asked_again": 1}})


def test_a_rubric_has_its_checks_and_its_repeats() -> None:
    met = json.dumps({"checks": [{"id": "rubric-1", "satisfied": True, "reasoning": ""}]})
    missed = json.dumps({"checks": [{"id": "rubric-1", "satisfied": False, "reasoning": ""}]})
    judges = Judges(default=[met, met, missed])
    found = result(judges, type="rubric", rubrics=["is kind"], judge_repeats=3)
    assert found.details["repeats"] == [1.0, 1.0, 0.0]
    assert [check["satisfied"] for check in found.details["checks"]] == [True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"judge_target": ["a", "a"]}, "judge_target lists 'a' twice"),
        ({"judge_target": []}, "judge_target"),
        ({"judge_repeats": 0}, "judge_repeats"),
        ({"judge_repeats": 101}, "judge_repeats"),
        ({"judge_repeats": "three"}, "judge_repeats"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEvaluators, match=message):
        result(Judges(a=[1.0], default=[1.0]), **settings)


ITEMS = [
    {"id": "polite", "description": "Is polite", "weight": 18},
    {"id": "short", "description": "Is short", "required": True},
    {"id": "sourced", "description": "Names sources", "required": True},
]


def missing(*missed: str) -> str:
    """Return the reply of a judge that finds all items met except these."""
    checks = [{"id": item["id"], "satisfied": item["id"] not in missed} for item in ITEMS]
    return json.dumps({"checks": checks, "overall_reasoning": f"misses {', '.join(missed)}"})


def rubric_result(judges: Judges, **config: Any) -> EvaluatorResult:
    return result(judges, type="rubric", rubrics=ITEMS, judge_target=list(judges.by_name), **config)


def test_a_required_item_is_missed_if_most_judges_miss_it() -> None:
    found = rubric_result(Judges(a=[missing("short")], b=[missing("short", "sourced")], c=[missing()]))
    assert (found.score, found.verdict) == (0.95, "fail")
    assert found.misses == ("required, but not met: Is short",)
    assert [member["verdict"] for member in found.details["judges"]] == ["fail", "fail", "pass"]


def test_judges_that_miss_different_required_items_do_not_fail_the_answer() -> None:
    """Two of three judges say `fail`, but most judges find each item met."""
    found = rubric_result(Judges(a=[missing("short")], b=[missing("sourced")], c=[missing()]))
    assert found.verdict == "pass"
    assert found.misses == ()


def test_a_required_item_that_half_of_the_judges_miss_is_missed() -> None:
    assert rubric_result(Judges(a=[missing("short")], b=[missing()])).verdict == "fail"


def test_each_judge_has_one_vote_on_a_required_item_however_often_it_is_asked() -> None:
    """Most of the single judgements miss the item, but only one of three judges does so most of the time."""
    judges = Judges(
        a=[missing("short"), missing("short"), missing("short")],
        b=[missing("short"), missing(), missing()],
        c=[missing("short"), missing(), missing()],
    )
    found = rubric_result(judges, judge_repeats=3)
    assert found.verdict == "pass"
    assert [member["verdict"] for member in found.details["judges"]] == ["fail", "pass", "pass"]
