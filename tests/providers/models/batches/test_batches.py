"""Guarantees of all vendors' batch APIs, tested against a server with their faults."""

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agentv.errors import ProviderError
from agentv.providers.models.batches.api import BatchModel, BatchReply, BatchStatus
from agentv.records import FileBlock, Media, Message, ProviderRequest, TextBlock, ToolCall
from tests.kits.batch_runs import KEY, collect, custom_ids, run_batch, submit, wait, with_model, write_requests
from tests.kits.batch_servers import BatchServer, batch_server, start_batch_server
from tests.kits.media import PNG
from tests.kits.model_servers import a_request, ask, model_server, nobody_there

VENDORS = ("openai", "openai-responses", "azure", "azure-responses", "anthropic", "gemini")
FAMILIES = ("openai", "azure", "anthropic", "gemini")
NO_GOOD = "this request is no good"
all_vendors = pytest.mark.parametrize("vendor", VENDORS)
each_vendor = pytest.mark.parametrize("vendor", FAMILIES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


def echoes(*numbers: int) -> dict[str, str]:
    return {custom_ids(number + 1)[-1]: f"echo: question {number}" for number in numbers}


def said_of(words: str, *numbers: int) -> dict[str, str]:
    return dict.fromkeys(echoes(*numbers), words)


def test_an_empty_answer_in_a_batch_is_paid_for_at_the_price_of_batches() -> None:
    body = {"choices": [{"message": {"content": ""}, "finish_reason": "length"}]}
    usage = {"prompt_tokens": 0, "completion_tokens": 7, "total_tokens": 7}
    target = {"name": "default", "provider": "openai", "model": "m", "api_key": "k", "pricing": {"output": 1_000_000}}

    async def read(model: BatchModel) -> ProviderError:
        with pytest.raises(ProviderError, match="the model returned an empty answer") as caught:
            model.response_to(json.dumps(body | {"usage": usage}).encode())
        return caught.value

    partial = with_model(target, read).partial
    assert partial is not None
    assert (partial.cost_usd, partial.batch) == (3.5, True)


@all_vendors
@pytest.mark.parametrize("order", ["same", "reversed"])
def test_each_answer_finds_its_request(vendor: str, order: str, path: Path) -> None:
    with batch_server(polls=2, order=order) as server:
        found = run_batch(server.target(vendor), path)
        state = server.state()
    assert (found.texts, found.errors, found.unanswered) == (echoes(0, 1, 2, 3), {}, {})
    assert (found.state.status, found.state.answered, found.state.failed, found.state.total) == (
        BatchStatus.ENDED,
        4,
        0,
        4,
    )
    assert state["submitted"] == dict.fromkeys(custom_ids(4), 1)
    assert state["live"] == {}


@all_vendors
def test_a_request_in_a_batch_is_the_one_that_is_sent_alone(vendor: str) -> None:
    schema = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}
    settings: dict[str, Any] = {"temperature": 0.5, "max_output_tokens": 99, "system_prompt": "Be brief."}
    request = ProviderRequest(eval_id="c", question="Why?", response_schema=schema)
    with model_server(lambda _: "{}") as server:
        target = server.target(vendor, **settings, reasoning_effort="low", options={"top_p": 0.25, "own_field": [1]})
        ask(target, request)
        body = with_model(target, lambda model: model.body(request))
    assert body == server.asked[0]
    assert body["own_field"] == [1]


@all_vendors
def test_a_conversation_in_a_batch_is_the_one_that_is_sent_alone(vendor: str, tmp_path: Path) -> None:
    image = tmp_path / "dot.png"
    image.write_bytes(PNG)
    media = Media(value="dot.png", path=image, type="image/png")
    call = ToolCall(tool="look", input={"at": "it"}, output={"seen": 1})
    turns = (
        Message(role="system", content="Be kind."),
        Message(role="user", content=(TextBlock(value="What is"), FileBlock(value="dot.png"))),
        Message(role="assistant", content="Let me see.", tool_calls=(call,)),
        Message(role="user", content="Well?"),
    )
    request = ProviderRequest(eval_id="c", question="?", chat_prompt=turns, media=(media,))
    with model_server(lambda _: "{}") as server:
        target = server.target(vendor, system_prompt="Be brief.")
        ask(target, request)
        body = with_model(target, lambda model: model.body(request))
    alone = json.loads(server.requests[0].content.replace(b"mime_type", b"mimeType"))  # Google takes both
    assert body == alone


@all_vendors
def test_requests_in_a_batch_are_not_streamed(vendor: str) -> None:
    with batch_server() as server:
        target = server.target(vendor, stream=True, options={"stream": True, "stream_options": {"include_usage": True}})
        if vendor == "gemini":
            del target["options"]
        body = with_model(target, lambda model: model.body(a_request()))
    assert "stream" not in body
    assert "stream_options" not in body


@all_vendors
def test_an_answer_has_its_tokens_and_cost_and_no_duration(vendor: str, path: Path) -> None:
    async def responses(model: BatchModel) -> list[Any]:
        batch = await submit(model, path, 1)
        await wait(model.batches(), batch)
        return [model.response_to(reply.body or b"") async for reply in model.batches().replies(batch)]

    with batch_server() as server:
        (response,) = with_model(server.target(vendor, pricing={"input": 1_000_000, "output": 2_000_000}), responses)
    assert (response.token_usage.input, response.token_usage.output, response.cost_usd) == (11, 7, 12.5)
    assert (response.text, response.stop_reason) == ("echo: question 0", "stop")
    assert response.duration_ms is None
    assert response.ttft_ms is None


@all_vendors
def test_a_reply_without_an_answer_is_an_error(vendor: str) -> None:
    async def read(model: BatchModel) -> None:
        for reply in (
            b"{}",
            b"no JSON",
            b"null",
            b'{"candidates": "?", "choices": "?", "output": "?", "content": "?"}',
        ):
            with pytest.raises(ProviderError):
                model.response_to(reply)

    with batch_server() as server:
        with_model(server.target(vendor), read)


@each_vendor
def test_unicode_line_separators_do_not_end_a_line(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> dict[str, str]:
        api = model.batches()
        path.write_bytes(api.line("a", await model.body(a_request("one\u2028two\x85three\rfour"))))
        return (await collect(model, await api.create(path, await api.upload(path, KEY), KEY))).texts

    with batch_server() as server:
        assert with_model(server.target(vendor), run) == {"a": "echo: one\u2028two\x85three\rfour"}


@each_vendor
def test_unreadable_lines_are_skipped(vendor: str, path: Path) -> None:
    with batch_server(has_broken_lines=True) as server:
        assert run_batch(server.target(vendor), path).texts == echoes(0, 1, 2, 3)


@each_vendor
def test_failed_requests_have_the_vendors_message(vendor: str, path: Path) -> None:
    with batch_server(fail_every=2, order="reversed") as server:
        found = run_batch(server.target(vendor), path)
    words = f"status 400: {NO_GOOD}" if vendor in ("openai", "azure") else NO_GOOD
    assert (found.texts, found.errors, found.unanswered) == (echoes(0, 2), said_of(words, 1, 3), {})
    assert (found.state.answered, found.state.failed) == (2, 2)


@each_vendor
def test_a_completed_batch_may_have_no_output(vendor: str, path: Path) -> None:
    with batch_server(no_output=True) as server:
        found = run_batch(server.target(vendor), path)
    assert found.state.status is BatchStatus.ENDED
    assert found.texts == {}
    assert found.errors.keys() == echoes(0, 1, 2, 3).keys()


@each_vendor
def test_requests_may_be_missing_from_all_results(vendor: str, path: Path) -> None:
    with batch_server(miss_every=3, fail_every=4) as server:
        found = run_batch(server.target(vendor), path)
    assert found.texts == echoes(0, 1)
    assert found.errors.keys() == echoes(3).keys()
    with batch_server(miss_every=1) as server:
        found = run_batch(server.target(vendor), path)
    assert (found.state.status, found.texts, found.errors) == (BatchStatus.ENDED, {}, {})


@pytest.mark.parametrize("vendor", ["openai", "azure", "anthropic"])
def test_expired_requests_were_not_processed(vendor: str, path: Path) -> None:
    with batch_server(expire_every=2) as server:
        found = run_batch(server.target(vendor), path)
    words = {
        "anthropic": "the request expired before it was sent to the model",
    }.get(vendor, "This request could not be executed before the completion window expired.")
    assert (found.texts, found.errors, found.unanswered) == (echoes(0, 2), {}, said_of(words, 1, 3))
    assert found.state.status is BatchStatus.ENDED


@each_vendor
def test_a_cancelled_batch_keeps_the_answers_so_far(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> Any:
        batch = await submit(model, path)
        await model.batches().cancel(batch)
        assert (await model.batches().state(batch)).status is BatchStatus.RUNNING
        return await collect(model, batch)

    with batch_server(polls=1_000_000) as server:
        found = with_model(server.target(vendor), run)
    assert (found.texts, found.errors) == (echoes(0, 1), {})
    assert found.unanswered.keys() == echoes(2, 3).keys()
    assert all(found.unanswered.values())


@each_vendor
def test_cancelling_an_ended_or_missing_batch_is_not_an_error(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> list[BatchStatus]:
        api, batch = model.batches(), await submit(model, path)
        await wait(api, batch)
        await api.cancel(batch)
        ended = await api.state(batch)
        server.set(batches_gone=True)
        await api.cancel(batch)
        return [ended.status, (await api.state(batch)).status]

    with batch_server() as server:
        assert with_model(server.target(vendor), run) == [BatchStatus.ENDED, BatchStatus.GONE]


@each_vendor
def test_deleted_results_are_missing(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> tuple[BatchStatus, list[BatchReply]]:
        api, batch = model.batches(), await submit(model, path)
        await wait(api, batch)
        server.set(results_gone=True)
        return (await api.state(batch)).status, [reply async for reply in api.replies(batch)]

    with batch_server() as server:
        status, replies = with_model(server.target(vendor), run)
    assert status is (BatchStatus.GONE if vendor == "anthropic" else BatchStatus.ENDED)
    assert replies == []


@each_vendor
def test_an_unknown_batch_is_gone(vendor: str, path: Path) -> None:
    with batch_server(batches_gone=True) as server:
        found = run_batch(server.target(vendor), path)
    assert found.state.status is BatchStatus.GONE
    assert found.state.words.startswith("status 404: ")


@each_vendor
def test_polls_may_fail_temporarily(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> tuple[list[ProviderError], Any]:
        batch, errors = await submit(model, path), []
        for _ in range(5):
            with pytest.raises(ProviderError) as failed:
                await model.batches().state(batch)
            errors.append(failed.value)
        return errors, await collect(model, batch)

    with batch_server(failing_polls=3, cut_polls=2) as server:
        errors, found = with_model(server.target(vendor), run)
    assert [(error.status, error.may_pass) for error in errors] == [(500, True)] * 3 + [(None, True)] * 2
    assert errors[0].message == "status 500: the server had an error"
    assert found.texts == echoes(0, 1, 2, 3)


@each_vendor
def test_a_truncated_download_can_be_repeated(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> Any:
        batch = await submit(model, path, 100)
        await wait(model.batches(), batch)
        with pytest.raises(ProviderError) as failed:
            _ = [reply async for reply in model.batches().replies(batch)]
        assert failed.value.may_pass
        return await collect(model, batch)

    with batch_server(cut_results=1) as server:
        found = with_model(server.target(vendor), run)
    assert found.texts == echoes(*range(100))


@each_vendor
def test_an_unreachable_server_is_retried(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> None:
        await write_requests(model, path, custom_ids(2))
        api = model.batches()
        with pytest.raises(ProviderError) as failed:
            await api.create(path, await api.upload(path, KEY), KEY)
        assert failed.value.may_pass
        assert failed.value.message.startswith("the connection failed: ")

    with nobody_there() as server:
        with_model(BatchServer(server.url).target(vendor), run)


@each_vendor
def test_a_vendor_may_refuse_a_batch_until_its_queue_is_shorter(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> Any:
        with pytest.raises(ProviderError) as failed:
            await submit(model, path)
        assert (failed.value.status, failed.value.may_pass) == (429, True)
        return await collect(model, await submit(model, path))

    with batch_server(queue_full_429=1) as server:
        assert with_model(server.target(vendor), run).texts == echoes(0, 1, 2, 3)
        assert set(server.state()["submitted"].values()) == {1}


@pytest.mark.parametrize(
    ("vendor", "words"),
    [
        ("openai", "failed: token_limit_exceeded: refused: token_limit_exceeded"),
        ("azure", "failed: token_limit_exceeded: refused: token_limit_exceeded"),
        ("gemini", "failed: refused: RESOURCE_EXHAUSTED"),
    ],
)
def test_a_batch_may_fail_because_the_queue_is_full(vendor: str, words: str, path: Path) -> None:
    with batch_server(queue_full=1) as server:
        state = run_batch(server.target(vendor), path).state
        assert (state.status, state.may_pass, state.words) == (BatchStatus.FAILED, True, words)
        assert server.state()["submitted"] == {}
        assert run_batch(server.target(vendor), path).texts == echoes(0, 1, 2, 3)


@pytest.mark.parametrize("vendor", ["openai", "azure"])
def test_a_model_that_is_rejected_fails_the_batch(vendor: str, path: Path) -> None:
    with batch_server(rejected_model="nobody") as server:
        settings = {"deployment" if vendor == "azure" else "model": "nobody"}
        state = run_batch(server.target(vendor, **settings), path).state
    assert (state.status, state.may_pass) == (BatchStatus.FAILED, False)
    assert state.words == "failed: model_not_found: refused: model_not_found"


@each_vendor
def test_an_unconfirmed_batch_is_found(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> Any:
        api = model.batches()
        for number in range(4):  # more than a page of the list has
            await submit(model, path, 3 + number, f"other-{number}")
        start = time.time()
        server.set(lost_creates=1)
        with pytest.raises(ProviderError) as failed:
            await submit(model, path, 2)
        assert failed.value.may_pass
        assert await api.find("another-key", custom_ids(99), start, ()) is None
        found = await api.find(KEY, custom_ids(2), start, ())
        assert found is not None
        assert await api.find(KEY, custom_ids(2), start, {found}) is None
        return await collect(model, found)

    with batch_server(polls=2) as server:
        found = with_model(server.target(vendor), run)
        assert found.texts == echoes(0, 1)
        assert len(server.state()["batches"]) == 5


@pytest.mark.parametrize("vendor", ["openai", "azure", "gemini"])
def test_of_several_batches_with_our_key_the_newest_is_found(vendor: str, path: Path) -> None:
    async def run(model: BatchModel) -> None:
        await submit(model, path)
        time.sleep(1.1)  # OpenAI counts whole seconds
        newest = await submit(model, path)
        assert await model.batches().find(KEY, custom_ids(4), 0.0, ()) == newest

    with batch_server() as server:
        with_model(server.target(vendor), run)


@each_vendor
@pytest.mark.parametrize("limit", ["max_requests", "max_bytes"])
def test_a_file_is_filled_up_to_the_vendors_limit(vendor: str, limit: str, path: Path) -> None:
    async def size(model: BatchModel) -> int:
        await write_requests(model, path, custom_ids(4))
        around = len('{"requests":[]}') - len("\n") if vendor == "anthropic" else 0
        return path.stat().st_size + around

    with batch_server() as server:
        target = server.target(vendor)
        most = 4 if limit == "max_requests" else with_model(target, size)
        server.set(**{limit: most})
        assert run_batch(target, path).texts == echoes(0, 1, 2, 3)
        server.set(**{limit: most - 1})
        try:
            state = run_batch(target, path).state
        except ProviderError as error:
            assert (error.status in (400, 413), error.may_pass) == (True, False)
        else:
            assert (state.status, state.may_pass) == (BatchStatus.FAILED, False)
        assert set(server.state()["submitted"].values()) == {1}


@each_vendor
@pytest.mark.slow
def test_a_large_batch_is_not_held_in_memory(vendor: str, path: Path) -> None:
    """Neither while it is sent nor while its results are read: 50 MB in 2,000 lines."""
    question = "x" * 25_000

    async def run(model: BatchModel) -> tuple[int, int]:
        api, count = model.batches(), 0
        body = await model.body(a_request(question))
        with path.open("wb") as file:
            file.writelines(api.line(custom_id, body) for custom_id in custom_ids(2000))
        tracemalloc.start()
        batch = await api.create(path, await api.upload(path, KEY), KEY)
        await wait(api, batch)
        async for reply in api.replies(batch):
            assert reply.body is not None
            assert question.encode() in reply.body
            count += 1
        return count, tracemalloc.get_traced_memory()[1]

    server = start_batch_server(polls=1)
    try:
        count, peak = with_model(server.target(vendor), run)
    finally:
        tracemalloc.stop()
    assert count == 2000
    assert path.stat().st_size > 50_000_000
    assert peak < (30_000_000 if vendor == "gemini" else 6_000_000)  # the SDK of Google sends 8 MiB at once


def test_a_server_process_behaves_like_one_in_a_thread(path: Path) -> None:
    server = start_batch_server(fail_every=2)
    target = server.target("openai")
    assert run_batch(target, path).texts == echoes(0, 2)
    server.set(fail_every=0)
    assert run_batch(target, path).texts == echoes(0, 1, 2, 3)
    assert ask(target, "Why?").text == "echo: Why?"
    state = server.state()
    assert state["submitted"] == dict.fromkeys(custom_ids(4), 2)
    assert state["live"] == {"Why?": 1}
    assert [batch["custom_ids"] for batch in state["batches"]] == [custom_ids(4)] * 2
