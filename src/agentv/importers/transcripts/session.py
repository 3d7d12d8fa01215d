"""Assemble what an agent said and did in a session, record by record, and return it as an answer."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agentv.errors import AgentvError
from agentv.files.wire import response_from, text_of
from agentv.importers.importer import Answer
from agentv.importers.sample import take_sample
from agentv.providers.agents.transcript import Transcript
from agentv.records import Json
from agentv.results.trace import build_trace

SUB_AGENT = "agent-"
"""The prefix of the file names of Claude Code's sub-agent transcripts."""


@dataclass(slots=True)
class _Turn:
    """The time span in which the agent works on one message of the user."""

    start: datetime
    last: datetime

    @property
    def milliseconds(self) -> float:
        return (self.last - self.start).total_seconds() * 1000


class TranscriptBuilder:
    """Collects messages, tool calls and usage. The last text of the agent itself is the answer."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.text = ""
        self.messages: list[Json] = []
        self.trace: list[Json] = []
        self._message_times: list[str] = []
        """The sort keys of `messages`."""
        self._event_times: list[str] = []
        """The sort keys of `trace`."""
        self._calls: dict[str, Json] = {}
        self._results: dict[str, Json] = {}
        """The events of results, by the ids of their calls."""
        self._failed: set[str] = set()
        """The ids of the calls that have failed."""
        self._said: dict[str, list[tuple[Json, Json]]] = {}
        """The texts of each message id, as pairs of message and trace event."""
        self._usage: dict[str, Counter[str]] = {}
        self._milliseconds = 0.0
        self._turn: _Turn | None = None

    def add_text(
        self,
        text: str,
        at: str | None,
        message_id: str | None = None,
        *,
        is_own: bool = True,
    ) -> None:
        """Add a text of the agent. Several snapshots of a text in the same message are added once.

        `is_own` is False for a text of a sub-agent.
        """
        if not text.strip():
            return
        if is_own:
            self.text = text
        said: list[tuple[Json, Json]] = []
        if message_id is not None:
            said = self._said.setdefault(message_id, [])
        for message, event in said:
            if message["content"].startswith(text):
                return
            if text.startswith(message["content"]):
                message["content"] = text
                event["text"] = text
                return

        message = {"role": "assistant", "content": text}
        event = _event("message", at, text=text)
        said.append((message, event))
        self._add(message, event, at)

    def _add(self, message: Json, event: Json, at: str | None) -> None:
        """Insert a message and its event in chronological order: sub-agents are read after the agent."""
        _insert(self.messages, self._message_times, message, at)
        _insert(self.trace, self._event_times, event, at)

    def call(
        self,
        tool: str,
        input_: Any,
        id_: Any,
        at: str | None,
    ) -> None:
        """Add a tool call. A call whose id is known already only updates the input."""
        if isinstance(id_, str) and id_ in self._calls:
            self._calls[id_]["input"] = input_
            return

        call: Json = {"tool": tool, "input": input_}
        event = _event("tool_call", at, name=tool, input=input_)
        if at is not None:
            call["timestamp"] = at
        if isinstance(id_, str):
            call["id"] = id_
            event["id"] = id_
            self._calls[id_] = call
        message = {"role": "assistant", "tool_calls": [call]}
        self._add(message, event, at)

    def result(
        self,
        id_: Any,
        output: Any,
        at: str | None,
        *,
        is_error: bool = False,
    ) -> None:
        """Add the output of a tool call. Only the first output of a call counts."""
        call: Json = {}
        if isinstance(id_, str):
            call = self._calls.get(id_, call)
        if "output" in call:
            return

        call["output"] = output
        event = _event("tool_result", at, name=call.get("tool"), output=output)
        if isinstance(id_, str):
            event["id"] = id_
            self._results[id_] = event
            is_error = is_error or id_ in self._failed
        if is_error:
            event["metadata"] = {"is_error": True}
        _insert(self.trace, self._event_times, event, at)

    def fail_call(self, id_: str) -> None:
        """Mark a tool call as failed, whether or not its output is known already."""
        self._failed.add(id_)
        event = self._results.get(id_)
        if event is not None:
            event["metadata"] = {"is_error": True}

    def fail(self, text: str, at: str | None) -> None:
        """Add an error that the agent reported."""
        event = _event("error", at, text=text)
        _insert(self.trace, self._event_times, event, at)

    def use(self, message_id: str, **tokens: Any) -> None:
        """Add the tokens of a message. If usage is reported several times for a message, the maximum counts."""
        counted: Counter[str] = Counter()
        for name, count in tokens.items():
            if type(count) is int and count >= 0:  # `type`, as a bool is an int as well
                counted[name] = count
        if not counted:
            return

        usage = self._usage.setdefault(message_id, Counter())
        usage |= counted
        for name in counted:
            usage.setdefault(name, 0)  # `|=` drops zeros, but a reported 0 is a known value

    def begin_turn(self, at: str | None) -> None:
        """Start measuring the agent's time: the user has sent a message."""
        self.end_turn()
        moment = _moment(at)
        if moment is not None:
            self._turn = _Turn(start=moment, last=moment)

    def tick(self, at: str | None) -> None:
        """Extend the current turn: the agent was still working at this time."""
        if self._turn is None:
            return
        moment = _moment(at)
        if moment is None:
            return
        with suppress(TypeError):  # times with and without a time zone cannot be compared
            self._turn.last = max(self._turn.last, moment)

    def end_turn(self) -> None:
        """Stop measuring the agent's time until the user sends another message."""
        if self._turn is not None:
            self._milliseconds += self._turn.milliseconds
        self._turn = None

    @property
    def is_in_turn(self) -> bool:
        return self._turn is not None

    @property
    def has_answer(self) -> bool:
        return bool(self.messages)

    def answer(self, id_: str) -> Answer:
        """Return the whole session as an answer."""
        self.end_turn()
        fields: Json = {
            "text": self.text or self._last_content(),
            "output_messages": self.messages,
            "trace": self.trace,
        }
        usage = self._total_usage()
        if usage:
            fields["token_usage"] = usage
        if self._milliseconds:
            fields["duration_ms"] = round(self._milliseconds, 3)
        return Answer(id=id_, response=response_from(fields))

    def _last_content(self) -> str:
        """Return the last text of any agent: a session may contain texts of sub-agents only."""
        for message in reversed(self.messages):
            if "content" in message:
                return str(message["content"])
        return ""

    def _total_usage(self) -> dict[str, int]:
        """Return the sum of the tokens of all messages. Counts that were never reported are omitted."""
        total: dict[str, int] = {}
        for tokens in self._usage.values():
            for name, count in tokens.items():
                total[name] = total.get(name, 0) + count
        return total


class Stream:
    """The events that a coding agent prints, read by the transcript of that agent's provider."""

    def __init__(self, transcript: Transcript):
        self.id: str | None = None
        self._transcript = transcript
        self._milliseconds: float | None = None

    def take(self, event: Json, id_: Any = None) -> None:
        """Add an event. `id_` is the session id, if the event has one."""
        self._transcript.add(event)
        took = event.get("duration_ms")
        if event.get("type") == "result" and isinstance(took, int | float):
            self._milliseconds = (self._milliseconds or 0.0) + took  # each result has a duration of its own
        if not self.id and isinstance(id_, str):
            self.id = id_

    @property
    def failure(self) -> str | None:
        """The reason that the agent reports for not answering, or None."""
        failure = self._transcript.failure
        if failure is None:
            return None
        return failure.message or "no reason given"

    @property
    def has_answer(self) -> bool:
        return bool(self._transcript.answer)

    def answer(self, id_: str) -> Answer:
        """Return the whole stream as an answer."""
        response = self._transcript.response(self._milliseconds)
        response = replace(response, trace=build_trace(response))
        return Answer(id=id_, response=response)


def answer_of(
    session: TranscriptBuilder,
    stream: Stream,
    id_: str | None,
    path: Path,
) -> Answer | str:
    """Return the answer in a transcript, or as text the reason why there is none.

    The lines of a transcript are records of a session, or events of a stream. A stream takes precedence.
    """
    if stream.failure is not None:
        return f"the agent reports a failure: {stream.failure}"
    if stream.has_answer:
        return stream.answer(id_ or stream.id or path.stem)
    if session.has_answer:
        return session.answer(id_ or session.id or path.stem)
    return "the agent wrote no answer"


def _event(type_: str, at: str | None, **fields: Any) -> Json:
    """Return a trace event without the fields that are None."""
    event: Json = {"type": type_}
    if at is not None:
        event["timestamp"] = at
    for name, value in fields.items():
        if value is not None:
            event[name] = value
    return event


def _insert(
    items: list[Json],
    times: list[str],
    item: Json,
    at: str | None,
) -> None:
    """Insert an item in chronological order. An item without a time is appended."""
    if at:
        time = at
    elif times:
        time = times[-1]
    else:
        time = ""
    index = bisect_right(times, time)
    items.insert(index, item)
    times.insert(index, time)


def _moment(at: Any) -> datetime | None:
    """Parse an ISO 8601 timestamp. Return None for anything else."""
    if not isinstance(at, str):
        return None
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        return None


def timestamp(record: Json) -> str | None:
    """Return the timestamp of a record, or None if it has no valid one."""
    at = record.get("timestamp")
    if _moment(at) is None:
        return None
    return str(at)


def transcripts(source: Path) -> Iterator[Path]:
    """Yield the transcripts of a source: the file itself, or all in a folder without those of sub-agents.

    The oldest comes first, as a later session may start with copies of an earlier one's records.
    """
    if not source.is_dir():
        yield source
        return
    found = []
    for path in source.rglob("*.jsonl"):
        is_sub_agent = "subagents" in path.parts or path.name.startswith(SUB_AGENT)
        if path.is_file() and not is_sub_agent:
            found.append(path)
    found.sort(key=_age_key)
    yield from found


def _age_key(path: Path) -> tuple[str, float, str]:
    return _first_timestamp(path), path.stat().st_mtime, path.name


def _first_timestamp(path: Path) -> str:
    """Return the first timestamp in a transcript, or an empty text."""
    with suppress(AgentvError):
        for record in take_sample(path).records:
            at = timestamp(record)
            if at is not None:
                return at
    return ""


def type_name(record: Json, *steps: str) -> str:
    """Return the type of a record and of the objects nested in it, such as `response_item.reasoning`."""
    names = [text_of(record.get("type", "none"))]
    for step in steps:
        inner = record.get(step)
        if isinstance(inner, dict) and "type" in inner:
            names.append(text_of(inner["type"]))
    return ".".join(names)
