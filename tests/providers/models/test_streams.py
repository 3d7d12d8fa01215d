"""Streamed answers: the same as unstreamed ones, with the time to the first token."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentv.files.conversion import convert
from agentv.providers import settings_type
from agentv.records import ProviderResponse
from tests.kits.model_servers import (
    RESPONSES,
    VENDORS,
    Answer,
    Reply,
    Says,
    a_request,
    anthropic_message,
    ask,
    completion,
    failing,
    gemini_content,
    model_server,
    response_object,
)
from tests.kits.model_streams import anthropic_events, chat_events, encode
from tests.kits.project import Write, a_case
from tests.kits.runs import run_one

every_vendor = pytest.mark.parametrize("vendor", (*VENDORS, *RESPONSES))
CALLS = (("search", {"q": "the capital of France"}), ("read", {"pages": [1, 2], "deep": {"x": None}}))


def without_times(got: ProviderResponse) -> ProviderResponse:
    return msgspec.structs.replace(got, duration_ms=None, ttft_ms=None)


@every_vendor
@pytest.mark.parametrize(
    "says",
    [
        Says("Paris, of course: \u00e9\u4e2d\U0001f600.", cached=4, reasoning=3),
        Says("Let me see.", calls=CALLS, thinking="Hm, a capital it is.", reasoning=2),
        Says(calls=CALLS[:1]),
    ],
)
def test_a_streamed_answer_is_the_same_as_one_in_one_piece(vendor: str, says: Says) -> None:
    with model_server(lambda _: says) as server:
        whole = ask(server.target(vendor, pricing={"input": 1, "output": 2}))
        streamed = ask(server.target(vendor, pricing={"input": 1, "output": 2}, stream=True))
    assert without_times(streamed) == without_times(whole)
    assert whole.ttft_ms is None
    assert streamed.ttft_ms is not None
    assert streamed.duration_ms is not None
    assert 0 < streamed.ttft_ms <= streamed.duration_ms


@pytest.mark.parametrize(
    ("vendor", "stop"),
    [
        ("openai", "length"),
        ("azure", "length"),
        ("anthropic", "max_tokens"),
        ("gemini", "MAX_TOKENS"),
        ("openai-responses", "max_output_tokens"),
        ("azure-responses", "max_output_tokens"),
    ],
)
def test_a_truncated_streamed_answer_is_noted(vendor: str, stop: str) -> None:
    with model_server(lambda _: Says("Par", stop=stop)) as server:
        assert ask(server.target(vendor, stream=True)).stop_reason == "length"


@every_vendor
def test_a_streamed_refusal_is_an_error_with_the_vendors_message(vendor: str) -> None:
    with model_server(lambda _: Says(refusal="I must not help with that")) as server:
        target = server.target(vendor)
        assert failing({**target, "stream": True}).message == failing(target).message


@every_vendor
@pytest.mark.parametrize("status", [429, 400])
def test_an_error_status_is_reported_as_without_streaming(vendor: str, status: int) -> None:
    with model_server(lambda _: status) as server:
        error = failing(server.target(vendor, stream=True))
    assert (error.message, error.status, error.may_pass) == (f"status {status}: no luck", status, status == 429)


@every_vendor
def test_a_stream_that_ends_early_is_retried(vendor: str) -> None:
    start: dict[str, Any] = {
        "choices": [{"index": 0, "delta": {"content": "Par"}, "finish_reason": None}],
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Par"}]}}],
        "type": "message_start",
        "message": {"content": [], "usage": {"input_tokens": 1, "output_tokens": 1}},
    }
    body = encode(iter([("" if vendor == "gemini" else "message_start", start)]))
    with model_server(lambda _: Reply(body=body, headers={"Content-Type": "text/event-stream"})) as server:
        error = failing(server.target(vendor, stream=True))
    assert error.message == "the answer is incomplete: the stream ended early"
    assert error.may_pass


@every_vendor
def test_a_connection_that_drops_in_mid_stream_is_a_temporary_error(vendor: str) -> None:
    body = encode(chat_events(completion("Paris")))[:100]
    reply = Reply(body=body, headers={"Content-Type": "text/event-stream"}, cut=True)
    with model_server(lambda _: reply) as server:
        error = failing(server.target(vendor, stream=True))
    assert error.may_pass
    assert error.message.startswith("the connection failed: ")


@pytest.mark.parametrize(
    ("vendor", "event", "words", "may_pass"),
    [
        ("openai", ("", {"error": {"message": "the server is tired", "type": "server_error"}}),
         "the answer is incomplete: the server is tired", True),
        ("anthropic", ("error", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
         "the answer is incomplete: Overloaded", True),
        ("openai-responses", ("error", {"type": "error", "code": "server_error", "message": "sorry"}),
         "the model failed: sorry", True),
        ("openai-responses",
         ("x", {"type": "response.failed", "response": {"status": "failed", "output": [], "error":
          {"code": "invalid_prompt", "message": "no such thing"}}}),
         "the model failed: no such thing", False),
    ],
)  # fmt: skip
def test_an_error_in_the_middle_of_a_stream(vendor: str, event: Any, words: str, may_pass: bool) -> None:
    body = encode(iter([event]))
    with model_server(lambda _: Reply(body=body, headers={"Content-Type": "text/event-stream"})) as server:
        error = failing(server.target(vendor, stream=True))
    assert (error.message, error.may_pass) == (words, may_pass)


@every_vendor
@pytest.mark.parametrize(
    "data",
    [
        b'event: message_start\ndata: {"type": "message\n\n',
        b"event: x\ndata: [1, 2]\n\n",
        b'event: x\ndata: {"choices": [7], "candidates": [7], "type": "message_start", "message": 7}\n\n',
        b'event: x\ndata: {"choices": [{"delta": {"tool_calls": [7]}}], "candidates": [{"content": {"parts": 7}}]}\n\n',
        b"<html>Welcome to the hotel</html>",
        b"",
    ],
)
def test_an_invalid_stream_is_an_error_for_the_case(vendor: str, data: bytes) -> None:
    if vendor == "gemini":  # whose events have no names
        data = data.partition(b"\n")[2] or data
    with model_server(lambda _: Reply(body=data, headers={"Content-Type": "text/event-stream"})) as server:
        error = failing(server.target(vendor, stream=True))
    assert error.message.startswith(
        ("the model's answer is malformed: ", "the answer is incomplete: ", "the model returned no answer")
    )


@pytest.mark.parametrize("vendor", ["openai", "anthropic", "openai-responses"])
def test_a_response_that_is_not_streamed_is_read(vendor: str) -> None:
    with model_server(lambda _: "Paris") as server:
        plain = ask(server.target(vendor))
    body = msgspec.json.encode(_whole(vendor))
    with model_server(lambda _: Reply(body=body)) as server:
        got = ask(server.target(vendor, stream=True))
    assert without_times(got) == without_times(plain)
    assert got.ttft_ms is None


def test_usage_is_requested_for_streamed_chat_completions() -> None:
    with model_server(lambda _: "Paris") as server:
        ask(server.target("openai", stream=True))
        ask(server.target("openai", stream=True, options={"stream_options": {"include_obfuscation": False}}))
    assert server.asked[0]["stream_options"] == {"include_usage": True}
    assert server.asked[1]["stream_options"] == {"include_usage": True, "include_obfuscation": False}


def test_a_tool_of_anthropic_without_arguments_has_an_empty_object() -> None:
    body = encode(anthropic_events({**_whole("anthropic"), "content": [
        {"type": "tool_use", "id": "t1", "name": "now", "input": {}},
    ]}))  # fmt: skip
    with model_server(lambda _: Reply(body=body, headers={"Content-Type": "text/event-stream"})) as server:
        got = ask(server.target("anthropic", stream=True))
    assert got.output_messages is not None
    assert got.output_messages[0].tool_calls is not None
    assert got.output_messages[0].tool_calls[0].input == {}


@every_vendor
def test_the_time_to_the_first_token_is_in_the_result(vendor: str, write: Write) -> None:
    with model_server(lambda _: "Paris") as server:
        target = msgspec.json.encode({"targets": [server.target(vendor, stream=True)]}).decode()
        write("targets.yaml", target)
        write("a.jsonl", [a_case(evaluators=[{"type": "contains", "value": "Paris"}])])
        metrics = run_one("a.jsonl")["execution_metrics"]
    assert 0 < metrics["ttft_ms"] <= metrics["duration_ms"]


@every_vendor
def test_a_call_cancelled_in_mid_stream_can_be_repeated(vendor: str) -> None:
    late = threading.Event()

    def answer(_: Any) -> Answer:
        return Reply(body=_whole(vendor), pause=late) if len(server.asked) == 1 else "Paris"

    async def impatient(target: dict[str, Any]) -> str:
        settings: Any = convert(target, settings_type(target["provider"]))
        async with settings.open(Path()) as provider:
            waiting = asyncio.ensure_future(provider.invoke(a_request()))
            while not server.asked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # for the first half of the reply
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            late.set()
            return str((await provider.invoke(a_request())).text)

    with model_server(answer) as server:
        assert asyncio.run(impatient(server.target(vendor, stream=True))) == "Paris"


def _whole(vendor: str) -> dict[str, Any]:
    formats: dict[str, Any] = {"anthropic": anthropic_message, "gemini": gemini_content}
    speak: Any = formats.get(vendor, response_object if vendor in RESPONSES else completion)
    body: dict[str, Any] = speak("Paris")
    return body
