"""Count the parts of many answers that could not be read, and describe them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agentv.records import Dropped, DroppedKind, Problem
from agentv.text import plural


@dataclass
class _Count:
    """How many parts of one kind were dropped, from how many answers, and the first of them."""

    example: str
    where: str
    parts: int = 0
    answers: int = 0


class DroppedCounts:
    """Counts what could not be read in many answers, by kind."""

    def __init__(self) -> None:
        self._counts: dict[DroppedKind, _Count] = {}

    def add(self, dropped: Iterable[Dropped], where: str) -> None:
        """Count the parts of one answer; `where` names it."""
        for record in dropped:
            count = self._counts.setdefault(record.kind, _Count(record.example, where))
            count.parts += record.count
            count.answers += 1

    def warnings(self) -> Iterator[Problem]:
        """Yield one warning per kind, with an example."""
        for kind, count in self._counts.items():
            words = WORDS[kind]
            parts = plural(count.parts, words.one, words.many)
            answers = plural(count.answers, "answer")
            yield Problem(
                message=f"{parts} in {answers}, such as {count.example} in {count.where}",
                severity="warning",
                hint=words.hint,
            )


class _Words(NamedTuple):
    """How a kind of dropped parts is described."""

    one: str
    many: str
    hint: str


WORDS: Mapping[DroppedKind, _Words] = {
    "tool_calls": _Words(
        "tool call without a readable name",
        "tool calls without a readable name",
        "tool_trajectory does not judge these answers; give each tool call a 'tool' or a 'name'",
    ),
    "trace_events": _Words(
        "invalid trace event",
        "invalid trace events",
        "ignored; an event has a 'type': model_step, tool_call, tool_result, message or error",
    ),
    "messages": _Words(
        "message with an unknown role or shape",
        "messages with an unknown role or shape",
        "ignored; a message has a 'role': system, user, assistant or tool",
    ),
    "content": _Words(
        "part of a message with an unknown shape",
        "parts of messages with an unknown shape",
        "ignored; a part is a text, a file, a tool call or the result of one",
    ),
    "figures": _Words(
        "invalid figure",
        "invalid figures",
        "ignored; costs, durations and token counts are numbers of at least 0",
    ),
    "metadata": _Words(
        "'metadata' that is not a mapping",
        "'metadata' that are not mappings",
        "ignored; 'metadata' is a mapping of JSON values",
    ),
    "fields": _Words(
        "unknown key",
        "unknown keys",
        "ignored; return such data under 'metadata', which is kept and passed to evaluators",
    ),
}
