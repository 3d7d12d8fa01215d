"""Targets that are called through their vendors' batch APIs."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from agentv.providers.models.batches import openai
from agentv.providers.models.batches.api import BatchLimits
from tests.kits.batch_servers import BatchServer, batch_server
from tests.kits.processes import PATIENCE_SECONDS, wait_until
from tests.kits.project import Write, agentv, flat
from tests.kits.runs import evaluate, results, start
from tests.kits.vendor_batches import BatchProject, is_batch, journaled

pytestmark = pytest.mark.slow


VENDORS = ["openai", "openai-responses", "azure", "anthropic", "gemini"]
IDS = ("a", "b", "c", "d", "e", "f")


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as running:
        yield running


@pytest.fixture
def project(write: Write, server: BatchServer) -> BatchProject:
    project = BatchProject(write, server, pricing={"input": 10, "output": 20})
    project.write_cases(*IDS)
    return project


@pytest.mark.parametrize("vendor", VENDORS)
def test_all_cases_are_answered_in_one_batch_at_half_the_price(write: Write, server: BatchServer, vendor: str) -> None:
    server.set(order="reversed", polls=2)
    project = BatchProject(write, server, vendor, pricing={"input": 10, "output": 20})
    project.write_cases(*IDS)
    found = project.run("--workers", "3")
    assert {id_: result["candidate_answer"] for id_, result in found.items()} == {id_: f"echo: {id_}" for id_ in IDS}
    assert all(map(is_batch, found.values()))
    assert {result["execution_metrics"]["cost_usd"] for result in found.values()} == {(11 * 10 + 7 * 20) / 2e6}
    assert "duration_ms" not in found["a"]["execution_metrics"]
    assert len(server.state()["batches"]) == 1
    assert project.submitted == len(IDS)
    assert project.live == 0
    assert not journaled()


def test_the_vendors_counts_are_shown(project: BatchProject) -> None:
    project.server.set(polls=3)
    project.run()
    assert "of 6 answered (in_progress)" in project.ran.stderr


def test_files_and_trials_of_a_target_share_their_batches(project: BatchProject) -> None:
    project.write_cases(*IDS, name="more.jsonl")
    evaluate("cases.jsonl", "more.jsonl", "--trials", "2", "--out", "out.jsonl")
    assert len(results("out.jsonl")) == 24
    assert project.submitted == 24
    assert len(project.server.state()["batches"]) == 1


def test_request_errors_are_case_errors_with_the_vendors_message(project: BatchProject) -> None:
    project.server.set(fail_every=3)
    found = project.run(expect=1)
    assert [id_ for id_, result in found.items() if "error" in result] == ["c", "f"]
    assert found["c"]["failure"] == "target"
    assert found["c"]["error"].startswith("status ")
    assert project.live == 0
    assert not journaled()


def test_a_completed_batch_without_an_output_file_is_all_errors(project: BatchProject) -> None:
    project.server.set(no_output=True)
    found = project.run(expect=1)
    assert all("status " in result["error"] for result in found.values())


@pytest.mark.parametrize("fault", ["expire_every", "miss_every"])
def test_unprocessed_requests_are_sent_live_at_full_price(project: BatchProject, fault: str) -> None:
    project.server.set(**{fault: 2})
    found = project.run()
    assert [id_ for id_, result in found.items() if not is_batch(result)] == ["b", "d", "f"]
    assert found["b"]["candidate_answer"] == "echo: b"
    assert found["b"]["execution_metrics"]["cost_usd"] == 2 * found["a"]["execution_metrics"]["cost_usd"]
    assert "batch" not in found["b"]["execution_metrics"]
    assert project.live == 3
    assert not journaled()


@pytest.mark.parametrize("fault", ["expire_every", "miss_every"])
def test_without_the_fallback_unprocessed_requests_are_errors(project: BatchProject, fault: str) -> None:
    project.server.set(**{fault: 2})
    found = project.run("--no-batch-fallback", expect=1)
    assert [id_ for id_, result in found.items() if "error" in result] == ["b", "d", "f"]
    assert found["b"]["error"].startswith("the batch contains no answer: ")
    assert project.live == 0


def test_at_the_deadline_a_batch_is_cancelled_and_the_rest_is_sent_live(project: BatchProject) -> None:
    project.server.set(polls=100_000)
    found = project.run("--batch-deadline", "0.5")
    (batch,) = project.server.state()["batches"]
    assert batch["is_cancelled"]
    assert [id_ for id_, result in found.items() if is_batch(result)] == ["a", "b", "c"]
    assert project.live == 3
    assert not journaled()


def test_a_rejected_model_is_an_error_for_all_cases_without_live_requests(project: BatchProject) -> None:
    project.server.set(rejected_model="gpt-5")
    found = project.run(expect=1)
    (error,) = {result["error"] for result in found.values()}
    assert error.startswith("the batch was rejected: ")
    assert "model_not_found" in error
    assert project.live == 0
    assert not journaled()


@pytest.mark.parametrize("fault", ["results_gone", "batches_gone"])
def test_answers_deleted_by_the_vendor_are_requested_live(project: BatchProject, fault: str) -> None:
    project.server.set(**{fault: True})
    found = project.run()
    assert not any(map(is_batch, found.values()))
    assert project.live == 6


@pytest.mark.parametrize("fault", ["failing_polls", "cut_polls", "failing_uploads", "cut_results"])
def test_temporary_errors_are_retried(project: BatchProject, fault: str) -> None:
    project.server.set(**{fault: 3})
    found = project.run()
    assert all(map(is_batch, found.values()))
    assert project.submitted == 6


@pytest.mark.parametrize("fault", ["queue_full", "queue_full_429"])
def test_a_batch_is_submitted_later_if_the_vendors_queue_is_full(project: BatchProject, fault: str) -> None:
    project.server.set(**{fault: 2})
    found = project.run()
    assert all(map(is_batch, found.values()))
    assert project.submitted == 6
    assert project.live == 0


def test_an_azure_batch_waits_until_its_file_is_processed(write: Write, server: BatchServer) -> None:
    server.set(pending_files=3)
    project = BatchProject(write, server, "azure")
    project.write_cases(*IDS)
    found = project.run()
    assert all(map(is_batch, found.values()))
    assert (project.submitted, project.live) == (6, 0)
    assert len(server.state()["batches"]) == 1
    assert len(server.state()["files"]) == 1  # uploaded once


def test_a_batch_that_is_never_accepted_is_sent_live_at_the_deadline(project: BatchProject) -> None:
    project.server.set(queue_full=10_000_000)
    found = project.run("--batch-deadline", "1")
    assert not any(map(is_batch, found.values()))
    assert (project.submitted, project.live) == (0, 6)
    assert not journaled()


def test_a_batch_that_cannot_be_polled_is_cancelled_at_the_deadline(project: BatchProject) -> None:
    project.server.set(polls=10_000_000, failing_polls=10_000_000)
    run = start("cases.jsonl", "--out", "out.jsonl", "--batch-deadline", "1")
    wait_until(lambda: any(batch["is_cancelled"] for batch in project.server.state()["batches"]))
    project.server.set(failing_polls=0)
    run.communicate()
    assert run.returncode == 0
    found = {result["eval_id"]: is_batch(result) for result in results("out.jsonl")}
    assert found == dict.fromkeys("abc", True) | dict.fromkeys("def", False)
    assert (project.submitted, project.live) == (6, 3)


def test_a_batch_whose_creation_was_not_confirmed_is_found(project: BatchProject) -> None:
    project.server.set(lost_creates=1)
    found = project.run()
    assert all(map(is_batch, found.values()))
    assert project.submitted == 6
    assert len(project.server.state()["batches"]) == 1


def test_an_interrupt_leaves_the_batch_running_and_suggests_resume(project: BatchProject) -> None:
    project.server.set(polls=100_000)
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: bool(project.server.state()["batches"]))
    wait_until(lambda: any(b"created" in (folder / "journal.jsonl").read_bytes() for folder in journaled()))
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 130
    assert (
        "1 batch is still at the vendor: continue with --resume, or fetch the answers with 'agentv batch collect'"
        in said
    )
    (batch,) = project.server.state()["batches"]
    assert not batch["is_cancelled"]
    (folder,) = journaled()
    assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}
    assert folder.stat().st_mode & 0o077 == 0
    assert b"secret-key-123" not in b"".join(path.read_bytes() for path in folder.iterdir())


def test_resume_after_an_interrupt_waits_for_the_same_batch(project: BatchProject) -> None:
    project.server.set(polls=20)
    project.set_target(batch_poll_seconds=600)  # it does not end by itself
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: any(b"created" in (folder / "journal.jsonl").read_bytes() for folder in journaled()))
    run.kill()
    run.communicate()
    project.set_target()
    found = project.run("--resume")
    assert all(map(is_batch, found.values()))
    assert project.submitted == 6
    assert not journaled()


def test_resume_resubmits_requests_that_ended_in_an_error(project: BatchProject) -> None:
    project.server.set(fail_every=2)
    project.run(expect=1)
    project.server.set(fail_every=0)
    found = project.run("--resume")
    assert all(map(is_batch, found.values()))
    assert project.submitted == 6 + 3


def test_answers_of_the_cache_are_not_submitted(project: BatchProject) -> None:
    project.run("--cache", "--limit", "4")
    assert project.submitted == 4
    found = project.run("--cache")
    assert project.submitted == 6
    assert len(found) == 6
    assert "4 answers served from the cache" in project.ran.stderr


def test_batches_are_split_below_the_limits(project: BatchProject, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = BatchLimits(requests=3, bytes=200_000_000)
    _, *others = openai.OpenAIBatches.__init__.__defaults__ or ()
    monkeypatch.setattr(openai.OpenAIBatches.__init__, "__defaults__", (limits, *others))
    found = project.run()
    assert all(map(is_batch, found.values()))
    assert sorted(len(batch["custom_ids"]) for batch in project.server.state()["batches"]) == [2, 2, 2]


def test_two_processes_do_not_handle_one_batch(project: BatchProject) -> None:
    project.server.set(polls=100_000)
    run = start("cases.jsonl", "--out", "first.jsonl")
    wait_until(lambda: any(b"created" in (folder / "journal.jsonl").read_bytes() for folder in journaled()))
    second = evaluate("cases.jsonl", "--out", "second.jsonl", expect=1)
    assert "is in use by another agentv process" in second.stderr
    run.kill()
    run.communicate()
    assert project.submitted == 6


@pytest.mark.parametrize(
    "target",
    [
        {"provider": "mock", "response": "x"},
        {"provider": "cli", "command_template": "true"},
        {"provider": "http", "url": "http://localhost:1"},
        {"provider": "claude-code"},
        {"provider": "codex"},
    ],
)
def test_other_targets_have_no_batch_api(write: Write, target: dict[str, Any]) -> None:
    path = write("targets.yaml", json.dumps({"targets": [{"name": "default", **target, "batch_api": True}]}))
    ran = agentv("validate", path)
    assert ran.returncode == 1
    assert f"{target['provider']} targets have no batch API" in flat(ran.stdout + ran.stderr)
    assert "remove it; providers with a batch API: openai, azure, anthropic, gemini" in flat(ran.stdout + ran.stderr)


def test_nothing_is_streamed_in_batches(project: BatchProject) -> None:
    project.set_target(stream=True)
    ran = evaluate("cases.jsonl", expect=2)
    assert "'batch_api' is set as well, and batches cannot be streamed" in flat(ran.stderr)


def test_batch_apis_are_rejected_on_a_cluster(project: BatchProject) -> None:
    ran = evaluate("cases.jsonl", "--cluster", "local:1", expect=2)
    assert "--cluster: target 'default' uses a batch API" in flat(ran.stderr)


def test_compare_names_batches_as_a_difference(project: BatchProject) -> None:
    project.server.set(fail_every=3)
    evaluate("cases.jsonl", "--out", "in_batches.jsonl", expect=1)
    project.set_target(batch_api=False)
    evaluate("cases.jsonl", "--out", "live.jsonl")
    ran = agentv("compare", "in_batches.jsonl", "live.jsonl")
    assert json.loads(ran.stdout)["changed"]["batch"] == 6
    assert "batch API used for one run only (6 pairs)" in flat(
        agentv("compare", "in_batches.jsonl", "live.jsonl", "--format", "table").stdout
    )
    assert json.loads(ran.stdout)["changed"].get("target", 0) == 0


@pytest.mark.parametrize("more", [(), ("--plan",)])
def test_more_trials_than_fit_into_batches_are_refused_before_anything_is_sent(
    project: BatchProject, more: tuple[str, ...]
) -> None:
    ran = evaluate("cases.jsonl", "--trials", "1000000", *more, expect=2)
    assert "target 'default' would get 6,000,000 requests, but batches hold at most 4,500,000" in flat(ran.stderr)
    assert "use fewer --trials, or split the run with --shard" in flat(ran.stderr)
    assert project.submitted == 0


def test_a_budget_cannot_be_combined_with_batches(project: BatchProject) -> None:
    ran = evaluate("cases.jsonl", "--max-cost", "1", expect=2)
    assert "target 'default' answers all its cases at once, so a budget cannot stop it" in flat(ran.stderr)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_an_invalid_deadline_is_rejected(project: BatchProject, seconds: str) -> None:
    ran = evaluate("cases.jsonl", "--batch-deadline", seconds, expect=2)
    assert "--batch-deadline" in ran.stderr


@pytest.mark.parametrize("seconds", [0, -1, "often"])
def test_an_invalid_poll_interval_is_rejected(project: BatchProject, seconds: Any) -> None:
    project.set_target(batch_poll_seconds=seconds)
    ran = evaluate("cases.jsonl", expect=2)
    assert "batch_poll_seconds" in ran.stderr
    assert project.submitted == 0
