"""Import Codex rollouts, and the output of `codex exec --json`, as answers.

A rollout is the file that Codex writes for a session under `~/.codex/sessions`. It contains the items of the
conversation with the model, and events for the user interface that repeat most of them. agentv reads the items, and
from the events only tokens, times and errors.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentv.files.plain import json_value
from agentv.files.tool_calls import plain_output
from agentv.importers.importer import Answer, Becomes, Importer, Row, Tally
from agentv.importers.sample import Line, Sample, read_lines
from agentv.importers.transcripts.session import (
    Stream,
    TranscriptBuilder,
    answer_of,
    timestamp,
    transcripts,
    type_name,
)
from agentv.providers.agents.codex import CodexTranscript
from agentv.records import Json

STREAM_TYPES = (
    "thread.started",
    "turn.started",
    "turn.completed",
    "turn.failed",
    "error",
    "item.started",
    "item.updated",
    "item.completed",
)
"""Event types that `codex exec --json` prints."""
IGNORED_TYPES = (
    "session_meta",
    "turn_context",
    "world_state",
    "compacted",
    "token_usage_record",
    "inter_agent_communication",
)
"""Record types that contain nothing that the agent said or did. `session_meta` has the id of the session."""
IGNORED_ITEMS = ("reasoning", "ghost_snapshot", "compaction", "agent_message", "additional_tools")
CALL_ITEMS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call")
"""Item types that are tool calls."""
INPUT_KEYS = ("arguments", "input", "action", "query")
"""The keys under which items of different types have the input of a tool."""
_EXIT_CODE = re.compile(r"\A(?:.*\n){0,4}?(?:Exit code:|Process exited with code) (-?\d+)")
"""The exit code in the lines before the output of a shell command."""


class CodexImporter(Importer):
    """A Codex rollout or the output of `codex exec --json`, or a folder of them."""

    becomes = Becomes.ANSWERS
    noun = "records"
    takes_id = True
    reads_folders = True

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return any(_is_codex_record(record) for record in sample.records)

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        for path in transcripts(source):
            answer = _answer(path, self.options.id, tally)
            if isinstance(answer, str):
                tally.skip(answer, path.name)
            else:
                yield Row(answer, path.name)


def _is_codex_record(record: Json) -> bool:
    type_ = record.get("type")
    if type_ in ("session_meta", "thread.started"):
        return True
    if type_ in ("response_item", "event_msg") and isinstance(record.get("payload"), dict):
        return True
    return record.get("record_type") == "state"


def _answer(path: Path, id_: str | None, tally: Tally) -> Answer | str:
    """Return the answer in a session, or as text the reason why there is none."""
    session = TranscriptBuilder()
    stream = Stream(CodexTranscript())

    def skip_truncated(where: str) -> None:
        tally.skip("it is truncated", where)

    for line in read_lines(path, skip_truncated):
        tally.read += 1
        if not isinstance(line.value, dict):
            tally.skip("it is not a record", line.where)
            continue
        record: Json = line.value
        if record.get("type") in STREAM_TYPES:
            stream.take(record, record.get("thread_id"))
        else:
            _take(line, session, tally)
    return answer_of(session, stream, id_, path)


def _take(line: Line, session: TranscriptBuilder, tally: Tally) -> None:
    """Add a record of a rollout, or skip it if its type is unknown. Older rollouts have items without an envelope."""
    record: Json = line.value
    at = timestamp(record)
    payload = record.get("payload")
    match record:
        case {"type": "response_item", "payload": dict()}:
            is_known = _take_item(session, payload, at)
        case {"type": "event_msg", "payload": dict()}:
            is_known = _take_event(session, payload, at)
        case {"type": "session_meta", "payload": {"id": str(session_id)}}:
            session.id = session.id or session_id
            is_known = True
        case {"type": str(type_)} if type_ in IGNORED_TYPES:
            is_known = True
        case {"type": str()} if "payload" not in record:
            is_known = _take_item(session, record, at)
        case _:
            is_known = "record_type" in record or _take_head(session, record)
    if not is_known:
        tally.skip(f"unknown record type {type_name(record, 'payload')!r}", line.where)


def _take_head(session: TranscriptBuilder, record: Json) -> bool:
    """Take the session id from the first record of an older rollout. Return whether this is such a record."""
    session_id = record.get("id")
    if "type" in record or not isinstance(session_id, str):
        return False
    session.id = session.id or session_id
    return True


def _take_item(session: TranscriptBuilder, item: Any, at: str | None) -> bool:
    """Add an item of the conversation. Return whether its type is known."""
    if item.get("role") != "user":
        session.tick(at)
    match item:
        case {"type": "message", "role": "assistant"}:
            text = _text(item.get("content"))
            session.add_text(text, at, _message_id(item))
        case {"type": "message"}:
            if item.get("role") == "user" and not session.is_in_turn:
                session.begin_turn(at)
        case {"type": str(type_)} if type_ in CALL_ITEMS:
            tool = item.get("name")
            if not isinstance(tool, str):
                tool = type_.removesuffix("_call")
            call_id = item.get("call_id") or item.get("id")
            session.call(tool, _input(item), call_id, at)
        case {"type": str(type_)} if type_.endswith("_output"):
            output, is_error = _output(item.get("output"))
            session.result(item.get("call_id"), output, at, is_error=is_error)
        case {"type": str(type_)}:
            return type_ in IGNORED_ITEMS
    return True


def _take_event(session: TranscriptBuilder, event: Any, at: str | None) -> bool:
    """Take tokens, times and errors from an event. Return whether it has a type.

    Everything else in events is repeated in items.
    """
    match event:
        case {"type": "task_started"}:
            session.begin_turn(at)
        case {"type": "task_complete" | "turn_aborted"}:
            session.tick(at)
            session.end_turn()
        case {"type": "token_count", "info": {"total_token_usage": dict(usage)}}:
            # The counts are totals of the session: one message id for all of them keeps the largest.
            session.use(
                "all",
                input=usage.get("input_tokens"),
                output=usage.get("output_tokens"),
                cached=usage.get("cached_input_tokens"),
            )
        case {"type": "error" | "stream_error", "message": str(text)}:
            session.fail(text, at)
        case {"type": "exec_command_end", "call_id": str(call_id), "exit_code": int(code)} if code:
            session.fail_call(call_id)
    return "type" in event


def _message_id(item: Json) -> str | None:
    id_ = item.get("id")
    if not isinstance(id_, str):
        return None
    return id_


def _text(content: Any) -> str:
    """Return the text of a message, whose content is text or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    return "\n".join(texts)


def _input(item: Json) -> Any:
    """Return the input of a tool call. Decode it if it is JSON in a text."""
    for key in INPUT_KEYS:
        if key in item:
            return json_value(item[key])
    return None


def _output(output: Any) -> tuple[Any, bool]:
    """Return the output of a tool, and whether the tool failed."""
    output = plain_output(output)
    found = json_value(output)
    if isinstance(found, dict) and ("output" in found or "content" in found):
        content = plain_output(found.get("output", found.get("content")))
        has_failed = found.get("success") is False or _exit_code(found) not in (0, None)
        _, has_failed_inside = _output_text(content)
        return content, has_failed or has_failed_inside
    return _output_text(output)


def _exit_code(found: Json) -> Any:
    """Return the exit code in the JSON that older versions write for a shell command."""
    metadata = found.get("metadata")
    if isinstance(metadata, dict) and "exit_code" in metadata:
        return metadata["exit_code"]
    return found.get("exit_code")


def _output_text(output: Any) -> tuple[Any, bool]:
    """Return the output, and whether its first lines name an exit code other than 0."""
    if not isinstance(output, str):
        return output, False
    head = output.partition("\nOutput:")[0]
    code = _EXIT_CODE.search(head)
    return output, code is not None and int(code[1]) != 0
