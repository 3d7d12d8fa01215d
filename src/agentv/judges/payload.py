"""An exchange -> the payload that a judge of the user's own gets: a program or a function."""

from collections.abc import Mapping
from typing import Any

import msgspec

from agentv.formats.wire import text_of
from agentv.records import EvalCase, Exchange, Message, TextBlock
from agentv.telemetry.trace import build_trace, summarize_trace


def reference_answer(case: EvalCase) -> str:
    """Return the text of the last expected assistant message; empty if there is none."""
    for message in reversed(case.expected_messages):
        if message.role == "assistant" and message.content is not None:
            return message_text(message)
    return ""


def message_text(message: Message) -> str:
    """Return the content of a message as text."""
    content = message.content
    if isinstance(content, tuple):
        return "\n".join(block.value if isinstance(block, TextBlock) else f"<file: {block.value}>" for block in content)
    return "" if content is None else text_of(content)


def build_payload(exchange: Exchange, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a judge of the user's own gets, as plain values with keys in snake_case."""
    case, request, response = exchange.case, exchange.request, exchange.response
    trace = build_trace(response)
    plain: dict[str, Any] = msgspec.to_builtins(
        {
            "question": request.question,
            "expected_outcome": case.expected_outcome,
            "expected_messages": case.expected_messages,
            "reference_answer": reference_answer(case),
            "candidate_answer": response.text,
            "output_messages": response.output_messages,
            "guideline_files": request.guideline_files,
            "input_files": request.input_files,
            "input_messages": case.input_messages,
            "trace_summary": None if trace is None else summarize_trace(trace, response),
            "execution_metrics": {
                "token_usage": response.token_usage,
                "cost_usd": response.cost_usd,
                "duration_ms": response.duration_ms,
            },
            "workspace_path": exchange.workspace,
            "file_changes": response.file_changes,
            "config": config,
        },
        enc_hook=str,
    )
    return plain
