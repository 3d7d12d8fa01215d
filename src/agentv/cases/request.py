"""Build the provider request of an eval case.

Attached files are read here, when the case runs, and not when it is loaded. The content of a guideline file goes to
`guidelines`, and a marker replaces it in the message. Images and PDFs are passed by path: the provider reads them.
"""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentv.cases.attachments import find_attachment, media_type, read_attachment
from agentv.errors import AttachmentError
from agentv.placeholders import VARS, top_name
from agentv.records import CaseFile, EvalCase, FileBlock, Media, Message, ProviderRequest, TextBlock

GUIDELINES_HEADING = "[[ ## Guidelines ## ]]"
REQUEST_HEADING = "[[ ## Request ## ]]"
Block = TextBlock | FileBlock


class Files(enum.Enum):
    """How a prompt contains a file: its content, or its path for a target that reads files itself."""

    INLINE = "inline"
    REFERENCE = "reference"


class _Turn(NamedTuple):
    """A message rendered as text."""

    message: Message
    text: str
    is_visible: bool
    """False if the message is empty, or only attaches guidelines."""
    blocks: tuple[Block, ...] = ()
    """The message with its images and PDFs in their positions; empty if it has none."""


def build_request(
    case: EvalCase,
    guideline_patterns: Sequence[str],
    files: Files,
) -> ProviderRequest:
    """Return the request that is sent to a target for a case; raise `AttachmentError` if a file cannot be read."""
    text = _single_text(case.input_messages)
    if text is not None:  # fast path: most cases are one message of plain text
        return ProviderRequest(
            eval_id=case.id,
            dataset=case.dataset,
            question=text,
            chat_prompt=case.input_messages,
        )
    renderer = _Renderer(case.file, guideline_patterns, files)
    try:
        turns = [renderer.turn(message) for message in case.input_messages]
    except AttachmentError as error:
        raise AttachmentError(
            error.message,
            file=case.file.path,
            line=case.line,
            hint=error.hint,
        ) from error
    guidelines = renderer.guidelines()
    return ProviderRequest(
        eval_id=case.id,
        dataset=case.dataset,
        question=_question(turns),
        guidelines=guidelines,
        chat_prompt=_chat_prompt(turns, guidelines),
        input_files=tuple(renderer.input_files),
        media=tuple(renderer.media.values()),
        guideline_files=tuple(renderer.guideline_files),
    )


def prepend_guidelines(request: ProviderRequest) -> ProviderRequest:
    """Return the request to a target that does not take guidelines separately: its prompt starts with them."""
    if not request.guidelines:
        return request
    parts = (GUIDELINES_HEADING, request.guidelines, REQUEST_HEADING, request.question)
    return msgspec.structs.replace(request, question_with_guidelines="\n\n".join(parts))


def with_case_data(request: ProviderRequest, case: EvalCase, uses: frozenset[str]) -> ProviderRequest:
    """Return the request with the variables and the metadata of the case that its target uses.

    `vars` and `metadata` are all of them, `vars.NAME` is a single one. The rest is not part of the request, so that it
    can change without affecting the answer.
    """
    changes: dict[str, Any] = {}
    values = case.vars or {}
    if VARS in uses:
        changes["vars"] = values
    else:
        names = {top_name(name, values) for name in uses if name.startswith(f"{VARS}.")}
        if names:
            changes["vars"] = {name: value for name, value in values.items() if name in names}
    if "metadata" in uses:
        changes["metadata"] = case.metadata or {}
    return msgspec.structs.replace(request, **changes)


def _single_text(messages: Sequence[Message]) -> str | None:
    """Return the text of a conversation that is a single message of plain text, else None."""
    if len(messages) > 1:
        return None
    message = messages[0]
    if message.tool_calls or message.role not in ("user", "system"):
        return None
    content = message.content
    if isinstance(content, str) and content.strip():
        return content
    return None


def is_guideline(
    value: str,
    path: Path,
    eval_file: CaseFile,
    patterns: Sequence[str],
) -> bool:
    """Return whether a file is a guideline, by its path as written or by its path from the repository root."""
    names = [value.removeprefix("./")]
    root = eval_file.root
    if root and path.is_relative_to(root):
        names.append(path.relative_to(root).as_posix())
    for pattern in patterns:
        expression = _glob(pattern)
        if any(expression.fullmatch(name) for name in names):
            return True
    return False


@dataclass
class _Renderer:
    """Render messages as text, and collect the files that they attach, each once."""

    eval_file: CaseFile
    patterns: Sequence[str]
    files: Files
    input_files: dict[Path, None] = field(default_factory=dict)
    media: dict[str, Media] = field(default_factory=dict)
    """The images and PDFs by their paths as written."""
    guideline_files: dict[Path, str] = field(default_factory=dict)
    """The content of each guideline file."""

    def turn(self, message: Message) -> _Turn:
        texts: list[str] = []
        blocks: list[Block] = []
        has_media = False
        is_visible = bool(message.tool_calls)
        for block in _blocks(message):
            if isinstance(block, TextBlock):
                text = block.value
                is_shown = bool(text.strip())
            else:
                text, is_shown = self._render_file(block.value)
            if is_shown:
                is_visible = True
            if text:
                texts.append(text)
            if isinstance(block, FileBlock) and block.value in self.media:
                has_media = True
                blocks.append(block)
            else:
                blocks.append(TextBlock(text))
        turn = _Turn(message, "\n".join(texts), is_visible)
        if has_media:
            return turn._replace(blocks=_join_texts(blocks))
        return turn

    def guidelines(self) -> str:
        """Return the content of the guideline files; with more than one, each under its name."""
        if len(self.guideline_files) == 1:
            return next(iter(self.guideline_files.values()))
        parts = [f"=== {path.name} ===\n{text}" for path, text in self.guideline_files.items()]
        return "\n\n".join(parts)

    def _render_file(self, value: str) -> tuple[str, bool]:
        """Return the text for a file block, and whether it makes the message visible."""
        path = find_attachment(value, self.eval_file)
        name = value.replace('"', "&quot;")
        reference = f'<file: path="{name}">'
        if self.files is Files.INLINE:
            type_ = media_type(value, path)
            if type_ is not None:
                self.input_files[path] = None
                self.media[value] = Media(value=value, path=path, type=type_)
                return reference, True
        if is_guideline(value, path, self.eval_file, self.patterns):
            if path not in self.guideline_files:
                self.guideline_files[path] = read_attachment(value, path)
            return f"<Attached: {value}>", False
        self.input_files[path] = None
        if self.files is Files.REFERENCE:
            return reference, True
        content = read_attachment(value, path)
        return f'<file path="{name}">\n{content}\n</file>', True


def _join_texts(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks with adjacent texts joined into one and empty texts removed."""
    joined: list[Block] = []
    for block in blocks:
        if not isinstance(block, TextBlock):
            joined.append(block)
            continue
        if not block.value:
            continue
        last = None
        if joined:
            last = joined[-1]
        if isinstance(last, TextBlock):
            joined[-1] = TextBlock(f"{last.value}\n{block.value}")
        else:
            joined.append(block)
    return tuple(joined)


def _blocks(message: Message) -> Sequence[Block]:
    match message.content:
        case None:
            return ()
        case str(text):
            return (TextBlock(text),)
        case dict(structured):
            encoded = msgspec.json.encode(structured)
            indented = msgspec.json.format(encoded, indent=2)
            return (TextBlock(indented.decode()),)
        case blocks:
            return blocks


def _question(turns: Sequence[_Turn]) -> str:
    """Return the prompt as one text: that of a single message, or all turns under the names of their roles."""
    visible = [turn for turn in turns if turn.is_visible]
    roles = {turn.message.role for turn in turns}
    if len(visible) <= 1 and roles <= {"system", "user"}:
        shown = visible or turns  # without a visible message, the files that are attached
        texts = [_text_with_calls(turn) for turn in shown]
        return "\n\n".join(filter(None, texts))
    parts = []
    for turn in turns:
        text = _text_with_calls(turn)
        if text.strip():
            parts.append(f"@[{turn.message.role.capitalize()}]:\n{text}")
    return "\n\n".join(parts)


def _text_with_calls(turn: _Turn) -> str:
    """Return the text of a turn, followed by its tool calls as JSON."""
    parts = []
    if turn.text:
        parts.append(turn.text)
    for call in turn.message.tool_calls or ():
        encoded = msgspec.json.encode(call)
        parts.append(encoded.decode())
    return "\n".join(parts)


def _chat_prompt(turns: Sequence[_Turn], guidelines: str) -> tuple[Message, ...]:
    """Return the messages for a language model, with the guidelines in the first system message."""
    chat = []
    for turn in turns:
        if turn.is_visible:
            message = msgspec.structs.replace(turn.message, content=turn.blocks or turn.text)
            chat.append(message)
    if not guidelines:
        return tuple(chat)
    section = f"{GUIDELINES_HEADING}\n\n{guidelines}"
    for index, message in enumerate(chat):
        if message.role == "system":
            chat[index] = _append_text(message, section)
            return tuple(chat)
    return (Message(role="system", content=section), *chat)


def _append_text(message: Message, text: str) -> Message:
    content = message.content
    if isinstance(content, tuple):
        blocks = (*content, TextBlock(text))
        return msgspec.structs.replace(message, content=blocks)
    return msgspec.structs.replace(message, content=f"{content}\n\n{text}")


_WILDCARDS = {
    "**/": "(?:.*/)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
}


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    """Return a glob as a regular expression. `**` crosses folders; a glob without a slash matches in any folder."""
    pattern = pattern.removeprefix("./")
    expression = ""
    if "/" not in pattern:
        expression = "(?:.*/)?"
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern):
        expression += _WILDCARDS.get(part) or re.escape(part)
    return re.compile(expression, re.DOTALL)
