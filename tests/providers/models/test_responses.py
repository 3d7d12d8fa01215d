"""The Responses API of OpenAI and Azure."""

import json
from typing import Any

import msgspec
import pytest

from agentv.project.validate import check_file
from agentv.records import Message, ToolCall
from tests.kits.model_servers import RESPONSES, a_request, ask, failing, model_server
from tests.kits.project import Write, a_case
from tests.kits.runs import evaluate, results

SCHEMA = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}
both = pytest.mark.parametrize("vendor", RESPONSES)


@both
def test_a_conversation(vendor: str) -> None:
    call = ToolCall(tool="search", input={"q": "France"}, id="c1")
    turns = (
        Message(role="system", content="Be brief."),
        Message(role="user", content="Capital of France?"),
        Message(role="assistant", content="Let me see.", tool_calls=(call,)),
        Message(role="tool", name="search", content="Paris"),
        Message(role="system", content="In capitals."),
        Message(role="user", content="Sure?"),
    )
    with model_server(lambda _: "YES") as server:
        ask(server.target(vendor, system_prompt="Think."), a_request("all of it", *turns))
    (sent,) = server.asked
    assert sent["instructions"] == "Think.\n\nBe brief."
    assert sent["store"] is False
    assert sent["input"] == [
        {"role": "user", "content": "Capital of France?"},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q":"France"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "Paris"},
        {"role": "system", "content": "In capitals."},
        {"role": "user", "content": "Sure?"},
    ]


def test_the_last_of_system_messages_alone_is_the_user_s() -> None:
    with model_server(lambda _: "Yes") as server:
        ask(
            server.target("openai-responses", system_prompt="Think."),
            a_request("q", Message(role="system", content="q")),
        )
    assert (server.asked[0]["instructions"], server.asked[0]["input"]) == ("Think.", [{"role": "user", "content": "q"}])


@both
def test_the_address(vendor: str) -> None:
    with model_server(lambda _: "Yes") as server:
        ask(server.target(vendor))
        if vendor == "azure-responses":
            ask(server.target(vendor, version="2025-03-01-preview"))
    paths = [asked.path for asked in server.requests]
    expected = {
        "openai-responses": ["/v1/responses"],
        "azure-responses": ["/openai/v1/responses", "/openai/responses?api-version=2025-03-01-preview"],
    }
    assert paths == expected[vendor]
    assert server.asked[0]["model"] == ("gpt-5" if vendor == "openai-responses" else "mine")


@both
def test_a_judge_request_has_its_schema(vendor: str) -> None:
    request = msgspec.structs.replace(a_request(), response_schema=SCHEMA)
    with model_server(lambda _: "{}") as server:
        ask(server.target(vendor, reasoning_effort="low", options={"text": {"verbosity": "low"}}), request)
    (sent,) = server.asked
    assert sent["text"] == {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}, "verbosity": "low"}
    assert sent["reasoning"] == {"effort": "low"}


def test_tools_that_the_vendor_runs_are_in_the_trace() -> None:
    output: list[dict[str, Any]] = [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "France"},
        },
        {
            "type": "mcp_call",
            "id": "m1",
            "name": "look_up",
            "server_label": "x",
            "arguments": '{"a": 1}',
            "output": "42",
        },
        {"type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "ls -l"},
        {"type": "code_interpreter_call", "id": "ci", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
        {"type": "some_new_thing", "id": "x"},
        {"type": "message", "content": [{"type": "output_text", "text": "Looking…"}], "phase": "commentary"},
        {"type": "message", "content": [{"type": "output_text", "text": "Paris"}], "phase": "final_answer"},
    ]
    with model_server(lambda _: {"output": output}) as server:
        got = ask(server.target("openai-responses"))
    assert got.text == "Paris"
    assert got.output_messages is not None
    assert got.output_messages[0].tool_calls == (
        ToolCall(tool="web_search", input={"type": "search", "query": "France"}, id="ws_1"),
        ToolCall(tool="look_up", input={"a": 1}, output="42", id="m1"),
        ToolCall(tool="shell", input="ls -l", id="c1"),
        ToolCall(tool="code_interpreter", input="1+1", output=[{"type": "logs", "logs": "2"}], id="ci"),
    )


@pytest.mark.parametrize(
    ("body", "words", "may_pass"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "sorry"}}, "the model failed: sorry", True),
        ({"status": "failed", "error": {"code": "invalid_prompt"}}, "the model failed: invalid_prompt", False),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": []},
            "the model refused: a content filter stopped it",
            False,
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []},
            "the model returned an empty answer (stop reason: max_output_tokens)",
            False,
        ),
        (
            {"output": [{"type": "message", "content": 7}]},
            "the model's answer is malformed: Expected `array | null`, got `int` - at `$.content`",
            False,
        ),
    ],
)
def test_invalid_answers(body: dict[str, Any], words: str, may_pass: bool) -> None:
    with model_server(lambda _: body) as server:
        error = failing(server.target("openai-responses"))
    assert (error.message, error.may_pass) == (words, may_pass)


@both
def test_a_judge_through_the_command_line(vendor: str, write: Write) -> None:
    with model_server(
        lambda _: json.dumps({"score": 0.9, "hits": ["right"], "misses": [], "reasoning": "ok"})
    ) as server:
        write("targets.yaml", json.dumps({"targets": [server.target(vendor)]}))
        write("a.jsonl", [a_case()])
        evaluate("a.jsonl", "--out", "out.jsonl")
    (result,) = results("out.jsonl")
    assert result["score"] == 0.9
    assert [("text" in sent) for sent in server.asked] == [False, True]


def test_an_unknown_api(write: Write) -> None:
    target = {"name": "a", "provider": "openai", "model": "m", "api": "assistants"}
    (found,) = check_file(write("targets.yaml", json.dumps({"targets": [target]}))).problems
    assert found.hint == "one of chat, responses"
    assert found.message == "target 'a': api: unknown api 'assistants'"
