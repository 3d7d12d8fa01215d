"""An exchange -> what the user's own code gets to judge it by."""

from collections.abc import Mapping
from typing import Any

import msgspec

from agentv.formats.wire import text_of
from agentv.records import EvalCase, Exchange, Message, TextBlock
from agentv.telemetry.trace import build_trace, summarize_trace


def reference_answer(case: EvalCase) -> str:
    """What the last of the expected assistant messages says, empty if there is none."""
    said = [
        message for message in case.expected_messages if message.role == "assistant" and message.content is not None
    ]
    return message_text(said[-1]) if said else ""


def message_text(message: Message) -> str:
    """The content of a message as text."""
    content = message.content
    if isinstance(content, tuple):
        return "\n".join(block.value if isinstance(block, TextBlock) else f"<file: {block.value}>" for block in content)
    return "" if content is None else text_of(content)


def payload_of(exchange: Exchange, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a judge of the user's gets, as plain values in snake_case."""
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
            "config": config,
        },
        enc_hook=str,
    )
    return plain
