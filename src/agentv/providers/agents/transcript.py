"""Builds a response from the events of a coding agent, which are JSON objects, one per line.

Events come from another program: unknown events are ignored, and any field may be missing. The modules of the agents
(`claude_code`, `codex`) define what their events mean.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentv.files.wire import mended_json, response_from, text_of
from agentv.processes.streams import Capture
from agentv.records import Json, ProviderResponse, TokenUsage
from agentv.results.trace import milliseconds_between
from agentv.text import join_names, truncate

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""Once the events exceed this size, further messages and calls are dropped. The answer is always kept."""
MAX_NAMED = 5
MAX_NAMED_CHARACTERS = 120
REFUSED = (400, 401, 403)
_USED_UP = re.compile(r"quota|credit balance|billing|(?:usage|weekly|hour|your) limit", re.IGNORECASE)
NOT_EXITED = "the agent did not exit after its answer"


class AgentFailure(NamedTuple):
    """A failure that an agent has reported. `may_pass` is true if a retry may help."""

    message: str
    may_pass: bool = True
    status: int | None = None
    """The status of the HTTP request that failed, if one did."""


class InnerRetry(NamedTuple):
    """A failed request of the agent that the agent itself retries."""

    attempt: int
    reason: str
    may_pass: bool = True
    status: int | None = None


class Transcript(ABC):
    """The messages and tool calls of an agent, collected from its events."""

    def __init__(self) -> None:
        self.answer = ""
        self.is_complete = False
        """Whether the agent has reported that it is done. It may continue after that and report it again."""
        self.size = 0
        """The size of all events so far, in bytes."""
        self.failure: AgentFailure | None = None
        self.retry: InnerRetry | None = None
        """The request that the agent is retrying; None once it has succeeded."""
        self.last_event = ""
        """A readable summary of the last event."""
        self.arrived: str | None = None
        """When the event that is being added arrived: its time if it has no timestamp."""
        self.figures: Json = {}
        """Tokens, cost and the time to the first token, named as in a response."""
        self._messages: list[Json] = []
        self._calls: dict[str, Json] = {}
        """The tool calls that have an id, by that id."""
        self._denied: dict[str, str] = {}
        """Descriptions of the calls that were denied permission, by their ids."""
        self._unknown: dict[str, set[str]] = {}
        """The ids of items that are not understood, by kind."""

    def cost(self, usage: TokenUsage | None) -> float | None:
        """Return the cost of the tokens in USD for an agent that does not report it."""
        return None

    @abstractmethod
    def add(self, event: Json) -> str:
        """Add an event and return a readable summary of it."""

    def add_message(self, text: str, name: str | None = None) -> None:
        """Add a message of the agent, or of the subagent `name`."""
        if self.size > MAX_KEPT_BYTES:
            return
        message = {"role": "assistant", "content": text}
        if name is not None:
            message["name"] = name
        self._messages.append(message)

    def add_call(
        self,
        tool: str,
        input_: Any,
        id_: Any,
        event: Json,
        **metadata: Any,
    ) -> Json:
        """Add a tool call, or update the call that has the same id, and return it. The caller may change it."""
        known = self._call(id_)
        if known is not None:
            known["tool"] = tool
            known["input"] = input_
            _add_metadata(known, metadata)
            return known
        call = {
            "tool": tool,
            "input": input_,
            "timestamp": self._time(event),
            "metadata": metadata or None,
        }
        if self.size > MAX_KEPT_BYTES:
            return call
        if isinstance(id_, str):
            call["id"] = id_
            self._calls[id_] = call
        message = {"role": "assistant", "tool_calls": [call]}
        self._messages.append(message)
        return call

    def has_call(self, id_: Any) -> bool:
        """Return whether a call with this id was added."""
        return self._call(id_) is not None

    def _call(self, id_: Any) -> Json | None:
        if isinstance(id_, str):
            return self._calls.get(id_)
        return None

    def add_output(
        self,
        id_: Any,
        output: Any,
        event: Json,
        *,
        is_error: bool = False,
    ) -> str:
        """Add the output of a call and return the name of its tool."""
        call = self._call(id_)
        if call is None:
            return "a tool"
        if self.size <= MAX_KEPT_BYTES:
            self.end_call(call, output, event, is_error=is_error)
        return str(call["tool"])

    def end_call(
        self,
        call: Json,
        output: Any,
        event: Json | None,
        *,
        is_error: bool,
    ) -> None:
        """Add the output of a call, and its duration if `event` ends it. Pass None if it also started the call."""
        call["output"] = output
        metadata: Json = {}
        if is_error:
            metadata["is_error"] = True
        ended = None if event is None else self._time(event)
        took = milliseconds_between(call["timestamp"], ended)
        if took is not None and took >= 0:
            metadata["duration_ms"] = took
        _add_metadata(call, metadata)

    def _time(self, event: Json) -> str | None:
        """Return the timestamp of an event, or the time when it arrived if that is missing or malformed."""
        timestamp = event.get("timestamp")
        if isinstance(timestamp, str) and milliseconds_between(timestamp, timestamp) == 0:
            return timestamp
        return self.arrived

    def add_denied(self, id_: Any, tool: Any, input_: Any = None) -> None:
        """Record that the agent was denied permission to use a tool."""
        key = str(len(self._denied))
        if isinstance(id_, str):
            key = id_
        call = self._calls.get(key, {})
        shown = text_of(tool)
        shown_input = call.get("input", input_)
        if shown_input is not None:
            shown += f" {text_of(shown_input)}"
        line = " ".join(shown.split())
        self._denied[key] = truncate(line, MAX_NAMED_CHARACTERS)

    def add_unknown(self, kind: str, id_: Any) -> None:
        """Count an item that is not understood. Several events with the same id count once."""
        seen = self._unknown.setdefault(kind, set())
        key = str(len(seen))
        if isinstance(id_, str):
            key = id_
        seen.add(key)

    def note(self, *more: str) -> str | None:
        """Return the warnings that belong to the answer, starting with `more`, or None."""
        notes = list(more)
        if self._denied:
            denied = join_names(list(self._denied.values()), MAX_NAMED)
            notes.append(f"the agent was denied permission: {denied}")
        if self._unknown:
            kinds = []
            for kind, seen in sorted(self._unknown.items()):
                kinds.append(f"{kind} ({len(seen)})")
            notes.append(f"unknown events, omitted from the trace: {join_names(kinds, MAX_NAMED)}")
        return "; ".join(notes) or None

    def response(self, duration_ms: float | None, *notes: str) -> ProviderResponse:
        """Return the response. The answer is always one of its messages."""
        raw = {
            "text": self.answer,
            "output_messages": self._messages_with_answer(),
            "duration_ms": duration_ms,
            **self.figures,
            "note": self.note(*notes),
        }
        response = response_from(raw)
        if response.cost_usd is not None:
            return response
        cost = self.cost(response.token_usage)
        return replace(response, cost_usd=cost)

    def _messages_with_answer(self) -> list[Json]:
        if not self.answer:
            return self._messages
        for message in self._messages:
            if message.get("content") == self.answer:
                return self._messages
        message = {"role": "assistant", "content": self.answer}
        return [*self._messages, message]

    def partial(self, duration_ms: float) -> ProviderResponse | None:
        """Return the response of an agent that has not answered, or None if nothing is known."""
        if self._messages or self.figures:
            return self.response(duration_ms)
        return None


def _add_metadata(call: Json, more: Json) -> None:
    """Add to the metadata of a call, which is None instead of empty."""
    known = call["metadata"] or {}
    call["metadata"] = {**known, **more} or None


def may_pass(status: int | None, message: str) -> bool:
    """Return whether a failed request may succeed later: not if it was refused or a quota is used up."""
    return status not in REFUSED and _USED_UP.search(message) is None


class EventLines(Capture):
    """Passes each line of a stream to `take` and keeps the end of the stream. Lines that are too long are skipped."""

    def __init__(self, take: Callable[[bytes], None]):
        super().__init__()
        self._take = take
        self._line_parts: list[bytes] = []
        # `Capture.add` counts in the same attribute, so a chunk counts twice: lines over 8 MiB may be skipped already
        self._size = 0

    def add(self, chunk: bytes) -> None:
        super().add(chunk)
        first, *more = chunk.split(b"\n")
        self._add_part(first)
        for part in more:
            self.end()
            self._add_part(part)

    def _add_part(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_LINE_BYTES:
            self._line_parts.append(part)
        else:
            self._line_parts.clear()

    def end(self) -> None:
        """Pass on the current line, which may lack its line feed at the end of the stream."""
        line = b"".join(self._line_parts).strip()
        self._line_parts.clear()
        self._size = 0
        if line:
            self._take(line)


def add_line(transcript: Transcript, line: bytes) -> str:
    """Add the event in a line to a transcript. Return a summary of it, or "" if the line is not an event."""
    transcript.size += len(line)
    event = parse_event(line)
    if not event:
        return ""
    try:
        summary = transcript.add(event)
    except RecursionError:
        return ""  # nested too deeply to be encoded in a result
    if summary:
        transcript.last_event = summary
    return summary


def parse_event(line: bytes) -> Json | None:
    """Return the event in a line, or None if it has none."""
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        event = _repaired_event(line)
    if isinstance(event, dict):
        return event
    return None


def _repaired_event(line: bytes) -> Any:
    """Return the event in a line that is not strictly JSON, or None if it cannot be repaired."""
    if not line.startswith(b"{"):
        return None
    repaired = mended_json(line)
    if repaired is None:
        return None
    return msgspec.json.decode(repaired)
