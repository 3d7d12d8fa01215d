"""The parts of a Gemini reply that agentv reads. Decoding it with the SDK's own types takes ten times as long.

Fields have the SDK's names, so that one function reads both.
"""

from typing import Any

import msgspec


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    """An object in a reply. Unused fields are ignored."""


class _FunctionCall(_Wire, frozen=True):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None


class _Part(_Wire, frozen=True):
    text: str | None = None
    thought: bool | None = None
    function_call: _FunctionCall | None = None
    thought_signature: bytes | None = None


class _Content(_Wire, frozen=True):
    parts: list[_Part] | None = None


class _Rating(_Wire, frozen=True):
    category: str | None = None
    blocked: bool | None = None


class _Candidate(_Wire, frozen=True):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    safety_ratings: list[_Rating] | None = None


class _Feedback(_Wire, frozen=True):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Usage(_Wire, frozen=True):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None


class GeminiReply(_Wire, frozen=True):
    """A reply to one request."""

    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None


_decode = msgspec.json.Decoder(GeminiReply).decode


def read_reply(reply: bytes) -> GeminiReply | None:
    """Return a reply, or None if its format is unknown here and left to the SDK."""
    try:
        found = _decode(reply)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if found.candidates or found.prompt_feedback is not None:
        return found
    return None
