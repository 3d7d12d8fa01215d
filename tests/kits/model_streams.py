"""Converts the reply of a vendor to the events of a streamed reply."""

import json
from collections.abc import Iterator
from typing import Any

Event = tuple[str, dict[str, Any]]
"""The name of an event, which is empty where the vendor has none, and its data."""


def event_stream(path: str, reply: dict[str, Any]) -> bytes:
    """The events of a reply, as they go over the wire."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return encode(chat_events(reply)) + b"data: [DONE]\n\n"
    if path.endswith("/responses"):
        return encode(responses_events(reply))
    return encode(anthropic_events(reply) if path.endswith("/messages") else gemini_events(reply))


def encode(events: Iterator[Event]) -> bytes:
    return b"".join(_encode(name, data) for name, data in events)


def _encode(name: str, data: dict[str, Any]) -> bytes:
    return f"{f'event: {name}' + chr(10) if name else ''}data: {json.dumps(data)}\n\n".encode()


def pieces(text: str) -> list[str]:
    """A text in pieces of three characters."""
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def chat_events(reply: dict[str, Any]) -> Iterator[Event]:
    choice = reply["choices"][0]
    message = choice["message"]
    yield "", _chunk({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "reasoning", "content", "refusal"):
        for piece in pieces(message.get(name) or ""):
            yield "", _chunk({name: piece})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield "", _chunk({"tool_calls": [_call(index, {"name": function["name"], "arguments": ""}, call["id"])]})
        for piece in pieces(function["arguments"]):
            yield "", _chunk({"tool_calls": [_call(index, {"arguments": piece})]})
    yield "", _chunk({}, choice["finish_reason"])
    yield "", {"id": "chatcmpl-1", "choices": [], "usage": reply.get("usage")}


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        "usage": None,
    }


def _call(index: int, function: dict[str, Any], id_: str | None = None) -> dict[str, Any]:
    return {"index": index, "function": function, **({"id": id_, "type": "function"} if id_ else {})}


def responses_events(reply: dict[str, Any]) -> Iterator[Event]:
    yield "response.created", {"type": "response.created", "response": {**reply, "status": "in_progress", "output": []}}
    for number, item in enumerate(reply.get("output") or ()):
        yield "response.output_item.added", {"type": "response.output_item.added", "output_index": number, "item": item}
        for content in item.get("content") or ():
            for piece in pieces(content.get("text") or ""):
                data = {"type": "response.output_text.delta", "output_index": number, "delta": piece}
                yield "response.output_text.delta", data
        for piece in pieces(item.get("arguments") or ""):
            data = {"type": "response.function_call_arguments.delta", "output_index": number, "delta": piece}
            yield "response.function_call_arguments.delta", data
        yield "response.output_item.done", {"type": "response.output_item.done", "output_index": number, "item": item}
    end = f"response.{reply['status']}"
    yield end, {"type": end, "response": reply}


def anthropic_events(reply: dict[str, Any]) -> Iterator[Event]:
    start = {**reply, "content": [], "stop_reason": None, "usage": {**reply["usage"], "output_tokens": 1}}
    start.pop("stop_details", None)
    yield "message_start", {"type": "message_start", "message": start}
    yield "ping", {"type": "ping"}
    for index, block in enumerate(reply["content"]):
        texts = {name: "" for name in ("text", "thinking", "signature") if name in block}
        empty = block | texts | ({"input": {}} if "input" in block else {})
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in _deltas(block):
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    delta = {name: reply[name] for name in ("stop_reason", "stop_details") if name in reply}
    usage = {name: value for name, value in reply["usage"].items() if name.startswith("output")}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": usage}
    yield "message_stop", {"type": "message_stop"}


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ("thinking", "text"):
        for piece in pieces(block.get(name) or ""):
            yield {"type": f"{name}_delta", name: piece}
    if "signature" in block:
        yield {"type": "signature_delta", "signature": block["signature"]}
    for piece in pieces(json.dumps(block["input"]) if "input" in block else ""):
        yield {"type": "input_json_delta", "partial_json": piece}


def gemini_events(reply: dict[str, Any]) -> Iterator[Event]:
    candidate: dict[str, Any] = next(iter(reply.get("candidates") or ()), {})
    for part in (candidate.get("content") or {}).get("parts") or ():
        for piece in pieces(part["text"]) if "text" in part else [None]:
            shown = part if piece is None else part | {"text": piece}
            yield "", {"candidates": [{"content": {"role": "model", "parts": [shown]}, "index": 0}]}
    yield (
        "",
        {**reply, **({"candidates": [{**candidate, "content": {"role": "model", "parts": []}}]} if candidate else {})},
    )
