"""OpenAI's Responses API, as OpenAI and Azure speak it. Nothing is stored with the vendor."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from agentv.errors import ProviderError
from agentv.providers.models.chat_completions import arguments
from agentv.providers.models.conversation import Completion, Part, Prompt, Turn, decode, parse_json
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import excerpt, server_message
from agentv.records import Json, TokenUsage, ToolCall

ENDS = ("response.completed", "response.incomplete", "response.failed")
MAY_PASS = ("server_error", "rate_limit_exceeded")
INPUTS, OUTPUTS = ("arguments", "input", "action", "code", "queries"), ("output", "results", "outputs", "result")
"""Where the items for tools that the vendor runs have what was given and what came back."""


class Responses:
    """The format of `/responses`."""

    path = "/responses"

    def body(self, model: str | None, settings: LanguageModelSettings, prompt: Prompt) -> Json:
        instructions, turns = _split_instructions(prompt.turns)
        body: Json = {"model": model, "input": [item for turn in turns for item in _items(turn)], "store": False}
        if instructions:
            body["instructions"] = instructions
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.max_output_tokens is not None:
            body["max_output_tokens"] = settings.max_output_tokens
        if settings.reasoning_effort is not None:
            body["reasoning"] = {"effort": settings.reasoning_effort}
        if prompt.schema is not None:
            body["text"] = {"format": {"type": "json_schema", "name": "answer", "schema": prompt.schema}}
        return body

    def completion(self, reply: bytes) -> Completion:
        found = decode(reply, _Reply)
        if found.error is not None or found.status == "failed":
            raise _failure(found.error or _Error())
        if not found.output and found.incomplete_details is None:
            raise ProviderError(f"the model gave no answer: its list of outputs is empty: {server_message(reply)}")
        stop_reason = found.status or ""
        if found.incomplete_details is not None:
            stop_reason = found.incomplete_details.reason or stop_reason
        text = _text(found.output or ())
        refusal = _refusal(found.output or ())
        if stop_reason == "content_filter" and not refusal:
            refusal = f"the model refused: a content filter stopped it{f' after {text!r}' if text else ''}"
        return Completion(
            text=text,
            calls=tuple(_calls(found.output or ())),
            reasoning="\n\n".join(_thoughts(found.output or ())),
            usage=None if found.usage is None else _tokens(found.usage),
            stop_reason=stop_reason,
            refusal=refusal,
        )

    def reader(self) -> "_EventReader":
        return _EventReader()


class _EventReader:
    """Takes the response from the last event, which has all of it."""

    def __init__(self) -> None:
        self._response: Json | None = None

    def add(self, event: Json) -> bool:
        kind = str(event.get("type", ""))
        if kind in ENDS:
            self._response = event.get("response")
        if kind == "error":
            raise _failure(_Error(code=event.get("code"), message=event.get("message")))
        return kind.endswith(".delta")

    def reply(self) -> Json | None:
        return self._response


def _split_instructions(turns: Sequence[Turn]) -> tuple[str, Sequence[Turn]]:
    """Return the system messages at the start, and the other turns; if there are none, the last one is the user's."""
    count = next((number for number, turn in enumerate(turns) if turn.role != "system"), len(turns) - 1)
    first = turns[count]._replace(role="user") if turns[count].role == "system" else turns[count]
    return "\n\n".join(turn.text for turn in turns[:count] if turn.text), [first, *turns[count + 1 :]]


def _items(turn: Turn) -> Iterator[Json]:
    if turn.answers is not None:
        yield {"type": "function_call_output", "call_id": turn.answers.id, "output": turn.text}
        return
    if turn.parts:
        yield {"role": turn.role, "content": [_content_part(part) for part in turn.parts]}
    elif turn.text or not turn.calls:
        yield {"role": turn.role, "content": turn.text}
    for call in turn.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": arguments(call.input)}


def _content_part(part: Part) -> Json:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.is_image:
        return {"type": "input_image", "image_url": part.data_url, "detail": "auto"}
    return {"type": "input_file", "filename": part.name, "file_data": part.data_url}


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
    words = excerpt(error.message or "") or error.code or "no reason given"
    return ProviderError(f"the model failed: {words}", may_pass=error.code in MAY_PASS)


def _convert(item: Json) -> _Item:
    try:
        return msgspec.convert(item, _Item)
    except msgspec.ValidationError as error:
        raise ProviderError(f"the model's answer is malformed: {error}") from error


def _text(output: Sequence[Json]) -> str:
    """Return the answer; what the model said on the way to it counts only if there is no other."""
    messages = [_convert(item) for item in output if item.get("type") == "message"]
    final = [message for message in messages if message.phase != "commentary"] or messages
    return "".join(piece.text or "" for message in final for piece in message.content or ())


def _refusal(output: Sequence[Json]) -> str:
    messages = [_convert(item) for item in output if item.get("type") == "message"]
    refusals = (piece.refusal for message in messages for piece in message.content or () if piece.refusal)
    return f"the model refused: {refusal}" if (refusal := next(refusals, None)) else ""


def _thoughts(output: Sequence[Json]) -> Iterator[str]:
    for item in output:
        if item.get("type") == "reasoning":
            thought = _convert(item)
            yield from (piece.text for piece in (*(thought.summary or ()), *(thought.content or ())) if piece.text)


def _calls(output: Sequence[Json]) -> Iterator[ToolCall]:
    """Yield the calls of tools: functions of the user's, and tools that the vendor runs, with their outputs."""
    for item in output:
        kind = str(item.get("type", ""))
        if not kind.endswith("_call"):
            continue
        given = next((item[name] for name in INPUTS if item.get(name) is not None), None)
        yield ToolCall(
            tool=str(item.get("name") or kind.removesuffix("_call")),
            input=parse_json(given) if isinstance(given, str) and "arguments" in item else given,
            output=next((item[name] for name in OUTPUTS if item.get(name) is not None), None),
            id=item.get("call_id") or item.get("id"),
        )


def _tokens(usage: _Usage) -> TokenUsage:
    given, made = usage.input_tokens_details or _InputDetails(), usage.output_tokens_details or _OutputDetails()
    return TokenUsage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=given.cached_tokens,
        cache_write=given.cache_write_tokens,
        reasoning=made.reasoning_tokens,
    )
