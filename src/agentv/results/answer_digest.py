"""Digests of answers: labels refer to what was labelled by its digest.

An answer is its text and, where they exist, its tool calls, its conversation and the changed files: of two agents that
say "Done, refunded.", only one may have called the tool. Ids, times and metadata of calls do not count, because they
differ in every run. Secrets are masked first, as they are in results files.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from agentv.records import Json, Message, ProviderResponse, TextBlock, TraceEvent
from agentv.redact import clean
from agentv.results.trace import build_trace

DIGEST_LENGTH = 16
DIGEST_PATTERN = f"[0-9a-f]{{{DIGEST_LENGTH}}}"


def answer_digest(response: ProviderResponse) -> str:
    """Return the digest of an answer. It is that of its text if there is nothing else."""
    text = clean(response.text)
    parts: Json = {}
    trace = build_trace(response)
    if trace:
        tool_calls = list(_tool_calls(trace))
        if tool_calls:
            parts["tool_calls"] = tool_calls
    messages = response.output_messages or ()
    if is_conversation(response.text, messages):
        parts["conversation"] = [_message(message) for message in messages]
    if response.file_changes:
        parts["file_changes"] = response.file_changes
    if not parts:
        return text_digest(text)
    plain = msgspec.to_builtins(parts, enc_hook=str, str_keys=True)
    return _digest(text, clean.values(plain))


def stored_digest(
    text: str,
    file_changes: str | None,
    tool_counts: Mapping[str, int],
) -> str:
    """Return the digest of an answer in a results file that has none, written by an older version or another tool."""
    parts: Json = {}
    if tool_counts:
        parts["tool_counts"] = dict(tool_counts)
    if file_changes:
        parts["file_changes"] = file_changes
    return _digest(text, parts)


def text_digest(text: str) -> str:
    """Return the digest of an answer that consists of text."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]


def is_conversation(text: str, messages: Sequence[Message]) -> bool:
    """Return whether messages say more than the text of the answer."""
    if not messages:
        return False
    first = messages[0]
    if len(messages) > 1 or first.tool_calls:
        return True
    return _content_text(first.content).strip() != text.strip()


def _content_text(content: Any) -> str:
    """Return the text of a message; empty if it is not made of text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, tuple):
        return ""
    texts = []
    for block in content:
        if not isinstance(block, TextBlock):
            return ""
        texts.append(block.value)
    return "\n".join(texts)


def _tool_calls(trace: Sequence[TraceEvent]) -> Iterator[list[Any]]:
    for event in trace:
        if event.type in ("tool_call", "tool_result"):
            yield [event.type, event.name, event.input, event.output]


def _message(message: Message) -> Json:
    calls = [[call.tool, call.input, call.output] for call in message.tool_calls or ()]
    return {
        "role": message.role,
        "content": message.content,
        "tool_calls": calls,
    }


def _digest(text: str, parts: Json) -> str:
    if not parts:
        return text_digest(text)
    whole = {"answer": text, **parts}
    # The standard library encodes lone surrogates, which msgspec refuses.
    return text_digest(json.dumps(whole, sort_keys=True))
