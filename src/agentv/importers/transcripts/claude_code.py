"""Import Claude Code transcripts as answers.

A transcript has one line per block of a message, and may have several snapshots of a message. Usage is repeated in
each snapshot, so the largest report for a message counts. A forked session starts with copies of another session's
records. Records of sub-agents are inline (`isSidechain`) or in separate files. The output of
`claude -p --output-format stream-json` is nearly the same format and is supported as well.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentv.errors import AgentvError
from agentv.files.tool_calls import plain_output
from agentv.importers.importer import Answer, Becomes, Importer, Row, Tally
from agentv.importers.sample import Line, Sample, read_lines, take_sample
from agentv.importers.transcripts.session import (
    SUB_AGENT,
    Stream,
    TranscriptBuilder,
    answer_of,
    timestamp,
    transcripts,
    type_name,
)
from agentv.providers.agents.claude_code import ClaudeTranscript
from agentv.records import Json

MESSAGE_TYPES = ("user", "assistant")
IGNORED_TYPES = (
    "summary",
    "system",
    "attachment",
    "progress",
    "mode",
    "queue-operation",
    "last-prompt",
    "custom-title",
    "file-history-snapshot",
    "ai-title",
    "agent-name",
    "pr-link",
    "tag",
    "permission-mode",
    "agent-setting",
    "stream_event",
    "rate_limit_event",
    "control_request",
    "control_response",
    "keep_alive",
    "tool_progress",
)
"""Record types that contain nothing that the agent said or did."""
KNOWN_TYPES = ("result", *MESSAGE_TYPES, *IGNORED_TYPES)
INPUT_TOKENS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The counts that add up to the input tokens of a message."""


class ClaudeCodeImporter(Importer):
    """A Claude Code transcript, or a folder of transcripts."""

    becomes = Becomes.ANSWERS
    noun = "records"
    takes_id = True
    reads_folders = True

    @classmethod
    def recognizes(cls, sample: Sample) -> bool:
        for record in sample.records:
            has_session = "sessionId" in record or "session_id" in record
            if has_session and record.get("type") in KNOWN_TYPES:
                return True
        return False

    def read(self, source: Path, tally: Tally) -> Iterator[Row]:
        reader = _Reader(tally)
        for path in transcripts(source):
            answer = reader.answer(path, self.options.id)
            if isinstance(answer, str):
                tally.skip(answer, path.name)
            else:
                yield Row(answer, path.name)


class _Reader:
    """Reads transcripts and remembers their records, to skip the copies at the start of a forked session."""

    def __init__(self, tally: Tally):
        self._tally = tally
        self._seen: set[str] = set()
        """The uuids of the records of earlier sessions."""
        self._sub_agents: dict[Path, dict[str, list[Path]]] = {}
        """By folder: the sub-agent transcripts in it, by session id."""

    def answer(self, path: Path, id_: str | None) -> Answer | str:
        """Return the answer in a session, or as text the reason why there is none."""
        session = TranscriptBuilder()
        stream = Stream(ClaudeTranscript())
        own_uuids: set[str] = set()
        for file in (path, *self._sub_agent_files(path)):
            for line in read_lines(file, self._skip_truncated):
                self._tally.read += 1
                record = line.value
                # The output of `claude -p` names its session `session_id`, a transcript `sessionId`.
                if isinstance(record, dict) and "session_id" in record and "sessionId" not in record:
                    stream.take(record, record["session_id"])
                else:
                    self._take(line, session, own_uuids)
        self._seen |= own_uuids
        return answer_of(session, stream, id_, path)

    def _skip_truncated(self, where: str) -> None:
        self._tally.skip("it is truncated", where)

    def _sub_agent_files(self, path: Path) -> list[Path]:
        """Return the sub-agent transcripts of a session.

        They are in a folder named after the session. Older versions of Claude Code wrote them next to it.
        """
        nested = sorted(path.with_suffix("").glob("subagents/*.jsonl"))
        if path.name.startswith(SUB_AGENT):
            return nested
        folder = path.parent
        if folder not in self._sub_agents:
            self._sub_agents[folder] = _sub_agents_by_session(folder)
        return nested + self._sub_agents[folder].get(path.stem, [])

    def _take(self, line: Line, session: TranscriptBuilder, own_uuids: set[str]) -> None:
        """Add a record to the session, or skip it with a reason."""
        record = line.value
        if not isinstance(record, dict):
            self._tally.skip("it is not a record", line.where)
            return
        uuid = record.get("uuid")
        if isinstance(uuid, str):
            if uuid in self._seen:
                self._tally.skip("it is a copy from another session", line.where)
                return
            own_uuids.add(uuid)
        session_id = record.get("sessionId")
        if not session.id and isinstance(session_id, str):
            session.id = session_id

        match record:
            case {"type": "assistant", "message": {"content": content} as message}:
                _take_assistant(session, record, message, content)
            case {"type": "user", "message": {"content": content}}:
                _take_user(session, record, content)
            case {"type": type_} if type_ in IGNORED_TYPES or type_ in MESSAGE_TYPES:
                pass
            case _:
                self._tally.skip(f"unknown record type {type_name(record)!r}", line.where)


def _sub_agents_by_session(folder: Path) -> dict[str, list[Path]]:
    """Return the sub-agent transcripts in a folder, by the id of their session. Skip unreadable files."""
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.glob(f"{SUB_AGENT}*.jsonl")):
        with suppress(AgentvError):
            records = take_sample(file).records
            session_id = None
            if records:
                session_id = records[0].get("sessionId")
            found.setdefault(str(session_id), []).append(file)
    return found


def _is_own(record: Json) -> bool:
    """Return whether a record is the agent's own, and not that of a sub-agent."""
    return record.get("isSidechain") is not True


def _take_assistant(
    session: TranscriptBuilder,
    record: Json,
    message: Json,
    content: Any,
) -> None:
    """Add the texts, tool calls and usage in a message of the agent."""
    at = timestamp(record)
    if record.get("isApiErrorMessage") is True:
        session.fail(str(plain_output(content)), at)
        return

    message_id = message.get("id")
    if not isinstance(message_id, str):
        message_id = str(record.get("uuid"))
    if not isinstance(content, list):
        content = [{"type": "text", "text": content}]
    for block in content:
        match block:
            case {"type": "text", "text": str(text)}:
                session.add_text(text, at, message_id, is_own=_is_own(record))
            case {"type": "tool_use", "name": str(tool)}:
                call_id = block.get("id")
                session.call(tool, block.get("input"), call_id, at)
    usage = message.get("usage")
    if isinstance(usage, dict):
        _take_usage(session, message_id, usage)
    session.tick(at)


def _take_usage(session: TranscriptBuilder, message_id: str, usage: Json) -> None:
    """Add the tokens of a message. Claude reports cached input tokens separately from the others."""
    total_input = None
    for name in INPUT_TOKENS:
        count = usage.get(name)
        if type(count) is int:  # `type`, as a bool is an int as well
            total_input = (total_input or 0) + count
    session.use(
        message_id,
        input=total_input,
        output=usage.get("output_tokens"),
        cached=usage.get("cache_read_input_tokens"),
    )


def _take_user(session: TranscriptBuilder, record: Json, content: Any) -> None:
    """Add a message with the role `user`: tool results if it has any, otherwise a message of the user."""
    at = timestamp(record)
    has_results = False
    if isinstance(content, list):
        for block in content:
            if not isinstance(block, dict) or block.get("type") != "tool_result":
                continue
            has_results = True
            session.result(
                block.get("tool_use_id"),
                plain_output(block.get("content")),
                at,
                is_error=block.get("is_error") is True,
            )
    if has_results:
        session.tick(at)
    elif _is_own(record):
        session.begin_turn(at)
