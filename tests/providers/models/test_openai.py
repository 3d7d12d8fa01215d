"""The particularities of OpenAI and compatible servers."""

import json
from typing import Any

import pytest

from agentv.project.validate import check_file
from agentv.records import FileBlock, Message, TextBlock, TokenUsage, ToolCall
from tests.kits.model_servers import Answer, Reply, a_request, ask, completion, failing, model_server
from tests.kits.project import Write


def said(message: Answer) -> Any:
    with model_server(lambda _: message) as server:
        return ask(server.target("openai"))


def test_arguments_that_are_not_json_are_unchanged() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"q": "Fra'}}
    custom = {"id": "2", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
    got = said({"content": None, "tool_calls": [call, custom]})
    assert got.output_messages[0].tool_calls == (
        ToolCall(tool="search", input='{"q": "Fra', id="1"),
        ToolCall(tool="shell", input="ls -l", id="2"),
    )


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_of_compatible_servers(name: str) -> None:
    got = said({"content": "Paris", name: "Hm."})
    assert got.output_messages[0] == Message(role="assistant", name="reasoning", content="Hm.")
    assert got.text == "Paris"


def test_content_in_parts() -> None:
    assert said({"content": [{"type": "text", "text": "Pa"}, {"type": "text", "text": "ris"}]}).text == "Paris"


def test_a_cost_that_is_reported_counts_unless_prices_are_set() -> None:
    body = completion("Paris")
    body["usage"]["cost"] = 0.25
    with model_server(lambda _: Reply(body=body)) as server:
        assert ask(server.target("openai")).cost_usd == 0.25
        assert ask(server.target("openai", pricing={"input": 1_000_000})).cost_usd == 11


def test_no_figures_at_all() -> None:
    body = completion("Paris")
    del body["usage"]
    with model_server(lambda _: Reply(body=body)) as server:
        got = ask(server.target("openai", pricing={"input": 1}))
    assert (got.text, got.token_usage, got.cost_usd) == ("Paris", None, None)
    body["usage"] = {"prompt_tokens": 3}
    with model_server(lambda _: Reply(body=body)) as server:
        assert ask(server.target("openai")).token_usage == TokenUsage(input=3)


def test_a_server_that_reports_an_error_as_a_success() -> None:
    with model_server(lambda _: Reply(body={"error": {"message": "the model is asleep"}})) as server:
        error = failing(server.target("openai"))
    assert error.message == "the model returned no answer: its list of choices is empty: the model is asleep"


def test_a_malformed_answer_is_located() -> None:
    body = completion("Paris")
    body["usage"]["prompt_tokens"] = "eleven"
    with model_server(lambda _: Reply(body=body)) as server:
        error = failing(server.target("openai"))
    assert error.message == (
        "the model's answer is malformed: Expected `int | null`, got `str` - at `$.usage.prompt_tokens`"
    )


def test_contents_that_are_not_text() -> None:
    turns = (
        Message(role="user", content={"city": "Paris"}),
        Message(role="user", content=(TextBlock("Look at"), FileBlock("map.txt"))),
    )
    with model_server(lambda _: "Yes") as server:
        ask(server.target("openai"), a_request("", *turns))
    assert [turn["content"] for turn in server.asked[0]["messages"]] == ['{"city":"Paris"}', "Look at\nmap.txt"]


def test_two_tools_are_answered_by_name() -> None:
    calls = ToolCall(tool="search", input="France"), ToolCall(tool="read", id="r1")
    turns = (
        Message(role="assistant", tool_calls=calls),
        Message(role="tool", name="read", content="a page"),
        Message(role="tool", content="a list"),
    )
    with model_server(lambda _: "Yes") as server:
        ask(server.target("openai"), a_request("", *turns))
    messages = server.asked[0]["messages"]
    assert [message["tool_call_id"] for message in messages[1:]] == ["r1", "call_1"]
    assert [call["function"]["arguments"] for call in messages[0]["tool_calls"]] == ["France", "{}"]


def test_effort_is_sent() -> None:
    with model_server(lambda _: "Yes") as server:
        ask(server.target("openai", reasoning_effort="minimal"))
    assert server.asked[0]["reasoning_effort"] == "minimal"


@pytest.mark.parametrize(
    ("vendor", "effort", "hint"),
    [
        ("openai", "huge", "one of none, minimal, low, medium, high, xhigh, max"),
        ("anthropic", "minimal", "one of low, medium, high, xhigh, max"),
        ("gemini", "max", "one of minimal, low, medium, high"),
    ],
)
def test_an_effort_that_the_vendor_does_not_have(write: Write, vendor: str, effort: str, hint: str) -> None:
    target = {"name": "a", "provider": vendor, "model": "m", "reasoning_effort": effort}
    (found,) = check_file(write("targets.yaml", json.dumps({"targets": [target]}))).problems
    assert found.message == f"target 'a': reasoning_effort: {vendor} does not support effort {effort!r}"
    assert found.hint == hint
