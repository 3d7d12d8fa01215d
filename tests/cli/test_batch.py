"""`agentv batch`: status, collect and cancel of requests sent through vendor batch APIs."""

import json
from collections.abc import Iterator

import pytest

from tests.kits.batch_servers import BatchServer, batch_server
from tests.kits.processes import wait_until
from tests.kits.project import Write, agentv, flat
from tests.kits.runs import start
from tests.kits.vendor_batches import BatchProject, is_batch, journaled

pytestmark = pytest.mark.slow


IDS = ("a", "b", "c", "d")


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server(polls=3) as running:
        yield running


@pytest.fixture
def project(write: Write, server: BatchServer) -> BatchProject:
    """A project whose run was killed when its batch was running."""
    project = BatchProject(write, server, batch_poll_seconds=600)
    project.write_cases(*IDS)
    run = start("cases.jsonl", "--out", "out.jsonl")
    wait_until(lambda: any(b"created" in (folder / "journal.jsonl").read_bytes() for folder in journaled()))
    wait_until(lambda: server.state()["asked"].get("poll", 0) == 1)
    run.kill()
    run.communicate()
    project.set_target()
    return project


@pytest.mark.parametrize("action", ["status", "collect", "cancel"])
def test_status_reports_that_there_are_no_batches(write: Write, action: str) -> None:
    write("targets.yaml", "targets: [{name: default, provider: mock}]")
    ran = agentv("batch", action)
    assert ran.returncode == 0
    assert ran.stdout == "no pending batches in .agentv/batches\n"


def test_status_has_the_vendors_counts(project: BatchProject) -> None:
    ran = agentv("batch", "status")
    (batch,) = project.server.state()["batches"]
    assert ran.returncode == 0
    assert ran.stdout.startswith(
        f"{batch['id']}: target default, 4 requests, running, 0 answered (in_progress), since 2"
    )
    (told,) = json.loads(agentv("batch", "status", "--format", "json").stdout)
    assert (told["status"], told["requests"], told["answered"]) == ("running", 4, 0)
    assert told["command"] == "agentv eval cases.jsonl --out out.jsonl --resume"


def test_collect_downloads_ended_batches_for_resume(project: BatchProject) -> None:
    ran = agentv("batch", "collect")
    assert "running" in ran.stdout
    assert "collect the batches that are still running later" in ran.stderr
    assert "running" in agentv("batch", "status").stdout
    ran = agentv("batch", "collect")
    (batch,) = project.server.state()["batches"]
    assert ran.returncode == 0
    assert ran.stdout.startswith(f"{batch['id']}: target default, 4 requests, collected, 4 answered")
    assert "to write the results, run: agentv eval cases.jsonl --out out.jsonl --resume" in ran.stderr
    project.server.set(batches_gone=True)  # nobody needs it any more
    found = project.run("--resume")
    assert all(map(is_batch, found.values()))
    assert (project.submitted, project.live) == (4, 0)
    assert "no pending batches" in agentv("batch", "status").stdout


def test_cancel_ends_a_batch_and_keeps_its_answers(project: BatchProject) -> None:
    ran = agentv("batch", "cancel")
    assert ran.returncode == 0
    (batch,) = project.server.state()["batches"]
    assert batch["is_cancelled"]
    for action in ("status", "collect", "status"):  # what is said of it does not change when it is collected
        said = agentv("batch", action).stdout
    assert "4 requests, collected, 2 answered, 2 failed (cancelled)" in said
    found = project.run("--resume")
    assert [id_ for id_, result in found.items() if is_batch(result)] == ["a", "b"]
    assert project.live == 2
    assert project.submitted == 4


@pytest.mark.parametrize("action", ["collect", "cancel"])
def test_an_unknown_batch_is_a_usage_error(project: BatchProject, action: str) -> None:
    ran = agentv("batch", action, "batch_of_another")
    assert ran.returncode == 2
    assert "no batch 'batch_of_another' in " in flat(ran.stderr)


def test_a_missing_target_is_reported_and_the_batch_is_kept(project: BatchProject, write: Write) -> None:
    write("targets.yaml", "targets: [{name: other, provider: mock}]")
    ran = agentv("batch", "status")
    assert ran.returncode == 1
    assert "target 'default' cannot be opened" in flat(ran.stdout)
    assert journaled()


def test_an_unreachable_vendor_is_reported(project: BatchProject) -> None:
    project.server.set(failing_polls=1)
    ran = agentv("batch", "status")
    assert ran.returncode == 1
    assert "status 500: the server had an error" in flat(ran.stdout)


def test_a_batch_of_a_running_run_is_not_touched(project: BatchProject) -> None:
    project.set_target(batch_poll_seconds=600)
    before = project.server.state()["asked"]["poll"]
    run = start("cases.jsonl", "--out", "out.jsonl", "--resume")
    wait_until(lambda: project.server.state()["asked"]["poll"] > before)
    for action in ("collect", "cancel"):
        ran = agentv("batch", action)
        assert "in use by another agentv process" in flat(ran.stdout)
    (batch,) = project.server.state()["batches"]
    assert not batch["is_cancelled"]
    run.kill()
    run.communicate()
