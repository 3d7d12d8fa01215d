"""OpenAI's Responses API, which OpenAI and Azure offer. Requests ask the vendor not to store anything."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.files.token_usage import read_usage
from agentv.providers.models.chat_completions import arguments
from agentv.providers.models.conversation import (
    Completion,
    Part,
    Prompt,
    Turn,
    content_filter_refusal,
    decode,
    json_or_text,
)
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import excerpt, server_message
from agentv.records import Json, ToolCall

ENDS = ("response.completed", "response.incomplete", "response.failed")
MAY_PASS = ("server_error", "rate_limit_exceeded")
INPUTS = ("arguments", "input", "action", "code", "queries")
"""The fields in which the items of tools have their input. Each tool has its own."""
OUTPUTS = ("output", "results", "outputs", "result")
"""The fields in which the items of tools that the vendor runs have their output."""


class Responses:
    """The format of `/responses`."""

    path = "/responses"

    def body(
        self,
        model: str | None,
        settings: LanguageModelSettings,
        prompt: Prompt,
    ) -> Json:
        instructions, turns = _split_instructions(prompt.turns)
        items: list[Json] = []
        for turn in turns:
            items += _items(turn)
        body: Json = {
            "model": model,
            "input": items,
            "store": False,
        }
        if instructions:
            body["instructions"] = instructions
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            body["max_output_tokens"] = settings.max_output_tokens
        if settings.reasoning_effort is not None:
            body["reasoning"] = {"effort": settings.reasoning_effort}
        if prompt.schema is not None:
            form = {
                "type": "json_schema",
                "name": "answer",
                "schema": prompt.schema,
            }
            body["text"] = {"format": form}
        return body

    def completion(self, reply: bytes) -> Completion:
        found = decode(reply, _Reply)
        if found.error is not None or found.status == "failed":
            raise _failure(found.error or _Error())
        if not found.output and found.incomplete_details is None:
            raise ProviderError(f"the model returned no answer: its list of outputs is empty: {server_message(reply)}")
        stop_reason = found.status or ""
        if found.incomplete_details is not None:
            stop_reason = found.incomplete_details.reason or stop_reason
        output = found.output or ()
        text = _text(output)
        refusal = _refusal(output)
        if stop_reason == "content_filter" and not refusal:
            refusal = content_filter_refusal(text)
        return Completion(
            text=text,
            calls=tuple(_calls(output)),
            reasoning="\n\n".join(_thoughts(output)),
            usage=read_usage(found.usage),
            stop_reason=stop_reason,
            refusal=refusal,
        )

    def reader(self) -> "_EventReader":
        return _EventReader()


class _EventReader:
    """Takes the reply from the last event of a stream, which contains all of it."""

    def __init__(self) -> None:
        self._response: Json | None = None

    def add(self, event: Json) -> bool:
        kind = str(event.get("type", ""))
        if kind in ENDS:
            self._response = event.get("response")
        if kind == "error":
            error = _Error(
                code=event.get("code"),
                message=event.get("message"),
            )
            raise _failure(error)
        return kind.endswith(".delta")

    def reply(self) -> Json | None:
        return self._response


def _split_instructions(turns: Sequence[Turn]) -> tuple[str, Sequence[Turn]]:
    """Return the texts of the system messages at the start, and the other turns.

    A request needs a turn: if there are only system messages, the last one is sent as the user's.
    """
    count = 0
    while count < len(turns) and turns[count].role == "system":
        count += 1
    others = list(turns[count:])
    if not others:
        count -= 1
        others = [turns[count]._replace(role="user")]
    texts = [turn.text for turn in turns[:count] if turn.text]
    return "\n\n".join(texts), others


def _items(turn: Turn) -> Iterator[Json]:
    if turn.answers is not None:
        yield {
            "type": "function_call_output",
            "call_id": turn.answers.id,
            "output": turn.text,
        }
        return
    if turn.parts:
        yield {
            "role": turn.role,
            "content": [_content_part(part) for part in turn.parts],
        }
    elif turn.text or not turn.calls:
        yield {"role": turn.role, "content": turn.text}
    for call in turn.calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.tool,
            "arguments": arguments(call.input),
        }


def _content_part(part: Part) -> Json:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.is_image:
        return {
            "type": "input_image",
            "image_url": part.data_url,
            "detail": "auto",
        }
    return {
        "type": "input_file",
        "filename": part.name,
        "file_data": part.data_url,
    }


class _Error(msgspec.Struct):
    code: str | None = None
    message: str | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Piece(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str
    content: list[_Piece] | None = None
    summary: list[_Piece] | None = None
    phase: str | None = None


class _Reply(msgspec.Struct):
    output: list[dict[str, Any]] | None = None
    status: str | None = None
    error: _Error | None = None
    incomplete_details: _Incomplete | None = None
    usage: _Usage | None = None


def _failure(error: _Error) -> ProviderError:
    reason = excerpt(error.message or "") or error.code or "no reason given"
    return ProviderError(f"the model failed: {reason}", may_pass=error.code in MAY_PASS)


def _items_of_type(output: Iterable[Json], kind: str) -> list[_Item]:
    """Return the items of a type. Raise `ProviderError` if one is malformed."""
    return [_convert(item) for item in output if item.get("type") == kind]


def _convert(item: Json) -> _Item:
    try:
        return msgspec.convert(item, _Item)
    except msgspec.ValidationError as error:
        raise ProviderError(f"the model's answer is malformed: {error}") from error


def _text(output: Iterable[Json]) -> str:
    """Return the answer. Intermediate commentary counts only if there is no other text."""
    messages = _items_of_type(output, "message")
    final = [message for message in messages if message.phase != "commentary"]
    text = ""
    for message in final or messages:
        for piece in message.content or ():
            text += piece.text or ""
    return text


def _refusal(output: Iterable[Json]) -> str:
    for message in _items_of_type(output, "message"):
        for piece in message.content or ():
            if piece.refusal:
                return f"the model refused: {piece.refusal}"
    return ""


def _thoughts(output: Iterable[Json]) -> Iterator[str]:
    """Yield the parts of the reasoning: of each item, its summary and then its content."""
    for item in _items_of_type(output, "reasoning"):
        for pieces in (item.summary, item.content):
            for piece in pieces or ():
                if piece.text:
                    yield piece.text


def _calls(output: Iterable[Json]) -> Iterator[ToolCall]:
    """Yield the tool calls: of the user's functions, and of tools that the vendor runs, with their outputs."""
    for item in output:
        kind = str(item.get("type", ""))
        if not kind.endswith("_call"):
            continue
        input_ = _first_set(item, INPUTS)
        if isinstance(input_, str) and "arguments" in item:
            input_ = json_or_text(input_)
        yield ToolCall(
            tool=str(item.get("name") or kind.removesuffix("_call")),
            input=input_,
            output=_first_set(item, OUTPUTS),
            id=item.get("call_id") or item.get("id"),
        )


def _first_set(item: Json, names: Iterable[str]) -> Any:
    """Return the first of the fields that is not null, or None."""
    for name in names:
        value = item.get(name)
        if value is not None:
            return value
    return None
