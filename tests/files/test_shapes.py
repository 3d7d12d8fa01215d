"""Messages, tool calls and usage in vendors' formats, created with the installed SDKs."""

import asyncio
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import TextBlock as AnthropicText
from anthropic.types import ThinkingBlock, ToolUseBlock
from anthropic.types import Usage as AnthropicUsage
from google.genai import types as gemini
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ChatCompletionMessageFunctionToolCall
from openai.types.chat.chat_completion import Choice
from openai.types.chat.chat_completion_message_function_tool_call import Function
from openai.types.completion_usage import CompletionTokensDetails, PromptTokensDetails
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseUsage,
)
from openai.types.responses.response_function_web_search import ActionSearch
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from agentv.files.wire import response_from
from agentv.providers.python import PythonFunction
from agentv.records import (
    Dropped,
    FileBlock,
    Message,
    ProviderRequest,
    ProviderResponse,
    TextBlock,
    TokenUsage,
    ToolCall,
)
from agentv.results.trace import build_trace

REQUEST = ProviderRequest(eval_id="a", question="Pay.")
DELETE = ToolCall(tool="delete_invoice", input={"id": 7}, output="gone", id="call-1")


def read(*messages: Any, **more: Any) -> ProviderResponse:
    return response_from({"output_messages": messages, **more})


def tools(response: ProviderResponse) -> list[str | None]:
    return [event.name for event in build_trace(response) or ()]


def chat_message() -> ChatCompletionMessage:
    function = Function(name="delete_invoice", arguments='{"id": 7}')
    call = ChatCompletionMessageFunctionToolCall(id="call-1", type="function", function=function)
    return ChatCompletionMessage(role="assistant", content="One moment.", tool_calls=[call])


CHAT_RESULT = {"role": "tool", "tool_call_id": "call-1", "content": "gone"}


class TestOpenAIChatCompletions:
    def test_a_message_with_a_tool_call_and_its_result(self) -> None:
        response = read(chat_message().model_dump(), CHAT_RESULT, {"role": "assistant", "content": "Done."})
        assert response.text == "Done."
        assert response.output_messages == (
            Message(role="assistant", content="One moment.", tool_calls=(DELETE,)),
            Message(role="tool", content="gone"),
            Message(role="assistant", content="Done."),
        )
        assert response.dropped is None

    def test_objects_and_choices_are_read_like_their_dumps(self) -> None:
        choice = Choice(finish_reason="tool_calls", index=0, message=chat_message())
        expected = read(chat_message().model_dump())
        assert read(chat_message()) == expected
        assert read(choice) == expected
        assert read(choice.model_dump()) == expected

    def test_the_older_function_call(self) -> None:
        call = {"name": "delete_invoice", "arguments": "not JSON"}
        response = read({"role": "assistant", "content": None, "function_call": call})
        assert response.output_messages == (
            Message(role="assistant", tool_calls=(ToolCall(tool="delete_invoice", input="not JSON"),)),
        )

    def test_parts_and_the_role_developer(self) -> None:
        image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        response = read(
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]},
            {"role": "assistant", "content": [{"type": "text", "text": "A "}, {"type": "text", "text": "cat."}]},
        )
        assert response.output_messages == (
            Message(role="system", content="Be brief."),
            Message(role="user", content=(TextBlock("What is it?"), FileBlock("https://example.com/a.png"))),
            Message(role="assistant", content="A cat."),
        )
        assert response.dropped is None

    def test_usage(self) -> None:
        usage = CompletionUsage(
            prompt_tokens=10,
            completion_tokens=5,
            total_tokens=15,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=4),
            completion_tokens_details=CompletionTokensDetails(reasoning_tokens=2),
        )
        expected = TokenUsage(input=10, output=5, cached=4, reasoning=2)
        assert response_from({"text": "A", "token_usage": usage.model_dump()}).token_usage == expected
        assert response_from({"text": "A", "usage": usage}).token_usage == expected


class TestOpenAIResponses:
    def test_items(self) -> None:
        text = ResponseOutputText(annotations=[], text="Done.", type="output_text")
        search = ActionSearch(query="invoices", type="search")
        items: list[Any] = [
            ResponseReasoningItem(id="rs", summary=[], type="reasoning"),
            ResponseFunctionWebSearch(id="ws", action=search, status="completed", type="web_search_call"),
            ResponseFunctionToolCall(
                id="fc", call_id="call-1", name="delete_invoice", arguments='{"id": 7}', type="function_call"
            ),
            {"type": "function_call_output", "call_id": "call-1", "output": "gone"},
            ResponseOutputMessage(id="msg", content=[text], role="assistant", status="completed", type="message"),
        ]
        dumped = [item if isinstance(item, dict) else item.model_dump() for item in items]
        response = read(*dumped)
        assert read(*items) == response
        assert tools(response) == ["web_search", "delete_invoice"]
        assert response.output_messages is not None
        assert response.output_messages[1:] == (
            Message(role="assistant", tool_calls=(DELETE,)),
            Message(role="tool", content="gone"),
            Message(role="assistant", content="Done."),
        )
        assert response.text == "Done."
        assert response.dropped is None

    def test_usage(self) -> None:
        usage = ResponseUsage(
            input_tokens=10,
            input_tokens_details=InputTokensDetails.model_construct(cached_tokens=4),
            output_tokens=5,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
            total_tokens=15,
        )
        response = response_from({"text": "A", "token_usage": usage.model_dump()})
        assert response.token_usage == TokenUsage(input=10, output=5, cached=4, reasoning=2)


class TestAnthropic:
    def message(self) -> AnthropicMessage:
        return AnthropicMessage.model_construct(
            id="msg",
            type="message",
            role="assistant",
            model="claude",
            content=[
                ThinkingBlock(type="thinking", thinking="hm", signature=""),
                AnthropicText(type="text", text="One moment."),
                ToolUseBlock(type="tool_use", id="call-1", name="delete_invoice", input={"id": 7}),
            ],
            usage=self.usage(),
        )

    def usage(self) -> AnthropicUsage:
        return AnthropicUsage(input_tokens=3, cache_read_input_tokens=5, cache_creation_input_tokens=2, output_tokens=4)

    @pytest.mark.parametrize("content", ["gone", [{"type": "text", "text": "gone"}]])
    def test_blocks(self, content: Any) -> None:
        result = {"type": "tool_result", "tool_use_id": "call-1", "content": content}
        turn = {"role": "user", "content": [result, {"type": "text", "text": "Thanks."}]}
        response = read(self.message().model_dump(), turn)
        assert response.output_messages == (
            Message(role="assistant", content="One moment.", tool_calls=(DELETE,)),
            Message(role="tool", content="gone"),
            Message(role="user", content="Thanks."),
        )
        assert response.dropped is None
        assert read(self.message(), turn) == response

    def test_a_failed_tool_is_an_error_in_the_trace(self) -> None:
        result = {"type": "tool_result", "tool_use_id": "call-1", "content": "no such invoice", "is_error": True}
        response = read(self.message().model_dump(), {"role": "user", "content": [result]})
        (event,) = build_trace(response) or ()
        assert (event.output, event.metadata) == ("no such invoice", {"is_error": True})

    def test_the_input_includes_what_the_cache_read_and_wrote(self) -> None:
        response = response_from({"text": "A", "token_usage": self.usage().model_dump()})
        assert response.token_usage == TokenUsage(input=10, output=4, cached=5, cache_write=2)


class TestGemini:
    def content(self) -> gemini.Content:
        call = gemini.FunctionCall(name="delete_invoice", args={"id": 7}, id="call-1")
        thought = gemini.Part(text="hm", thought=True)
        return gemini.Content(
            role="model", parts=[thought, gemini.Part(text="One moment."), gemini.Part(function_call=call)]
        )

    @pytest.mark.parametrize("options", [{}, {"by_alias": True, "exclude_none": True}])
    def test_parts(self, options: dict[str, Any]) -> None:
        result = gemini.FunctionResponse(name="delete_invoice", response={"ok": True}, id="call-1")
        answer = gemini.Content(role="user", parts=[gemini.Part(function_response=result)])
        response = read(self.content().model_dump(**options), answer.model_dump(**options))
        call = ToolCall(tool="delete_invoice", input={"id": 7}, output={"ok": True}, id="call-1")
        assert response.output_messages == (
            Message(role="assistant", content="One moment.", tool_calls=(call,)),
            Message(role="tool", content={"ok": True}, name="delete_invoice"),
        )
        assert response.dropped is None

    def test_results_without_ids_belong_to_the_calls_of_the_same_name_in_order(self) -> None:
        calls = [{"functionCall": {"name": "find", "args": {"q": q}}} for q in "ab"]
        results = [{"functionResponse": {"name": "find", "response": {"found": q}}} for q in "ab"]
        response = read({"role": "model", "parts": calls}, {"role": "user", "parts": results})
        assert [event.output for event in build_trace(response) or ()] == [{"found": "a"}, {"found": "b"}]

    def test_usage(self) -> None:
        usage = gemini.GenerateContentResponseUsageMetadata(
            prompt_token_count=10,
            tool_use_prompt_token_count=1,
            candidates_token_count=5,
            thoughts_token_count=2,
            cached_content_token_count=4,
        )
        expected = TokenUsage(input=11, output=7, cached=4, reasoning=2)
        for dumped in (usage, usage.model_dump(), usage.model_dump(by_alias=True, exclude_none=True)):
            assert response_from({"text": "A", "token_usage": dumped}).token_usage == expected


class TestToolCallsWithoutAReadableName:
    @pytest.mark.parametrize(
        "entry",
        [
            {"type": "function", "function": {"arguments": "{}"}},
            {"tool": None},
            {"tool": 7},
            {"function": {}},
            {"name": "", "arguments": "{}"},
            {"type": "tool_use", "id": "x"},
        ],
    )
    def test_they_are_counted_and_the_trace_is_not_complete(self, entry: dict[str, Any]) -> None:
        in_calls = read({"role": "assistant", "content": "A", "tool_calls": [{"tool": "ocr"}, entry, entry]})
        assert tools(in_calls) == ["ocr"]
        assert in_calls.trace_complete is False
        assert in_calls.dropped is not None
        (dropped,) = in_calls.dropped
        assert (dropped.kind, dropped.count) == ("tool_calls", 2)
        assert dropped.example.startswith("{")
        in_content = read({"role": "assistant", "content": [{"type": "text", "text": "A"}, entry]})
        in_trace = response_from({"text": "A", "trace": [{"type": "tool_call", "name": "ocr"}, entry]})
        as_item = read({"role": "assistant", "content": "A"}, entry)
        for response in (in_content, in_trace, as_item):
            assert response.trace_complete is False
            assert response.dropped is not None
            assert [each.kind for each in response.dropped] == ["tool_calls"]

    def test_an_event_of_a_tool_keeps_its_name_whatever_else_is_invalid(self) -> None:
        odd = {"type": "tool_call", "name": "delete_invoice", "timestamp": "yesterday", "id": 7, "metadata": 1}
        response = response_from({"text": "A", "trace": [odd, {"type": "tool_use", "name": "pay", "input": {"a": 1}}]})
        assert tools(response) == ["delete_invoice", "pay"]
        assert response.trace_complete is None
        assert response.dropped is None

    def test_other_invalid_events_are_ignored_and_counted(self) -> None:
        response = response_from({"text": "A", "trace": [{"type": "bogus"}, "text", {"name": "x"}]})
        assert response.trace == ()
        assert response.trace_complete is None
        assert response.dropped == (Dropped(kind="trace_events", count=3, example='{"type":"bogus"}'),)

    def test_calls_beside_the_text(self) -> None:
        response = response_from({"text": "A", "tool_calls": [{"name": "pay", "args": {"a": 1}}]})
        assert tools(response) == ["pay"]
        assert response_from({"text": "A", "tool_calls": [{}]}).trace_complete is False

    def test_calls_beside_the_text_are_added_unless_the_messages_have_them(self) -> None:
        ocr = {"tool": "ocr", "input": {"page": 1}}
        message = {"role": "assistant", "content": "A", "tool_calls": [ocr]}
        response = response_from({"output_messages": [message], "tool_calls": [ocr, {"tool": "delete_invoice"}]})
        assert tools(response) == ["ocr", "delete_invoice"]
        names = response_from({"output_messages": [message], "tool_calls": [{"tool": "ocr"}]})
        assert tools(names) == ["ocr"]
        another = response_from({"output_messages": [message], "tool_calls": [{"tool": "ocr", "input": {"page": 2}}]})
        assert tools(another) == ["ocr", "ocr"]

    def test_a_call_instead_of_a_list_of_parts(self) -> None:
        response = read({"role": "assistant", "content": {"type": "tool_use", "name": "pay", "input": {}}})
        assert tools(response) == ["pay"]
        answer = {"name": "Ann", "input": 3}
        assert read({"role": "assistant", "content": answer}).output_messages == (
            Message(role="assistant", content=answer),
        )

    def test_calls_in_a_message_of_a_tool(self) -> None:
        response = read({"role": "tool", "content": "gone", "tool_calls": [{"tool": "pay"}]})
        assert tools(response) == ["pay"]

    def test_a_trace_that_is_not_a_list_is_counted(self) -> None:
        response = response_from({"text": "A", "trace": {"type": "model_step"}})
        assert response.dropped == (Dropped(kind="trace_events", count=1, example='{"type":"model_step"}'),)

    def test_the_shape_of_bedrock(self) -> None:
        use = {"toolUse": {"toolUseId": "1", "name": "pay", "input": {"a": 1}}}
        result = {"toolResult": {"toolUseId": "1", "content": [{"text": "paid"}]}}
        response = read({"role": "assistant", "content": [use]}, {"role": "user", "content": [result]})
        (event,) = build_trace(response) or ()
        assert (event.name, event.input, event.output) == ("pay", {"a": 1}, "paid")
        assert response.dropped is None


@pytest.mark.parametrize(
    "answer",
    [
        ChatCompletion(
            id="c",
            created=1,
            model="m",
            object="chat.completion",
            choices=[Choice(finish_reason="length", index=0, message=chat_message())],
            usage=CompletionUsage(prompt_tokens=3, completion_tokens=2, total_tokens=5),
        ),
        AnthropicMessage(
            id="a",
            model="m",
            role="assistant",
            type="message",
            stop_reason="max_tokens",
            content=[
                AnthropicText(type="text", text="One moment."),
                ToolUseBlock(type="tool_use", id="call-1", name="delete_invoice", input={"id": 7}),
            ],
            usage=AnthropicUsage(input_tokens=3, output_tokens=2),
        ),
        gemini.GenerateContentResponse(
            candidates=[
                gemini.Candidate(
                    finish_reason=gemini.FinishReason.MAX_TOKENS,
                    content=gemini.Content(
                        role="model",
                        parts=[
                            gemini.Part(text="One moment."),
                            gemini.Part(function_call=gemini.FunctionCall(name="delete_invoice", args={"id": 7})),
                        ],
                    ),
                ),
            ],
            usage_metadata=gemini.GenerateContentResponseUsageMetadata(prompt_token_count=3, candidates_token_count=2),
        ),
    ],
)
def test_a_function_may_return_a_whole_response(answer: Any) -> None:
    response = asyncio.run(PythonFunction(lambda question: answer).invoke(REQUEST))
    assert response.text == "One moment."
    assert tools(response) == ["delete_invoice"]
    assert response.token_usage is not None
    assert (response.token_usage.input, response.token_usage.output) == (3, 2)
    assert response.stop_reason == "length"
    assert response.dropped is None


def test_messages_with_an_unknown_role_are_counted_and_their_tool_calls_kept() -> None:
    call = {"tool": "pay"}
    response = read({"role": "bot", "content": "hi"}, {"role": "bot", "tool_calls": [call]}, 7)
    assert response.output_messages == (Message(role="assistant", tool_calls=(ToolCall(tool="pay"),)),)
    assert response.dropped == (Dropped(kind="messages", count=2, example='{"role":"bot","content":"hi"}'),)


@pytest.mark.parametrize("name", ["cost_usd", "duration_ms", "ttft_ms", "token_usage"])
def test_negative_figures_are_rejected_with_a_note(name: str) -> None:
    value: Any = -1
    if name == "token_usage":
        value = {"input": -1, "output": 2}
    response = response_from({"text": "A", name: value, "note": "slow"})
    if name == "token_usage":
        assert response.token_usage == TokenUsage(output=2)
        name = "input"
    else:
        assert getattr(response, name) is None
    assert response.note == f'slow; rejected figures (1), such as {{"{name}":-1}}'


def test_results_of_calls_whose_ids_are_reused_in_each_turn() -> None:
    turns = []
    for tool, output in (("a", "one"), ("b", "two")):
        turns += [
            {"role": "assistant", "tool_calls": [{"tool": tool, "id": "call_0"}]},
            {"role": "tool", "tool_call_id": "call_0", "content": output},
        ]
    response = read(*turns)
    calls = [call for message in response.output_messages or () for call in message.tool_calls or ()]
    assert [(call.tool, call.output) for call in calls] == [("a", "one"), ("b", "two")]


def test_a_result_that_comes_before_its_call_is_kept() -> None:
    response = read(
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "assistant", "tool_calls": [{"tool": "a", "id": "c1"}]},
    )
    assert response.output_messages is not None
    calls = response.output_messages[1].tool_calls or ()
    assert [call.output for call in calls] == ["one"]
