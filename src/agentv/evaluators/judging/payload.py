"""Builds the payload for a judge written by the user: a program or a Python function."""

from collections.abc import Mapping
from typing import Any

import msgspec

from agentv.files.wire import text_of
from agentv.records import EvalCase, Exchange, Json, Message, TextBlock
from agentv.results.trace import build_trace, summarize_trace


def reference_answer(case: EvalCase) -> str:
    """Return the text of the last expected assistant message; empty if there is none."""
    for message in reversed(case.expected_messages):
        if message.role == "assistant" and message.content is not None:
            return message_text(message)
    return ""


def message_text(message: Message) -> str:
    """Return the content of a message as text."""
    content = message.content
    if content is None:
        return ""
    if not isinstance(content, tuple):
        return text_of(content)
    lines = []
    for block in content:
        if isinstance(block, TextBlock):
            lines.append(block.value)
        else:
            lines.append(f"<file: {block.value}>")
    return "\n".join(lines)


def conversation(exchange: Exchange) -> list[Json]:
    """Return the messages of an exchange as plain values: those that were sent, and those of the answer."""
    messages = exchange.request.messages
    answer = exchange.response.output_messages
    if not answer:
        answer = (Message(role="assistant", content=exchange.response.text),)
    for message in answer:
        messages.append(msgspec.to_builtins(message))
    return messages


def build_payload(exchange: Exchange, config: Mapping[str, Any] | None = None) -> Json:
    """Return the payload for an exchange as plain values with keys in snake_case."""
    case = exchange.case
    request = exchange.request
    response = exchange.response
    trace = build_trace(response)
    trace_summary = None
    if trace is not None:
        trace_summary = summarize_trace(trace, response)
    payload = {
        "question": request.question,
        "expected_outcome": case.expected_outcome,
        "expected_messages": case.expected_messages,
        "reference_answer": reference_answer(case),
        "candidate_answer": response.text,
        "output_messages": response.output_messages,
        "trace": trace,
        "metadata": case.metadata,
        "response_metadata": response.metadata,
        "guideline_files": request.guideline_files,
        "input_files": request.input_files,
        "input_messages": case.input_messages,
        "trace_summary": trace_summary,
        "execution_metrics": {
            "token_usage": response.token_usage,
            "cost_usd": response.cost_usd,
            "duration_ms": response.duration_ms,
        },
        "workspace_path": exchange.workspace,
        "file_changes": response.file_changes,
        "config": config,
    }
    plain: Json = msgspec.to_builtins(payload, enc_hook=str)
    return plain
