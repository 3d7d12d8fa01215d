"""Judges that are called through their vendors' batch APIs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentv.batches.judging import PendingCases
from tests.kits.batch_servers import BatchServer, batch_server
from tests.kits.processes import wait_until
from tests.kits.project import Write, agentv
from tests.kits.runs import evaluate, results, start
from tests.kits.vendor_batches import BatchProject, is_batch, journaled

pytestmark = pytest.mark.slow


IDS = ("a", "b", "c", "d")
PENDING = Path(".agentv/batches/pending")


def judge(score: float = 0.75, **settings: Any) -> dict[str, Any]:
    """An evaluator whose judge echoes its prompt and so returns this score."""
    prompt = f"{{{{ candidate_answer }}}} {json.dumps({'score': score, 'reasoning': 'so it is'})}"
    return {"type": "llm_judge", "judge_target": "judge", "prompt": prompt, **settings}


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server(polls=1) as running:
        yield running


@pytest.fixture
def project(write: Write, server: BatchServer) -> BatchProject:
    """A live target, and a judge in batches."""
    project = BatchProject(write, server)
    project.set_target(server.target("openai", name="judge", batch_api=True, batch_poll_seconds=0.05), batch_api=False)
    project.write_cases(*IDS, evaluators=[judge(), {"type": "contains", "value": "echo"}])
    return project


def test_judgements_are_sent_in_a_separate_batch(project: BatchProject) -> None:
    found = project.run()
    assert {result["score"] for result in found.values()} == {0.875}
    judged = found["a"]["evaluator_results"][0]
    assert (judged["score"], judged["reasoning"]) == (0.75, "so it is")
    assert project.submitted == len(IDS)
    assert project.live == len(IDS)
    assert len(project.server.state()["batches"]) == 1
    assert not is_batch(found["a"])
    assert not journaled()
    assert not PENDING.exists()


def test_a_target_and_its_judge_are_two_batches(project: BatchProject, server: BatchServer) -> None:
    project.set_target(server.target("anthropic", name="judge", batch_api=True, batch_poll_seconds=0.05))
    found = project.run()
    assert {result["score"] for result in found.values()} == {0.875}
    assert all(map(is_batch, found.values()))
    assert [batch["vendor"] for batch in server.state()["batches"]] == ["openai", "anthropic"]
    assert project.live == 0
    assert not journaled()


def test_panels_repeats_rubrics_and_composites_are_judged(project: BatchProject, server: BatchServer) -> None:
    judges = [
        server.target("openai", name="judge", batch_api=True, batch_poll_seconds=0.05),
        server.target("gemini", name="second", batch_api=True, batch_poll_seconds=0.05),
        server.target("openai", name="live-judge", batch_api=False),
    ]
    project.set_target(*judges, batch_api=False, judge_target="judge")
    checks = '{"checks": [{"id": "rubric-1", "satisfied": true, "reasoning": ""}], "overall_reasoning": ""}'
    project.write_cases(
        "a",
        "b",
        evaluators=[
            judge(0.25, name="panel", judge_target=["judge", "second", "live-judge"]),
            judge(0.5, name="repeated", judge_repeats=3),
            {"type": "rubric", "name": "rubric", "rubrics": [checks]},
            {
                "type": "composite",
                "name": "both",
                "evaluators": [judge(0.5, name="inner"), {"type": "contains", "value": "echo"}],
                "aggregator": {
                    "type": "llm_judge",
                    "judge_target": "judge",
                    "prompt": '{{ candidate_answer }} {{ question }} {"score": 1}',
                },
            },
        ],
    )
    found = project.run()
    scores = {part["name"]: part["score"] for part in found["a"]["evaluator_results"]}
    assert scores == {"panel": 0.25, "repeated": 0.5, "rubric": 1.0, "both": 1.0}
    parts = {part["name"]: part for part in found["a"]["evaluator_results"]}
    assert [entry["judge"] for entry in parts["panel"]["details"]["judges"]] == ["judge", "second", "live-judge"]
    assert parts["repeated"]["details"]["repeats"] == [0.5, 0.5, 0.5]
    state = server.state()
    assert set(state["submitted"].values()) == {1}
    # a case: two of the panel, three repeats, a rubric, the inner one; then the aggregator, which needs its score
    assert len(state["submitted"]) == 2 * (2 + 3 + 1 + 1 + 1)
    assert set(state["live"].values()) == {1}  # a target and a live judge are asked once, however many rounds there are
    assert len(state["live"]) == 4
    assert not journaled()


def test_unusable_judge_replies_are_requested_again(project: BatchProject) -> None:
    project.write_cases(
        "a", evaluators=[{"type": "llm_judge", "judge_target": "judge", "prompt": "{{ candidate_answer }}"}]
    )
    found = project.run(expect=1)
    (part,) = found["a"]["evaluator_results"]
    assert part["failed"]
    assert "the judge returned no usable judgement in 3 of 3 attempts" in part["misses"][0]
    assert [len(batch["custom_ids"]) for batch in project.server.state()["batches"]] == [1, 1, 1]


def test_missing_judgements_are_requested_live(project: BatchProject) -> None:
    project.server.set(expire_every=2)
    found = project.run()
    assert {result["score"] for result in found.values()} == {0.875}
    assert project.live == len(IDS) + 2


def test_without_the_fallback_missing_judgements_are_judge_failures(project: BatchProject) -> None:
    project.server.set(expire_every=2)
    found = project.run("--no-batch-fallback", expect=1)
    failed = [id_ for id_, result in found.items() if result.get("failure") == "judge"]
    assert failed == ["b", "d"]
    assert "the batch contains no answer" in found["b"]["misses"][0]


def kill_while_judging(project: BatchProject) -> None:
    """Kill a run when its batch of judgements has been created, which does not end by itself."""
    server = project.server
    server.set(polls=20)
    slow, fast = (server.target("openai", name="judge", batch_api=True, batch_poll_seconds=s) for s in (600, 0.05))
    project.set_target(slow, batch_api=False)
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: any(b"created" in (folder / "journal.jsonl").read_bytes() for folder in journaled()))
    run.kill()
    run.communicate()
    project.set_target(fast, batch_api=False)


def test_a_paid_answer_is_not_requested_again_after_a_kill(project: BatchProject) -> None:
    kill_while_judging(project)
    assert not results("out.jsonl")
    (folder,) = journaled()
    sent = (folder / "requests.jsonl").read_text()
    found = project.run("--resume")
    assert {result["score"] for result in found.values()} == {0.875}
    for result in found.values():  # the random mark in the result is the one that was sent
        prompt = result["evaluator_results"][0]["evaluator_provider_request"]["user_prompt"]
        mark = prompt.removeprefix("<<<").split("\n")[0]
        assert len(mark) == 16
        assert f"<<<{mark}" in sent
    assert {result["judge_metrics"]["judge"]["calls"] for result in found.values()} == {1}
    assert (project.submitted, project.live) == (len(IDS), len(IDS))
    assert not PENDING.exists()
    assert not journaled()


def test_changed_evaluators_rescore_stored_answers(project: BatchProject) -> None:
    kill_while_judging(project)
    project.write_cases(*IDS, evaluators=[judge(), {"type": "contains", "value": "nothing of the kind"}])
    found = project.run("--resume")
    assert {result["score"] for result in found.values()} == {0.375}
    assert (project.submitted, project.live) == (len(IDS), len(IDS))


def test_cached_judgements_are_not_submitted(project: BatchProject) -> None:
    project.run("--cache")
    found = project.run("--cache")
    assert {result["score"] for result in found.values()} == {0.875}
    assert (project.submitted, project.live) == (len(IDS), len(IDS))


def test_graded_answers_are_judged_in_batches(project: BatchProject) -> None:
    evaluate("cases.jsonl", "--out", "old.jsonl", "--target", "default")
    before = project.live
    ran = agentv("grade", "old.jsonl", "cases.jsonl", "--out", "new.jsonl")
    assert ran.returncode == 0, ran.stderr
    assert {result["score"] for result in results("new.jsonl")} == {0.875}
    assert project.live == before
    assert project.submitted == 2 * len(IDS)


def test_judge_batches_are_rejected_on_a_cluster(project: BatchProject) -> None:
    ran = evaluate("cases.jsonl", "--cluster", "local:1", expect=2)
    assert "--cluster: a judge target uses a batch API" in ran.stderr


def test_resume_does_not_resend_answered_cases_that_wait_for_judges(project: BatchProject, server: BatchServer) -> None:
    project.set_target(server.target("openai", name="judge", batch_api=True, batch_poll_seconds=600))
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: len(server.state()["batches"]) == 2)
    run.kill()
    run.communicate()
    project.set_target(server.target("openai", name="judge", batch_api=True, batch_poll_seconds=0.05))
    found = project.run("--resume")
    assert {result["score"] for result in found.values()} == {0.875}
    assert set(server.state()["submitted"].values()) == {1}
    assert (project.submitted, project.live) == (2 * len(IDS), 0)
    assert not journaled()


def test_leftovers_of_a_killed_step_are_removed(tmp_path: Path) -> None:
    pending = PendingCases(tmp_path / "pending")
    truncated, empty = tmp_path / "pending" / "ab" / f"abc.{2**22 + 1}.new", tmp_path / "pending" / "cd"
    for folder in (truncated.parent, empty):
        folder.mkdir(parents=True)
    truncated.write_text("{")
    at_work = truncated.with_name(f"abc.{os.getpid()}.new")
    at_work.write_text("{")
    pending.tidy()
    assert list(truncated.parent.iterdir()) == [at_work]
    assert not empty.exists()
    at_work.unlink()
    pending.tidy()
    assert not pending.has_any
