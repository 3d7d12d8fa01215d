"""The particularities of Anthropic."""

import asyncio
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from agentv.records import Message, TokenUsage, ToolCall
from tests.kits.model_servers import Answer, Reply, a_request, ask, asked, failing, model_server


def test_the_default_limit_of_tokens() -> None:
    with model_server(lambda _: "Paris") as server:
        ask(server.target("anthropic"))
    assert server.asked[0]["max_tokens"] == 4096
    assert server.requests[0].path == "/v1/messages"


def test_a_limit_for_which_the_sdk_would_want_to_stream() -> None:
    with model_server(lambda _: "Paris") as server:
        assert ask(server.target("anthropic", max_output_tokens=1_000_000)).text == "Paris"


def test_options_take_precedence_over_settings() -> None:
    with model_server(lambda _: "Paris") as server:
        thinking = {"type": "enabled", "budget_tokens": 2000}
        ask(server.target("anthropic", temperature=0.5, options={"temperature": 1, "thinking": thinking}))
    assert (server.asked[0]["temperature"], server.asked[0]["thinking"]) == (1, thinking)


def test_cache_write_tokens_are_input() -> None:
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 100,
    }
    with model_server(lambda _: {"content": [{"type": "text", "text": "Paris"}], "usage": usage}) as server:
        assert ask(server.target("anthropic")).token_usage == TokenUsage(
            input=111, output=2, cached=10, cache_write=100
        )


def test_blocks_of_all_kinds() -> None:
    """Tools that the vendor runs have an output. Redacted blocks are omitted."""
    found = [{"type": "web_search_result", "title": "Paris", "url": "https://example.com"}]
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Let me see.", "signature": "x"},
        {"type": "redacted_thinking", "data": "abc"},
        {"type": "text", "text": "It is "},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "France"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": found},
        {"type": "thinking", "thinking": "Found it.", "signature": "x"},
        {"type": "text", "text": "Paris."},
        {"type": "tool_use", "id": "t1", "name": "save", "input": {"city": "Paris"}},
    ]
    with model_server(lambda _: {"content": content}) as server:
        got = ask(server.target("anthropic"))
    assert got.text == "It is Paris."
    calls = (
        ToolCall(tool="web_search", input={"query": "France"}, output=found, id="s1"),
        ToolCall(tool="save", input={"city": "Paris"}, id="t1"),
    )
    assert got.output_messages == (
        Message(role="assistant", name="reasoning", content="Let me see.\n\nFound it."),
        Message(role="assistant", content="It is Paris.", tool_calls=calls),
    )


def test_a_refusal_without_an_explanation() -> None:
    refused = {"content": [], "stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "bio"}}
    with model_server(lambda _: refused) as server:
        assert failing(server.target("anthropic")).message == "the model refused: bio"
    with model_server(lambda _: {"content": [], "stop_reason": "refusal"}) as server:
        assert failing(server.target("anthropic")).message == "the model refused: no reason given"


def test_a_tool_input_that_is_not_an_object_is_wrapped() -> None:
    turns = (
        Message(role="user", content="Hi"),
        Message(role="assistant", tool_calls=(ToolCall(tool="search", input="France", output="Paris"),)),
    )
    with model_server(lambda _: "Yes") as server:
        ask(server.target("anthropic"), a_request("", *turns))
    assert server.asked[0]["messages"][1]["content"][0]["input"] == {"input": "France"}


def test_a_missing_key_is_explained() -> None:
    """In a separate home folder, because the SDK looks for profiles there."""
    code = """
import asyncio, sys, tests.kits.model_servers as m
try:
    m.ask({"name": "a", "provider": "anthropic", "model": "m"})
except m.ProviderError as error:
    print(error.message)
"""
    environment = {"HOME": "/nonexistent", "PATH": "", "PYTHONPATH": "."}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "authentication" in ran.stdout


def test_a_judge_request_has_its_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}, "hits": {"type": "array", "items": {"type": "string"}}},
        "required": ["score"],
    }  # fmt: skip
    request = msgspec.structs.replace(a_request(), response_schema=schema)
    with model_server(lambda _: "{}") as server:
        ask(server.target("anthropic", reasoning_effort="low"), request)
    sent = server.asked[0]["output_config"]
    assert sent["effort"] == "low"
    assert sent["format"]["type"] == "json_schema"
    assert sent["format"]["schema"]["additionalProperties"] is False
    assert sent["format"]["schema"]["required"] == ["score"]
    assert "minimum" not in sent["format"]["schema"]["properties"]["score"]  # which the API does not take


def test_a_model_without_schema_support_is_called_without_one() -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if "output_config" in body:
            words = "output_config.format: 'claude-3' does not support structured outputs"
            return Reply(400, {"type": "error", "error": {"type": "invalid_request_error", "message": words}})
        return "{}"

    request = msgspec.structs.replace(a_request(), response_schema={"type": "object", "properties": {}})
    with model_server(answer) as server:
        asyncio.run(asked(server.target("anthropic"), request, request))
    assert ["output_config" in body for body in server.asked] == [True, False, False]


def test_cache_writes_have_their_own_price() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 100}
    with model_server(lambda _: {"content": [{"type": "text", "text": "Paris"}], "usage": usage}) as server:
        prices = {"input": 3, "output": 15, "cached": 0.3}
        with_price = ask(server.target("anthropic", pricing={**prices, "cache_write": 3.75}))
        without = ask(server.target("anthropic", pricing=prices))
    assert with_price.cost_usd == pytest.approx((1 * 3 + 10 * 0.3 + 100 * 3.75 + 2 * 15) / 1_000_000)
    assert without.cost_usd == pytest.approx((101 * 3 + 10 * 0.3 + 2 * 15) / 1_000_000)
