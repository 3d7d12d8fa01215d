"""Events that Claude Code writes."""

from typing import Any

INIT = {"type": "system", "subtype": "init", "session_id": "s1", "tools": ["Read", "Bash"], "model": "sonnet"}


USAGE = {
    "input_tokens": 8,
    "cache_creation_input_tokens": 192,
    "cache_read_input_tokens": 17004,
    "output_tokens": 32,
    "service_tier": "standard",
}


def assistant(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [*blocks], "usage": {}}
    return {"type": "assistant", "message": message, "session_id": "s1", "parent_tool_use_id": None, **fields}


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_use(id_: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def tool_result(id_: str, content: Any, **fields: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": id_, "content": content, **fields}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "session_id": "s1"}


def result(answer: str | None = "Paris", subtype: str = "success", **fields: Any) -> dict[str, Any]:
    event = {
        "type": "result",
        "subtype": subtype,
        "is_error": subtype != "success",
        "duration_ms": 2006,
        "duration_api_ms": 1987,
        "num_turns": 3,
        "total_cost_usd": 0.25,
        "usage": USAGE,
        "session_id": "s1",
    }
    return event | ({} if answer is None else {"result": answer}) | fields


def model_usage(**tokens: int) -> dict[str, Any]:
    """The usage of one model: fresh, cached, written and output tokens."""
    names = {
        "fresh": "inputTokens",
        "cached": "cacheReadInputTokens",
        "written": "cacheCreationInputTokens",
        "output": "outputTokens",
        "thinking": "thinkingTokens",
    }
    return {names[name]: count for name, count in tokens.items()} | {"costUSD": 0.1, "contextWindow": 200_000}


def api_retry(attempt: int, status: int | None, error: str) -> dict[str, Any]:
    event = {"type": "system", "subtype": "api_retry", "attempt": attempt, "max_retries": 10, "retry_delay_ms": 562}
    return event | {"error_status": status, "error": error, "session_id": "s1"}


def permission_denied(id_: str, tool: str) -> dict[str, Any]:
    event = {"type": "system", "subtype": "permission_denied", "tool_name": tool, "tool_use_id": id_}
    return event | {"decision_reason_type": "workingDir", "message": f"Claude requested permissions to use {tool}."}
