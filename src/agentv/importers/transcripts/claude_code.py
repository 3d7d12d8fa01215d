"""Claude Code's transcripts of sessions -> answers.

A transcript has a line for each block of a message, and may have several snapshots of one message: usage is reported
again with each, so that the largest report for a message is the one that counts. A fork begins with copies of another
session's records. Sub-agents are among the records (`isSidechain`), or in files of their own. The stream of
`claude -p --output-format stream-json` is nearly the same, and is read as well.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.importers.importer import Answer, Becomes, Importer, Row, Tally
from agentv.importers.sample import Line, Sample, read_lines, take_sample
from agentv.importers.transcripts.session import (
    SUB_AGENT,
    Session,
    Stream,
    answer_of,
    plain_output,
    timestamp,
    transcripts,
    type_name,
)
from agentv.providers.agents.claude_code import ClaudeTranscript
from agentv.records import Json

TALK = ("user", "assistant")
SILENT = (
    *("summary", "system", "attachment", "progress", "mode", "queue-operation", "last-prompt", "custom-title"),
    *("file-history-snapshot", "ai-title", "agent-name", "pr-link", "tag", "permission-mode", "agent-setting"),
    *("stream_event", "rate_limit_event", "control_request", "control_response", "keep_alive", "tool_progress"),
)
"""Types of records that say nothing of what the agent said or did."""


class ClaudeCode(Importer):
    """A transcript of Claude Code, or a folder of them."""

    becomes = Becomes.ANSWERS
    noun = "records"
    takes_id = True
    reads_folders = True

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        return any(
            ("sessionId" in record or "session_id" in record)
            and (record.get("type") in ("result", "system", *TALK, *SILENT))
            for record in sample.records
        )

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        reader = _Reader(tally)
        for path in transcripts(source):
            answer = reader.answer(path, self.options.id)
            if isinstance(answer, str):
                tally.skip(answer, path.name)
            else:
                yield Row(answer, path.name)


class _Reader:
    """Reads transcripts, and remembers which records it has seen: a fork repeats those of another session."""

    def __init__(self, tally: Tally):
        self._tally = tally
        self._seen: set[str] = set()
        self._sub_agents: dict[Path, dict[str, list[Path]]] = {}

    def answer(self, path: Path, id_: str | None) -> Answer | str:
        """Return the answer of a session, or why there is none."""
        session, stream = Session(), Stream(ClaudeTranscript())
        own: set[str] = set()
        for file in (path, *self._files_of_sub_agents(path)):
            for line in read_lines(file, lambda where: self._tally.skip("it is cut off", where)):
                self._tally.read += 1
                record = line.value
                if isinstance(record, dict) and "session_id" in record and "sessionId" not in record:
                    stream.take(record, record["session_id"])
                else:
                    self._take(line, session, own)
        self._seen |= own
        return answer_of(session, stream, id_, path)

    def _files_of_sub_agents(self, path: Path) -> list[Path]:
        """Return the transcripts of a session's sub-agents: in a folder of their own, or beside it, as once."""
        inside = sorted(path.with_suffix("").glob("subagents/*.jsonl"))
        if path.name.startswith(SUB_AGENT):
            return inside
        if path.parent not in self._sub_agents:
            found: dict[str, list[Path]] = {}
            for file in sorted(path.parent.glob(f"{SUB_AGENT}*.jsonl")):
                with suppress(AgentvError):
                    ids = (record.get("sessionId") for record in take_sample(file).records)
                    found.setdefault(str(next(ids, None)), []).append(file)
            self._sub_agents[path.parent] = found
        return inside + self._sub_agents[path.parent].get(path.stem, [])

    def _take(self, line: Line, session: Session, own: set[str]) -> None:
        record = line.value
        if not isinstance(record, dict):
            self._tally.skip("it is no record", line.where)
            return
        uuid = record.get("uuid")
        if isinstance(uuid, str) and uuid in self._seen:
            self._tally.skip("it is a copy of another session's", line.where)
            return
        if isinstance(uuid, str):
            own.add(uuid)
        if isinstance(name := record.get("sessionId"), str):
            session.id = session.id or name
        match record:
            case {"type": "assistant" | "user" as type_, "message": {"content": content} as message}:
                take = _take_assistant if type_ == "assistant" else _take_user
                take(session, record, message, content)
            case {"type": type_} if type_ in (*SILENT, *TALK):
                pass
            case _:
                self._tally.skip(f"unknown record type {type_name(record)!r}", line.where)


def _is_own(record: Json) -> bool:
    """Return whether a record is of the agent itself, and not of one of its sub-agents."""
    return record.get("isSidechain") is not True


def _take_assistant(session: Session, record: Json, message: Json, content: Any) -> None:
    at, id_ = timestamp(record), message.get("id")
    name = id_ if isinstance(id_, str) else str(record.get("uuid"))
    if record.get("isApiErrorMessage") is True:
        session.fail(str(plain_output(content)), at)
        return
    for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        match block:
            case {"type": "text", "text": str(text)}:
                session.say(text, at, name, is_own=_is_own(record))
            case {"type": "tool_use", "name": str(tool)}:
                session.call(tool, block.get("input"), block.get("id"), at)
    usage = message.get("usage")
    if isinstance(usage, dict):
        cached, fresh = usage.get("cache_read_input_tokens"), usage.get("input_tokens")
        parts = [part for part in (fresh, cached, usage.get("cache_creation_input_tokens")) if type(part) is int]
        session.use(name, input=sum(parts) if parts else None, output=usage.get("output_tokens"), cached=cached)
    session.tick(at)


def _take_user(session: Session, record: Json, _message: Json, content: Any) -> None:
    """Take what the user said, or what tools gave back, which the user seems to say."""
    at = timestamp(record)
    results = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    results = [block for block in results if block.get("type") == "tool_result"]
    for block in results:
        is_error = block.get("is_error") is True
        session.result(block.get("tool_use_id"), plain_output(block.get("content")), at, is_error=is_error)
    if results:
        session.tick(at)
    elif _is_own(record):
        session.begin_turn(at)
