"""What an agent said and did in a session, put together record by record -> the answer that it gave."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.formats.wire import response_from, text_of
from agentv.importers.importer import Answer
from agentv.importers.sample import take_sample
from agentv.providers.agents.transcript import Transcript
from agentv.records import Json

SUB_AGENT = "agent-"
"""How the names of Claude Code's transcripts of sub-agents begin."""


class Session:
    """Collects messages, tool calls and usage. What is said last by the agent itself is its answer."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.text = ""
        self.messages: list[Json] = []
        self.trace: list[Json] = []
        self._times: list[str] = []
        self._event_times: list[str] = []
        self._calls: dict[str, Json] = {}
        self._said: dict[str, list[tuple[Json, Json]]] = {}
        self._usage: dict[str, Counter[str]] = {}
        self._milliseconds = 0.0
        self._turn: tuple[datetime, datetime] | None = None

    def say(self, text: str, at: str | None, message_id: str | None = None, *, is_own: bool = True) -> None:
        """Add a text of the agent; snapshots of one text, in the same message, are one."""
        if not text.strip():
            return
        if is_own:
            self.text = text
        said = self._said.setdefault(message_id, []) if message_id is not None else []
        for message, event in said:
            if message["content"].startswith(text):
                return
            if text.startswith(message["content"]):
                message["content"] = event["text"] = text
                return
        message = {"role": "assistant", "content": text}
        said.append((message, _event("message", at, text=text)))
        self._add(message, said[-1][1], at)

    def _add(self, message: Json, event: Json, at: str | None) -> None:
        """Add a message and its event, both in the order of time: sub-agents are read after the agent."""
        _put(self.messages, self._times, message, at)
        _put(self.trace, self._event_times, event, at)

    def call(self, tool: str, input_: Any, id_: Any, at: str | None) -> None:
        """Add a call of a tool; the same id means the same call."""
        known = self._calls.get(id_) if isinstance(id_, str) else None
        if known is not None:
            known["input"] = input_
            return
        call: Json = {"tool": tool, "input": input_}
        event = _event("tool_call", at, name=tool, input=input_)
        if at is not None:
            call["timestamp"] = at
        if isinstance(id_, str):
            call["id"] = event["id"] = id_
            self._calls[id_] = call
        self._add({"role": "assistant", "tool_calls": [call]}, event, at)

    def result(self, id_: Any, output: Any, at: str | None, *, is_error: bool = False) -> None:
        """Add what a call of a tool gave."""
        call = self._calls.get(id_, {}) if isinstance(id_, str) else {}
        if "output" in call:
            return
        call["output"] = output
        event = _event("tool_result", at, name=call.get("tool"), output=output)
        if isinstance(id_, str):
            event["id"] = id_
        if is_error:
            event["metadata"] = {"is_error": True}
        _put(self.trace, self._event_times, event, at)

    def fail(self, text: str, at: str | None) -> None:
        """Add a failure that is reported."""
        _put(self.trace, self._event_times, _event("error", at, text=text), at)

    def use(self, message_id: str, **tokens: Any) -> None:
        """Add the tokens of a message; of several reports for one message the largest counts."""
        counted = {name: count for name, count in tokens.items() if type(count) is int and count >= 0}
        if counted:
            self._usage.setdefault(message_id, Counter())
            self._usage[message_id] |= Counter(counted)
            for name in counted:
                self._usage[message_id].setdefault(name, 0)

    def begin_turn(self, at: str | None) -> None:
        """Take note that the user has said something: from now on, time passes for the agent."""
        self.end_turn()
        if (moment := _moment(at)) is not None:
            self._turn = moment, moment

    def tick(self, at: str | None) -> None:
        """Take note that the agent is still at work."""
        if self._turn is not None and (moment := _moment(at)) is not None:
            with suppress(TypeError):  # only one of them may have a time zone
                self._turn = self._turn[0], max(self._turn[1], moment)

    def end_turn(self) -> None:
        """Take note that the agent is done, until the user says something else."""
        if self._turn is not None:
            self._milliseconds += (self._turn[1] - self._turn[0]).total_seconds() * 1000
        self._turn = None

    @property
    def is_in_turn(self) -> bool:
        return self._turn is not None

    @property
    def has_answer(self) -> bool:
        return bool(self.messages)

    def answer(self, id_: str) -> Answer:
        """Return all that was said and done, as an answer."""
        self.end_turn()
        total: Counter[str] = Counter()
        names: set[str] = set()
        for tokens in self._usage.values():
            total.update(tokens)
            names |= tokens.keys()
        said = [str(message["content"]) for message in self.messages if "content" in message]
        text = self.text or (said[-1] if said else "")  # all may be a sub-agent's
        fields: Json = {"text": text, "output_messages": self.messages, "trace": self.trace}
        if names:
            fields["token_usage"] = {name: total[name] for name in ("input", "output", "cached") if name in names}
        if self._milliseconds:
            fields["duration_ms"] = round(self._milliseconds, 3)
        return Answer(id=id_, response=response_from(fields))


class Stream:
    """The events that a coding agent's program prints, as the provider of that agent reads them."""

    def __init__(self, transcript: Transcript):
        self.id: str | None = None
        self._transcript = transcript
        self._milliseconds: float | None = None

    def take(self, event: Json, id_: Any = None) -> None:
        """Add an event; `id_` is that of the session, if the event names it."""
        self._transcript.add(event)
        if event.get("type") == "result" and isinstance(took := event.get("duration_ms"), int | float):
            self._milliseconds = (self._milliseconds or 0.0) + took  # each result tells its own
        self.id = self.id or (id_ if isinstance(id_, str) else None)

    @property
    def failure(self) -> str | None:
        """What the agent reports as the reason for which it gave no answer, if it does."""
        failure = self._transcript.failure
        return None if failure is None else failure.message or "it does not say why"

    @property
    def has_answer(self) -> bool:
        return bool(self._transcript.answer)

    def answer(self, id_: str) -> Answer:
        """Return all that was said and done, as an answer."""
        return Answer(id=id_, response=self._transcript.response(self._milliseconds))


def answer_of(session: Session, stream: Stream, id_: str | None, path: Path) -> Answer | str:
    """Return the answer of a transcript, which is a session or a stream, or why there is none."""
    if stream.failure is not None:
        return f"the agent reports a failure: {stream.failure}"
    found = stream if stream.has_answer else session if session.has_answer else None
    return "the agent says nothing in it" if found is None else found.answer(id_ or found.id or path.stem)


def _event(type_: str, at: str | None, **fields: Any) -> Json:
    event = {"type": type_, "timestamp": at, **fields}
    return {name: value for name, value in event.items() if value is not None}


def _put(items: list[Json], times: list[str], item: Json, at: str | None) -> None:
    """Add an item behind those that are not later; one without a time comes last."""
    time = at or (times[-1] if times else "")
    index = bisect_right(times, time)
    items.insert(index, item)
    times.insert(index, time)


def _moment(at: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(at) if isinstance(at, str) else None
    except ValueError:
        return None


def timestamp(record: Json) -> str | None:
    """Return when a record was written, if it says so."""
    at = record.get("timestamp")
    return at if _moment(at) is not None else None


def plain_output(content: Any) -> Any:
    """Return the output of a tool; its text, if it is nothing else."""
    if isinstance(content, list) and content and all(_is_text(part) for part in content):
        return "\n".join(part["text"] for part in content)
    return content


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def transcripts(source: Path) -> Iterator[Path]:
    """Yield the transcripts that a source is, or that are in a folder: the oldest first, as later ones may copy it."""
    if not source.is_dir():
        yield source
        return
    found = (path for path in source.rglob("*.jsonl") if path.is_file() and "subagents" not in path.parts)
    yield from sorted(
        (path for path in found if not path.name.startswith(SUB_AGENT)),
        key=lambda path: (_first_moment(path), path.stat().st_mtime, path.name),
    )


def _first_moment(path: Path) -> str:
    """Return the first time that a transcript names, as text."""
    with suppress(AgentvError):
        for record in take_sample(path).records:
            if (at := timestamp(record)) is not None:
                return at
    return ""


def type_name(record: Json, *steps: str) -> str:
    """Return the type of a record as text, and of what is in it."""
    names = [text_of(record.get("type", "none"))]
    for step in steps:
        inner = record.get(step)
        if isinstance(inner, dict) and "type" in inner:
            names.append(text_of(inner["type"]))
    return ".".join(names)
