"""Cases with messages in the formats of vendors."""

import json
from typing import Any

import pytest

from agentv.cases.read import load_eval_cases
from agentv.records import FileBlock, Message, TextBlock, ToolCall
from tests.kits.project import Write, agentv

CASE = {"id": "a", "expected_outcome": "b"}
CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
OPENAI = [
    {"role": "developer", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Where?"}, {"type": "image_url", "image_url": {"url": "a.png"}}],
    },
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "Oslo"},
]
ANTHROPIC = [
    {"role": "user", "content": [{"type": "text", "text": "Where?"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "find", "input": {"q": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "Oslo"}]},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "Where?"}]},
    {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "find", "args": {"q": 1}}}]},
    {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": "find", "response": {"city": "Oslo"}}}]},
]


def find(output: Any) -> Message:
    call = ToolCall(tool="find", input={"q": 1}, output=output, id="c")
    return Message(role="assistant", tool_calls=(call,))


@pytest.mark.parametrize("suffix", ["yaml", "jsonl"])
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            OPENAI,
            (
                Message(role="system", content="Be brief."),
                Message(role="user", content=(TextBlock("Where?"), FileBlock("a.png"))),
                find("Oslo"),
                Message(role="tool", content="Oslo"),
            ),
        ),
        (ANTHROPIC, (Message(role="user", content="Where?"), find("Oslo"), Message(role="tool", content="Oslo"))),
        (
            GEMINI,
            (
                Message(role="user", content="Where?"),
                find({"city": "Oslo"}),
                Message(role="tool", content={"city": "Oslo"}, name="find"),
            ),
        ),
    ],
)
def test_messages_are_read(write: Write, suffix: str, messages: Any, expected: Any) -> None:
    case = {**CASE, "input": messages, "expected_messages": messages}
    if suffix == "yaml":
        path = write("a.yaml", json.dumps({"evalcases": [case]}))
    else:
        path = write("a.jsonl", [case])
    (read,) = load_eval_cases(path)
    assert read.input_messages == expected
    assert read.expected_messages == expected


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": "x", "name": 5},
        {"role": "assistant", "tool_calls": [{"tool": "x", "id": 7}]},
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}]},
    ],
)
def test_messages_that_cannot_be_read_as_a_whole_are_errors(write: Write, message: Any) -> None:
    write("a.jsonl", [{**CASE, "input": [message]}])
    checked = agentv("validate", "a.jsonl")
    assert checked.returncode == 1
    assert "a.jsonl:1:" in checked.stdout


def test_a_duplicate_id_of_such_a_case_is_found(write: Write) -> None:
    case = {**CASE, "input": OPENAI[:1]}
    write("a.jsonl", [case, case])
    assert "duplicate id 'a', first on line 1" in agentv("validate", "a.jsonl").stdout
