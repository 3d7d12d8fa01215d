"""The events of a coding agent, a JSON object a line -> what it said, did and cost.

Events come from another program: those that are not understood are passed over, and any field may be missing. What an
event means is each agent's own affair; see `claude_code` and `codex`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentv.formats.wire import mended_json, response_from, text_of
from agentv.processes.command import shorten
from agentv.processes.streams import Capture
from agentv.records import Json, ProviderResponse, TokenUsage
from agentv.telemetry.trace import milliseconds_between

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""When the events have come to so much, what more is said and done on the way is not kept; the answer is."""
MAX_NAMED = 5
MAX_NAMED_CHARACTERS = 120
REFUSED = (400, 401, 403)
_USED_UP = re.compile(r"quota|credit balance|billing|(?:usage|weekly|hour|your) limit", re.IGNORECASE)
NOT_EXITED = "the agent did not exit after its answer"


class AgentFailure(NamedTuple):
    """A failure that an agent has reported; `may_pass` says that a second try may help."""

    message: str
    may_pass: bool = True
    status: int | None = None
    """The status of the HTTP request that failed, if one did."""


class InnerRetry(NamedTuple):
    """A request of the agent's own that failed, and that the agent repeats."""

    attempt: int
    reason: str
    may_pass: bool = True
    status: int | None = None


class Transcript(ABC):
    """What an agent has said and done, put together from its events."""

    def __init__(self) -> None:
        self.answer = ""
        self.is_complete = False
        """Whether the agent has reported that it is done. It may go on even then, and report it again."""
        self.size = 0
        self.failure: AgentFailure | None = None
        self.retry: InnerRetry | None = None
        """The last request that the agent repeats; None once it has gone on."""
        self.last_event = ""
        """What the last event means, for a person."""
        self.arrived: str | None = None
        """When the event that is being added came: its time, if it does not tell."""
        self.figures: Json = {}
        """Tokens, cost and the time to the first token, named as in a response."""
        self._messages: list[Json] = []
        self._calls: dict[str, Json] = {}
        self._denied: dict[str, str] = {}
        self._unknown: dict[str, set[str]] = {}

    def cost(self, usage: TokenUsage | None) -> float | None:
        """Return what tokens cost in USD, where the agent does not tell."""
        return None

    @abstractmethod
    def add(self, event: Json) -> str:
        """Add an event; return a line for a person that says what it means."""

    def add_message(self, text: str, name: str | None = None) -> None:
        """Add a message of the agent, or of the helper of this name."""
        if self.size <= MAX_KEPT_BYTES:
            message = {"role": "assistant", "content": text}
            self._messages.append(message if name is None else message | {"name": name})

    def add_call(self, tool: str, input_: Any, id_: Any, event: Json, **metadata: Any) -> Json:
        """Add a call of a tool and return it: it may be changed later. The same id means the same call."""
        known = self._calls.get(id_) if isinstance(id_, str) else None
        if known is not None:
            known.update(tool=tool, input=input_)
            known["metadata"] = {**(known["metadata"] or {}), **metadata} or None
            return known
        call = {"tool": tool, "input": input_, "timestamp": self._time(event), "metadata": metadata or None}
        if self.size > MAX_KEPT_BYTES:
            return call
        if isinstance(id_, str):
            self._calls[id_] = call | {"id": id_}
            call = self._calls[id_]
        self._messages.append({"role": "assistant", "tool_calls": [call]})
        return call

    def has_call(self, id_: Any) -> bool:
        """Return whether a call with this id was added."""
        return isinstance(id_, str) and id_ in self._calls

    def add_output(self, id_: Any, output: Any, event: Json, *, is_error: bool = False) -> str:
        """Add the output of a call; return the name of its tool."""
        call = self._calls.get(id_, {}) if isinstance(id_, str) else {}
        if call and self.size <= MAX_KEPT_BYTES:
            self.end_call(call, output, event, is_error=is_error)
        return str(call.get("tool", "a tool"))

    def end_call(self, call: Json, output: Any, event: Json | None, *, is_error: bool) -> None:
        """Add what came of a call, and how long it took if `event` is its end, and not its beginning as well."""
        call["output"] = output
        more: Json = {"is_error": True} if is_error else {}
        ended = None if event is None else self._time(event)
        if (took := milliseconds_between(call["timestamp"], ended)) is not None and took >= 0:
            more["duration_ms"] = took
        call["metadata"] = {**(call["metadata"] or {}), **more} or None

    def _time(self, event: Json) -> str | None:
        """Return when an event was: what it tells itself, or when it came."""
        told = event.get("timestamp")
        return told if isinstance(told, str) and milliseconds_between(told, told) == 0 else self.arrived

    def add_denied(self, id_: Any, tool: Any, input_: Any = None) -> None:
        """Add that the agent was not allowed to use a tool."""
        key = id_ if isinstance(id_, str) else f"{len(self._denied)}"
        given = self._calls.get(key, {}).get("input", input_)
        shown = text_of(tool) if given is None else f"{text_of(tool)} {text_of(given)}"
        self._denied[key] = shorten(" ".join(shown.split()), MAX_NAMED_CHARACTERS)

    def add_unknown(self, kind: str, id_: Any) -> None:
        """Count something that the agent did and that is not understood."""
        seen = self._unknown.setdefault(kind, set())
        seen.add(id_ if isinstance(id_, str) else f"{len(seen)}")

    def note(self, *more: str) -> str | None:
        """Return what a reader of the answer must know."""
        notes = [*more]
        if self._denied:
            notes.append(f"the agent was denied permission: {_listed([*self._denied.values()])}")
        if self._unknown:
            kinds = [f"{kind} ({len(seen)})" for kind, seen in sorted(self._unknown.items())]
            notes.append(f"not understood, and not in the trace: {_listed(kinds)}")
        return "; ".join(notes) or None

    def response(self, duration_ms: float | None, *notes: str) -> ProviderResponse:
        """Return the response; the answer is always one of its messages."""
        messages = self._messages
        if self.answer and not any(message.get("content") == self.answer for message in messages):
            messages = [*messages, {"role": "assistant", "content": self.answer}]
        plain = {"text": self.answer, "output_messages": messages, "duration_ms": duration_ms}
        found = response_from({**plain, **self.figures, "note": self.note(*notes)})
        return found if found.cost_usd is not None else replace(found, cost_usd=self.cost(found.token_usage))

    def partial(self, duration_ms: float) -> ProviderResponse | None:
        """Return what is known of an agent that has not answered; None if that is nothing."""
        return self.response(duration_ms) if self._messages or self.figures else None


def may_pass(status: int | None, message: str) -> bool:
    """Return whether a request that failed may succeed later: not if it is refused, or a quota is used up."""
    return status not in REFUSED and _USED_UP.search(message) is None


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


class EventLines(Capture):
    """Passes on a stream line by line as it comes, and keeps the end of it; a line that is too long is left out."""

    def __init__(self, take: Callable[[bytes], None]):
        super().__init__()
        self._take = take
        self._line_parts: list[bytes] = []
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
        """Pass on the line that is not ended yet."""
        line = b"".join(self._line_parts).strip()
        self._line_parts.clear()
        self._size = 0
        if line:
            self._take(line)


def add_line(transcript: Transcript, line: bytes) -> str:
    """Add the event in a line to a transcript; return what it means for a person, or nothing if it is no event."""
    transcript.size += len(line)
    event = parse_event(line)
    try:
        meaning = transcript.add(event) if event else ""
    except RecursionError:
        return ""  # nested so deep that it could not be written down either
    transcript.last_event = meaning or transcript.last_event
    return meaning


def parse_event(line: bytes) -> Json | None:
    """Return the event in a line; None for any other line."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        mended = mended_json(line) if line.startswith(b"{") else None
        found = None if mended is None else msgspec.json.decode(mended)
    return found if isinstance(found, dict) else None
