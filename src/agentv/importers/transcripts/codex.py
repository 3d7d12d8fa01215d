"""Codex's rollouts, and the output of `codex exec --json` -> answers.

A rollout is what Codex keeps of a session under `~/.codex/sessions`: items of the conversation with a model, and
events for the user interface that repeat much of it. Only the items are read, and of the events the tokens and times.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentv.importers.importer import Answer, Becomes, Importer, Row, Tally
from agentv.importers.sample import Line, Sample, read_lines
from agentv.importers.transcripts.session import (
    Session,
    Stream,
    answer_of,
    plain_output,
    timestamp,
    transcripts,
    type_name,
)
from agentv.providers.agents.codex import CodexTranscript
from agentv.records import Json

EVENTS = (
    *("thread.started", "turn.started", "turn.completed", "turn.failed", "error"),
    *("item.started", "item.updated", "item.completed"),
)
"""What `codex exec --json` prints."""
SILENT = ("session_meta", "turn_context", "world_state", "compacted", "token_usage_record", "inter_agent_communication")
SILENT_ITEMS = ("reasoning", "ghost_snapshot", "compaction", "agent_message", "additional_tools")
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call")
"""Items of a conversation that are calls of tools."""


class Codex(Importer):
    """A rollout of Codex or the output of `codex exec --json`, or a folder of them."""

    becomes = Becomes.ANSWERS
    noun = "records"
    takes_id = True
    reads_folders = True

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return any(
            record.get("type") in ("session_meta", "thread.started")
            or (record.get("type") in ("response_item", "event_msg") and isinstance(record.get("payload"), dict))
            or record.get("record_type") == "state"
            for record in sample.records
        )

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        for path in transcripts(source):
            answer = _answer(path, self.options.id, tally)
            if isinstance(answer, str):
                tally.skip(answer, path.name)
            else:
                yield Row(answer, path.name)


def _answer(path: Path, id_: str | None, tally: Tally) -> Answer | str:
    """Return the answer of a session, or why there is none."""
    session, stream = Session(), Stream(CodexTranscript())
    for line in read_lines(path, lambda where: tally.skip("it is cut off", where)):
        tally.read += 1
        if not isinstance(line.value, dict):
            tally.skip("it is no record", line.where)
        elif line.value.get("type") in EVENTS:
            stream.take(line.value, line.value.get("thread_id"))
        else:
            _take(line, session, tally)
    return answer_of(session, stream, id_, path)


def _take(line: Line, session: Session, tally: Tally) -> None:
    """Add a record of a rollout; older ones are items without an envelope."""
    record, at = line.value, timestamp(line.value)
    payload = record.get("payload")
    match record:
        case {"type": "response_item", "payload": dict()}:
            is_known = _take_item(session, payload, at)
        case {"type": "event_msg", "payload": dict()}:
            is_known = _take_event(session, payload, at)
        case {"type": str(type_)} if type_ in SILENT:
            if type_ == "session_meta" and isinstance(payload, dict) and isinstance(payload.get("id"), str):
                session.id = session.id or payload["id"]
            is_known = True
        case {"type": str()} if "payload" not in record:
            is_known = _take_item(session, record, at)
        case _:
            is_known = "record_type" in record or _take_head(session, record)
    if not is_known:
        tally.skip(f"unknown record type {type_name(record, 'payload')!r}", line.where)


def _take_head(session: Session, record: Json) -> bool:
    """Take the first record of an older rollout, which has no type; return whether it is one."""
    if "type" in record or not isinstance(record.get("id"), str):
        return False
    session.id = session.id or record["id"]
    return True


def _take_item(session: Session, item: Json, at: str | None) -> bool:
    """Add an item of the conversation; return whether its type is known."""
    if item.get("role") != "user":
        session.tick(at)
    match item:
        case {"type": "message", "role": "assistant"}:
            session.say(_text(item.get("content")), at, _name(item))
        case {"type": "message"}:
            if item.get("role") == "user" and not session.is_in_turn:
                session.begin_turn(at)
        case {"type": str(type_)} if type_ in CALLS:
            name = item.get("name")
            tool = name if isinstance(name, str) else type_.removesuffix("_call")
            session.call(tool, _input(item), item.get("call_id") or item.get("id"), at)
        case {"type": str(type_)} if type_.endswith("_output"):
            output, is_error = _output(item.get("output"))
            session.result(item.get("call_id"), output, at, is_error=is_error)
        case {"type": str(type_)}:
            return type_ in SILENT_ITEMS
    return True


def _take_event(session: Session, event: Json, at: str | None) -> bool:
    """Take the tokens, times and failures of an event. All that it says besides is in items as well."""
    match event:
        case {"type": "task_started"}:
            session.begin_turn(at)
        case {"type": "task_complete" | "turn_aborted"}:
            session.tick(at)
            session.end_turn()
        case {"type": "token_count", "info": {"total_token_usage": dict(usage)}}:
            names = {"input": "input_tokens", "output": "output_tokens", "cached": "cached_input_tokens"}
            session.use("all", **{name: usage.get(key) for name, key in names.items()})
        case {"type": "error" | "stream_error", "message": str(text)}:
            session.fail(text, at)
    return "type" in event


def _name(item: Json) -> str | None:
    return item["id"] if isinstance(item.get("id"), str) else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _input(item: Json) -> Any:
    """Return what a tool was given: JSON, if it is some."""
    given = next((item[key] for key in ("arguments", "input", "action", "query") if key in item), None)
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return given


def _output(output: Any) -> tuple[Any, bool]:
    """Return what a tool gave, and whether that is a failure."""
    if isinstance(output, dict):
        return plain_output(output.get("content", output)), output.get("success") is False
    if isinstance(output, str) and output.startswith('{"output":'):
        try:
            found = msgspec.json.decode(output)
            code = found.get("metadata", {}).get("exit_code", 0)
            return found["output"], code not in (0, None)
        except (msgspec.DecodeError, AttributeError, RecursionError):
            return output, False
    return plain_output(output), False
