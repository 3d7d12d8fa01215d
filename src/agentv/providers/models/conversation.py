"""The prompts and answers of language models, in a form that is independent of the vendor.

Each vendor has its own format of a conversation; a `Turn` has what they have in common.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.files.wire import mended_json
from agentv.providers.models.media import LoadedMedia
from agentv.providers.network import excerpt
from agentv.records import (
    FileBlock,
    Json,
    Message,
    ProviderRequest,
    Role,
    TokenUsage,
    ToolCall,
)

T = TypeVar("T")
Part = str | LoadedMedia
"""A part of a message: a text, an image or a PDF."""


class Turn(NamedTuple):
    """One turn of a conversation. Tool calls have ids; the turn of a tool has the call that it answers."""

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: ToolCall | None = None
    parts: tuple[Part, ...] = ()
    """The same text with its images and PDFs, in order. Empty if there are none."""


class Prompt(NamedTuple):
    """The input of a model."""

    turns: Sequence[Turn]
    schema: Json | None = None
    """The JSON Schema that the answer must match."""


class Completion(NamedTuple):
    """The output of a model."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    stop_reason: str = ""
    """Why the model stopped, in the vendor's terms."""
    refusal: str = ""
    """Why this is not an answer, although its tokens are paid for."""
    first_token_at: float | None = None
    """When its first piece arrived, by `time.perf_counter`. Only known for a streamed answer."""


def turns_of(request: ProviderRequest, media: Mapping[str, LoadedMedia]) -> list[Turn]:
    """Return the turns of a request. The message of a tool that was not called becomes a turn of the user."""
    turns: list[Turn] = []
    unanswered: list[ToolCall] = []
    numbers = itertools.count(1)
    question = Message(role="user", content=request.question)
    for message in request.chat_prompt or (question,):
        text = _text(message.content)
        if message.role == "tool":
            turns.append(_tool_turn(message, text, unanswered))
            continue
        calls = [_with_id(call, numbers) for call in message.tool_calls or ()]
        turn = Turn(
            message.role,
            text,
            calls=tuple(calls),
            parts=_parts(message.content, media),
        )
        turns.append(turn)
        for call in calls:
            if call.output is None:
                unanswered.append(call)
            else:
                output = _text(call.output)
                turns.append(Turn("tool", output, answers=call))
    return turns


def _tool_turn(message: Message, text: str, unanswered: list[ToolCall]) -> Turn:
    """Return the turn of a tool, and remove the call that it answers from the unanswered ones."""
    for call in unanswered:
        if message.name in (None, call.tool, call.id):
            unanswered.remove(call)
            return Turn("tool", text, answers=call)
    return Turn("user", f"@[Tool]:\n{text}")


def _with_id(call: ToolCall, numbers: Iterator[int]) -> ToolCall:
    """Return the call with an id, which is numbered if it has none."""
    if call.id:
        return call
    return msgspec.structs.replace(call, id=f"call_{next(numbers)}")


def _parts(content: Any, media: Mapping[str, LoadedMedia]) -> tuple[Part, ...]:
    """Return the parts of a message that has images or PDFs, and nothing for any other message."""
    if not media or not isinstance(content, tuple):
        return ()
    parts: list[Part] = []
    has_files = False
    for block in content:
        part = block.value
        if isinstance(block, FileBlock):
            has_files = True
            part = media.get(block.value, block.value)
        parts.append(part)
    return tuple(parts) if has_files else ()


def split_system(turns: Sequence[Turn]) -> tuple[str, list[Turn]]:
    """Return the system prompt and the other turns, for vendors whose requests separate them.

    Such a request needs a turn: if there are only system messages, the last one is sent as the user's.
    """
    system: list[str] = []
    others: list[Turn] = []
    for turn in turns:
        if turn.role == "system":
            system.append(turn.text)
        else:
            others.append(turn)
    if not others:
        others = [Turn("user", system.pop())]
    return "\n\n".join(filter(None, system)), others


def content_filter_refusal(text: str) -> str:
    """Return the refusal of an answer that a content filter stopped after `text`."""
    refusal = "the model refused: a content filter stopped it"
    if text:
        refusal += f" after {text!r}"
    return refusal


def json_or_text(text: str) -> Any:
    """Return the value of a JSON text, or the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def decode(body: bytes, type_: type[T]) -> T:
    """Return the body of a reply as a `type_`. Raise `ProviderError` if it does not match."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        raise ProviderError(f"the model's answer is malformed: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        repaired = mended_json(body)
        if repaired is not None:
            return decode(repaired, type_)
        shown = excerpt(body.decode("utf-8", "replace")) or "it is empty"
        raise ProviderError(f"the model's answer is not valid JSON: {shown}") from error


def _text(content: Any) -> str:
    """Return the content of a message, or the output of a tool, as text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(hasattr(block, "value") for block in content):
        texts = [block.value for block in content]
        return "\n".join(texts)
    return msgspec.json.encode(content).decode()
