"""Events that Codex writes."""

from typing import Any

STARTED = [{"type": "thread.started", "thread_id": "67e55044"}, {"type": "turn.started"}]


COMPLETED = {
    "type": "turn.completed",
    "usage": {"input_tokens": 1200, "cached_input_tokens": 200, "output_tokens": 345},
}


def item(kind: str, phase: str = "completed", id_: str = "item_0", **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{phase}", "item": {"id": id_, "type": kind, **fields}}


def message(text: str = "Paris") -> dict[str, Any]:
    return item("agent_message", id_="item_9", text=text)


def reconnecting(attempt: int, reason: str) -> dict[str, Any]:
    return {"type": "error", "message": f"Reconnecting... {attempt}/5 ({reason})"}


def failed(message: str) -> list[dict[str, Any]]:
    return [{"type": "error", "message": message}, {"type": "turn.failed", "error": {"message": message}}]
