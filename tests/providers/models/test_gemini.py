"""The particularities of Gemini."""

import asyncio
import gc
from typing import Any

import pytest

from agentv.files.conversion import convert
from agentv.providers import settings_type
from agentv.records import Message, ToolCall
from tests.kits.model_servers import Answer, Reply, a_request, ask, failing, model_server


def test_there_is_a_default_model() -> None:
    with model_server(lambda _: "Paris") as server:
        ask(server.target("gemini"))
        ask(server.target("gemini", model="gemini-9-pro"))
    assert [asked.path.rpartition("/models/")[2] for asked in server.requests] == [
        "gemini-3.8-flash:generateContent",
        "gemini-9-pro:generateContent",
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},
            "the prompt was blocked: PROHIBITED_CONTENT",
        ),
        (
            {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}]},
            "the model stopped early: MALFORMED_FUNCTION_CALL",
        ),
        (
            {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]},
            "the model returned an empty answer (stop reason: MAX_TOKENS)",
        ),
    ],
)
def test_invalid_answers(body: dict[str, Any], words: str) -> None:
    with model_server(lambda _: body) as server:
        assert failing(server.target("gemini")).message == words


def test_a_blocked_candidate_names_the_reason() -> None:
    rating = {"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH", "blocked": True}
    with model_server(lambda _: {"candidates": [{"finishReason": "SAFETY", "safetyRatings": [rating]}]}) as server:
        error = failing(server.target("gemini"))
    assert error.message == "the model stopped early: SAFETY: HARM_CATEGORY_HARASSMENT"


def test_the_retry_delay_of_gemini_is_in_the_body() -> None:
    details = [{"@type": "x/google.rpc.Help"}, {"@type": "x/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    body = {"error": {"code": 429, "message": "too many", "status": "RESOURCE_EXHAUSTED", "details": details}}
    with model_server(lambda _: Reply(429, body)) as server:
        error = failing(server.target("gemini"))
    assert (error.retry_after, error.message) == (34.5, "status 429: too many")
    with model_server(lambda _: Reply(429, body, {"Retry-After": "7"})) as server:
        assert failing(server.target("gemini")).retry_after == 7
    with model_server(lambda _: Reply(429, [{"error": {"message": "no"}}])) as server:
        assert failing(server.target("gemini")).retry_after is None


def test_the_key_does_not_follow_a_redirection() -> None:
    with model_server(lambda _: Reply(307, b"", {"Location": "/elsewhere"})) as server:
        assert failing(server.target("gemini")).status == 307
    assert len(server.requests) == 1


def test_options_in_both_spellings_and_unknown_options() -> None:
    tools = [{"function_declarations": [{"name": "search", "description": "Finds pages"}]}]
    options = {
        "thinkingConfig": {"includeThoughts": True},
        "top_k": 3,
        "tools": tools,
        "generationConfig": {"newKnob": 1},
    }
    with model_server(lambda _: "Paris") as server:
        assert ask(server.target("gemini", options=options)).text == "Paris"
    (sent,) = server.asked
    config = sent["generationConfig"]
    assert (list(config["thinkingConfig"].values()), config["topK"], config["newKnob"]) == ([True], 3, 1)
    assert sent["tools"][0]["functionDeclarations"][0]["name"] == "search"


def test_an_option_of_the_wrong_type_is_an_error_before_the_call() -> None:
    with model_server(lambda _: "Paris") as server:
        error = failing(server.target("gemini", options={"top_k": "many"}))
    assert error.message.startswith("options: top_k: ")
    assert server.asked == []


def test_a_judge_s_schema_is_sent() -> None:
    with model_server(lambda _: "{}") as server:
        request = a_request()
        schema = {"type": "object", "properties": {"score": {"type": "number"}}}
        ask(server.target("gemini"), type(request)(eval_id="a", question="q", response_schema=schema))
    config = server.asked[0]["generationConfig"]
    assert (config["responseMimeType"], config["responseJsonSchema"]) == ("application/json", schema)


def test_a_tool_output_that_is_not_an_object_is_wrapped() -> None:
    call = ToolCall(tool="search", input=["France"], output="Paris")
    with model_server(lambda _: "Yes") as server:
        ask(server.target("gemini"), a_request("", Message(role="assistant", tool_calls=(call,))))
    asked, answered = (content["parts"][0] for content in server.asked[0]["contents"])
    assert asked["functionCall"]["args"] == {"input": ["France"]}
    assert answered["functionResponse"]["response"] == {"output": "Paris"}


def test_the_client_outlives_the_garbage_collector() -> None:
    async def twice(target: dict[str, Any]) -> str:
        settings: Any = convert(target, settings_type("gemini"))
        async with settings.open(None) as provider:
            await provider.invoke(a_request())
            gc.collect()
            await asyncio.sleep(0)  # which is when a client would be closed that nothing refers to
            return str((await provider.invoke(a_request())).text)

    with model_server(lambda _: "Paris") as server:
        assert asyncio.run(twice(server.target("gemini"))) == "Paris"


def test_aiohttp_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its errors have other types, and the SDK would retry failed requests on its own."""
    import google.genai._api_client as sdk

    monkeypatch.setattr(sdk, "has_aiohttp", True, raising=False)
    with model_server(lambda _: "Paris") as server:
        assert ask(server.target("gemini")).text == "Paris"


def test_thought_signatures_come_back_with_the_history() -> None:
    parts = [
        {"functionCall": {"id": "c1", "name": "search", "args": {"q": "France"}}, "thoughtSignature": "c2ln+/8="},
        {"functionCall": {"id": "c2", "name": "read", "args": {}}},
    ]
    answers: list[Answer] = [
        {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]},
        "Paris",
    ]
    with model_server(lambda _: answers.pop(0)) as server:
        got = ask(server.target("gemini"))
        assert got.output_messages is not None
        calls = got.output_messages[0].tool_calls or ()
        assert [call.metadata for call in calls] == [{"thought_signature": "c2ln+/8="}, None]
        history = (Message(role="assistant", tool_calls=calls), Message(role="tool", name="search", content="Paris"))
        ask(server.target("gemini"), a_request("", Message(role="user", content="Go on"), *history))
    sent = server.asked[1]["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in sent] == ["c2ln-_8=", None]  # the same bytes


def test_an_invalid_signature() -> None:
    call = ToolCall(tool="search", metadata={"thought_signature": "a"})
    with model_server(lambda _: "Yes") as server:
        error = failing(server.target("gemini"), a_request("", Message(role="assistant", tool_calls=(call,))))
    assert error.message == "the thought_signature in the metadata of a call of 'search' is not valid base64"


def test_effort_is_the_level_of_thinking() -> None:
    options = {"thinkingConfig": {"include_thoughts": True}}
    with model_server(lambda _: "Yes") as server:
        ask(server.target("gemini", reasoning_effort="low", options=options))
    sent = server.asked[0]["generationConfig"]["thinkingConfig"]
    # Google takes either spelling
    assert {name.lower().replace("_", ""): value for name, value in sent.items()} == {
        "thinkinglevel": "LOW",
        "includethoughts": True,
    }
