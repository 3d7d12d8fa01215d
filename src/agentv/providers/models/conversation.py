"""What language models share: the turns that are sent, and the answer that comes back.

Each vendor has its own form of a conversation; a `Turn` is what they have in common.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from agentv.errors import ProviderError
from agentv.formats.wire import mended_json
from agentv.providers.models.media import LoadedMedia
from agentv.providers.network import excerpt
from agentv.records import FileBlock, Json, Message, ProviderRequest, Role, TokenUsage, ToolCall

T = TypeVar("T")
Part = str | LoadedMedia
"""A piece of a message: a text, an image or a PDF."""


class Turn(NamedTuple):
    """One turn of a conversation. Calls of tools have ids; a turn of a tool says which call it answers."""

    role: Role
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: ToolCall | None = None
    parts: tuple[Part, ...] = ()
    """The same text with the images and PDFs that belong to it, in order; nothing if there are none."""


class Prompt(NamedTuple):
    """What a model is asked."""

    turns: Sequence[Turn]
    schema: Json | None = None
    """The JSON Schema that the answer is held to."""


class Completion(NamedTuple):
    """What a model answered."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    stop_reason: str = ""
    """Why it went no further, in the vendor's words."""
    refusal: str = ""
    """Why it is no answer, though its tokens are paid for."""
    first_token_at: float | None = None
    """When the first piece of it came, by `time.perf_counter`; only known of an answer that was streamed."""


def turns_of(request: ProviderRequest, media: Mapping[str, LoadedMedia]) -> list[Turn]:
    """Return the turns of a request. What a tool said without having been called becomes a turn of the user."""
    turns: list[Turn] = []
    unanswered: list[ToolCall] = []
    numbers = itertools.count(1)
    for message in request.chat_prompt or (Message(role="user", content=request.question),):
        text = _text(message.content)
        if message.role == "tool":
            call = next((call for call in unanswered if message.name in (None, call.tool, call.id)), None)
            if call is not None:
                unanswered.remove(call)
            turns.append(Turn("tool", text, answers=call) if call else Turn("user", f"@[Tool]:\n{text}"))
            continue
        calls = tuple(
            msgspec.structs.replace(call, id=call.id or f"call_{next(numbers)}") for call in message.tool_calls or ()
        )
        unanswered += [call for call in calls if call.output is None]
        turns.append(Turn(message.role, text, calls, parts=_parts(message.content, media) if media else ()))
        turns += [Turn("tool", _text(call.output), answers=call) for call in calls if call.output is not None]
    return turns


def _parts(content: Any, media: Mapping[str, LoadedMedia]) -> tuple[Part, ...]:
    """Return the pieces of a message that attaches images or PDFs; nothing of any other."""
    if not isinstance(content, tuple) or not any(isinstance(block, FileBlock) for block in content):
        return ()
    return tuple(
        media.get(block.value, block.value) if isinstance(block, FileBlock) else block.value for block in content
    )


def split_system(turns: Sequence[Turn]) -> tuple[str, list[Turn]]:
    """Return the system prompt and the other turns, for vendors whose requests keep the two apart.

    Such a request needs a turn: if there are only system messages, the last one is sent as the user's.
    """
    others = [turn for turn in turns if turn.role != "system"]
    system = [turn.text for turn in turns if turn.role == "system"]
    if not others:
        others = [Turn("user", system.pop())]
    return "\n\n".join(filter(None, system)), others


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; any other text as it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def decode(body: bytes, type_: type[T]) -> T:
    """Return the body of a reply as a `type_`; raise `ProviderError` if it is none."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        raise ProviderError(f"the model's answer is malformed: {error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        if (mended := mended_json(body)) is not None:
            return decode(mended, type_)
        shown = excerpt(body.decode("utf-8", "replace"))
        raise ProviderError(f"the model's answer is no JSON: {shown or 'it is empty'}") from error


def _text(content: Any) -> str:
    """Return the content of a message, or the output of a tool, as text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and all(hasattr(block, "value") for block in content):
        return "\n".join(block.value for block in content)
    return msgspec.json.encode(content).decode()
