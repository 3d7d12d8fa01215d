"""The particularities of each vendor's batches."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agentv.errors import ProviderError
from agentv.providers.models.batches.api import BatchLimits, BatchModel, BatchStatus
from tests.kits.batch_runs import KEY, collect, custom_ids, run_batch, submit, wait, with_model, write_requests
from tests.kits.batch_servers import batch_server
from tests.kits.model_servers import a_request


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


def a_line(target: dict[str, Any]) -> Any:
    """A request of a target, as written to the file."""

    async def line(model: BatchModel) -> bytes:
        return model.batches().line("an-id", await model.body(a_request("Why?")))

    text = with_model(target, line)
    assert text.endswith(b"}\n")
    return json.loads(text)


@pytest.mark.parametrize(
    ("vendor", "settings", "url"),
    [
        ("openai", {}, "/v1/chat/completions"),
        ("openai-responses", {}, "/v1/responses"),
        ("azure", {}, "/chat/completions"),
        ("azure", {"version": "2025-04-01-preview"}, "/chat/completions"),
        ("azure", {"version": "v1"}, "/v1/chat/completions"),
        ("azure-responses", {}, "/v1/responses"),
    ],
)
def test_openai_requests_name_the_address_they_are_for(
    vendor: str, settings: dict[str, Any], url: str, path: Path
) -> None:
    with batch_server() as server:
        target = server.target(vendor, **settings)
        line = a_line(target)
        assert (line["custom_id"], line["method"], line["url"]) == ("an-id", "POST", url)
        assert line["body"]["model"] == ("mine" if vendor.startswith("azure") else "gpt-5")
        assert len(run_batch(target, path).texts) == 4
        assert {batch["vendor"] for batch in server.state()["batches"]} == {vendor.partition("-")[0]}


def test_anthropic_requests_are_params_and_those_of_gemini_requests() -> None:
    with batch_server() as server:
        anthropic, gemini = a_line(server.target("anthropic")), a_line(server.target("gemini"))
    assert (anthropic.keys(), anthropic["custom_id"]) == ({"custom_id", "params"}, "an-id")
    assert anthropic["params"]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
    assert (gemini.keys(), gemini["key"]) == ({"key", "request"}, "an-id")
    assert gemini["request"]["contents"] == [{"role": "user", "parts": [{"text": "Why?"}]}]


@pytest.mark.parametrize(
    ("vendor", "limits"),
    [
        ("openai", (50_000, 200_000_000)),
        ("azure", (100_000, 200_000_000)),
        ("anthropic", (100_000, 256_000_000)),
        ("gemini", (100_000, 2_000_000_000)),
    ],
)
def test_limits_are_those_of_the_vendors(vendor: str, limits: tuple[int, int]) -> None:
    async def of(model: BatchModel) -> BatchLimits:
        return model.batches().limits

    with batch_server() as server:
        assert with_model(server.target(vendor), of) == limits


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"rejected_model": "gpt-5"}, "failed: model_not_found: refused: model_not_found"),
        ({"max_requests": 3}, "failed: too_many_tasks: refused: too_many_tasks"),
    ],
)
def test_openai_reports_why_it_rejected_a_batch(faults: dict[str, Any], words: str, path: Path) -> None:
    with batch_server(**faults) as server:
        found = run_batch(server.target("openai"), path)
    assert (found.state.status, found.state.words) == (BatchStatus.FAILED, words)


def test_openai_uploads_may_fail(path: Path) -> None:
    async def run(model: BatchModel) -> Any:
        with pytest.raises(ProviderError) as failed:
            await submit(model, path)
        assert (failed.value.status, failed.value.may_pass) == (500, True)
        return await collect(model, await submit(model, path))

    with batch_server(failing_uploads=1) as server:
        assert len(with_model(server.target("openai"), run).texts) == 4


def test_azure_creates_a_batch_only_for_a_processed_file(path: Path) -> None:
    async def run(model: BatchModel) -> Any:
        api = model.batches()
        await write_requests(model, path, custom_ids(4))
        file = await api.upload(path, KEY)
        for _ in range(2):
            with pytest.raises(ProviderError, match=r"the uploaded file is not processed yet \(pending\)") as early:
                await api.create(path, file, KEY)
            assert early.value.may_pass
        return await collect(model, await api.create(path, file, KEY))

    with batch_server(pending_files=2) as server:
        assert len(with_model(server.target("azure"), run).texts) == 4


def test_a_file_that_azure_cannot_process_is_an_error(path: Path) -> None:
    async def run(model: BatchModel) -> None:
        with pytest.raises(ProviderError, match=r"the uploaded file cannot be used \(error\): bad line") as failed:
            await submit(model, path)
        assert not failed.value.may_pass

    with batch_server(file_status="error") as server:
        with_model(server.target("azure"), run)


def test_anthropic_does_not_accept_files(path: Path) -> None:
    async def run(model: BatchModel) -> str:
        await write_requests(model, path, custom_ids(2))
        return await model.batches().upload(path, "key")

    with batch_server() as server:
        assert with_model(server.target("anthropic"), run) == ""
        assert server.state()["files"] == {}


def test_anthropic_reports_an_unknown_model_in_each_result(path: Path) -> None:
    with batch_server(rejected_model="nobody") as server:
        found = run_batch(server.target("anthropic", model="nobody"), path)
    assert (found.texts, set(found.errors.values())) == ({}, {"model: nobody"})


def test_a_running_batch_of_anthropic_is_ours_until_its_results_say_otherwise(path: Path) -> None:
    async def run(model: BatchModel) -> None:
        api, start = model.batches(), time.time()
        foreign = await submit(model, path, 3)
        ours = [f"ours-{number}" for number in range(3)]
        assert await api.find("key", ours, start, ()) == foreign
        await wait(api, foreign)
        assert await api.find("key", ours, start, ()) is None
        await write_requests(model, path, ours)
        created = await api.create(path, "", "key")
        await submit(model, path, 3)  # a newer one, of others
        assert await api.find("key", ours, start, ()) == created  # the first of those that are running
        await wait(api, created)
        assert await api.find("key", ours, start, ()) == created

    with batch_server(polls=1) as server:
        with_model(server.target("anthropic"), run)


def test_batches_of_anthropic_that_are_older_than_the_requests_are_not_ours(path: Path) -> None:
    async def run(model: BatchModel) -> None:
        await submit(model, path, 3)
        assert await model.batches().find("key", custom_ids(3), time.time() + 86_400, ()) is None

    with batch_server(polls=1) as server:
        with_model(server.target("anthropic"), run)


def test_an_expired_batch_of_gemini_has_no_results(path: Path) -> None:
    with batch_server(expire_every=2) as server:
        found = run_batch(server.target("gemini"), path)
    assert (found.state.status, found.state.words) == (BatchStatus.ENDED, "expired")
    assert (found.texts, found.errors, found.unanswered) == ({}, {}, {})


def test_gemini_rejects_an_unknown_model(path: Path) -> None:
    with batch_server(rejected_model="nobody") as server:
        with pytest.raises(ProviderError) as failed:
            run_batch(server.target("gemini", model="nobody"), path)
        assert server.state()["submitted"] == {}
    assert (failed.value.message, failed.value.may_pass) == ("status 404: models/nobody is not found", False)


def test_options_of_gemini_are_in_the_requests_and_not_around_them(path: Path) -> None:
    with batch_server() as server:
        target = server.target("gemini", options={"topP": 0.5, "own_field": {"a": 1}})
        request = a_line(target)["request"]
        assert (request["generationConfig"]["topP"], request["own_field"]) == (0.5, {"a": 1})
        assert len(run_batch(target, path).texts) == 4


def test_building_a_request_makes_no_calls(path: Path) -> None:
    with batch_server() as server:
        target = server.target("gemini")
    assert a_line(target)["request"]["contents"]  # nobody is there any more
