"""EvalCase -> ProviderRequest.

Files are read here, when the case runs, and not when it is loaded. The content of a guideline file goes to
`guidelines`; a marker takes its place in the message. Images and PDFs are only named: who sends them reads them.
"""

import enum
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.cases.attachments import find_attachment, media_type, read_attachment
from agentv.errors import AttachmentError
from agentv.records import EvalCase, EvalFile, FileBlock, Media, Message, ProviderRequest, TextBlock

GUIDELINES_HEADING = "[[ ## Guidelines ## ]]"


class Files(enum.Enum):
    """What goes into a prompt for a file: its content, or its path for a target that reads files itself."""

    INLINE = "inline"
    REFERENCE = "reference"


class _Turn(NamedTuple):
    """A message as text; `visible` is False if it is empty, or only attaches guidelines."""

    message: Message
    text: str
    visible: bool
    blocks: tuple[TextBlock | FileBlock, ...] = ()
    """The message with its images and PDFs in their places, if it has any."""


def build_request(case: EvalCase, guideline_patterns: Sequence[str], files: Files) -> ProviderRequest:
    """Return what is sent to a target for a case; raise `AttachmentError` if a file cannot be read."""
    if (text := _single_text(case.input_messages)) is not None:  # most cases are this simple
        return ProviderRequest(eval_id=case.id, question=text, dataset=case.dataset, chat_prompt=case.input_messages)
    renderer = _Renderer(case.file, guideline_patterns, files)
    try:
        turns = [renderer.turn(message) for message in case.input_messages]
    except AttachmentError as error:
        raise AttachmentError(error.message, file=case.file.path, line=case.line, hint=error.hint) from error
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


def _single_text(messages: Sequence[Message]) -> str | None:
    """Return the text of a conversation that is one message of plain text, else None."""
    message = messages[0]
    if len(messages) > 1 or message.tool_calls or message.role not in ("user", "system"):
        return None
    return message.content if isinstance(message.content, str) and message.content.strip() else None


def is_guideline(value: str, path: Path, eval_file: EvalFile, patterns: Sequence[str]) -> bool:
    """Return whether a file is a guideline, by its path as written or by its path from the repo's root."""
    root = eval_file.root
    names = [value, path.relative_to(root).as_posix()] if root and path.is_relative_to(root) else [value]
    return any(_glob(pattern).fullmatch(name.removeprefix("./")) for pattern in patterns for name in names)


class _Renderer:
    """Turns messages into text, and collects the files that they attach, each once."""

    def __init__(self, eval_file: EvalFile, patterns: Sequence[str], files: Files):
        self._eval_file, self._patterns, self._files = eval_file, patterns, files
        self.input_files: dict[Path, None] = {}
        self.media: dict[str, Media] = {}
        self.guideline_files: dict[Path, str] = {}

    def turn(self, message: Message) -> _Turn:
        parts, visible = [], bool(message.tool_calls)
        blocks: list[TextBlock | FileBlock] = []
        for block in _blocks(message):
            if isinstance(block, TextBlock):
                text, is_shown = block.value, bool(block.value.strip())
            else:
                text, is_shown = self._file(block.value)
            parts.append(text)
            visible = visible or is_shown
            blocks.append(block if isinstance(block, FileBlock) and block.value in self.media else TextBlock(text))
        has_media = any(isinstance(block, FileBlock) for block in blocks)
        text = "\n".join(part for part in parts if part)
        return _Turn(message, text, visible, _joined(blocks) if has_media else ())

    def guidelines(self) -> str:
        """Return the content of the guideline files; if there are several, each under its name."""
        if len(self.guideline_files) == 1:
            return next(iter(self.guideline_files.values()))
        return "\n\n".join(f"=== {path.name} ===\n{text}" for path, text in self.guideline_files.items())

    def _file(self, value: str) -> tuple[str, bool]:
        """Return the text for a file block, and whether it makes the message visible."""
        path = find_attachment(value, self._eval_file)
        name = value.replace('"', "&quot;")
        if self._files is Files.INLINE and (kind := media_type(value, path)) is not None:
            self.input_files[path] = None
            self.media[value] = Media(value=value, path=path, type=kind)
            return f'<file: path="{name}">', True
        if is_guideline(value, path, self._eval_file, self._patterns):
            if path not in self.guideline_files:
                self.guideline_files[path] = read_attachment(value, path)
            return f"<Attached: {value}>", False
        self.input_files[path] = None
        if self._files is Files.REFERENCE:
            return f'<file: path="{name}">', True
        return f'<file path="{name}">\n{read_attachment(value, path)}\n</file>', True


def _joined(blocks: Sequence[TextBlock | FileBlock]) -> tuple[TextBlock | FileBlock, ...]:
    """Return the blocks with texts in a row as one; those that are empty are left out."""
    joined: list[TextBlock | FileBlock] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if isinstance(block, TextBlock) and isinstance(last, TextBlock):
            joined[-1] = TextBlock(f"{last.value}\n{block.value}" if block.value else last.value)
        elif isinstance(block, FileBlock) or block.value:
            joined.append(block)
    return tuple(joined)


def _blocks(message: Message) -> Sequence[TextBlock | FileBlock]:
    match message.content:
        case None:
            return ()
        case str(text):
            return (TextBlock(text),)
        case dict(structured):
            return (TextBlock(msgspec.json.format(msgspec.json.encode(structured), indent=2).decode()),)
        case blocks:
            return blocks


def _question(turns: Sequence[_Turn]) -> str:
    """Return the prompt as one text: that of a single message, or all turns under the names of their roles."""
    visible = [turn for turn in turns if turn.visible]
    if len(visible) <= 1 and all(turn.message.role in ("system", "user") for turn in turns):
        return "\n\n".join(text for turn in visible or turns if (text := _with_calls(turn)))
    parts = ((turn.message.role, _with_calls(turn)) for turn in turns)
    return "\n\n".join(f"@[{role.capitalize()}]:\n{text}" for role, text in parts if text.strip())


def _with_calls(turn: _Turn) -> str:
    calls = [msgspec.json.encode(call).decode() for call in turn.message.tool_calls or ()]
    return "\n".join(filter(None, [turn.text, *calls]))


def _chat_prompt(turns: Sequence[_Turn], guidelines: str) -> tuple[Message, ...]:
    """Return the messages for a language model, with the guidelines in the first system message."""
    visible = (turn for turn in turns if turn.visible)
    chat = [msgspec.structs.replace(turn.message, content=turn.blocks or turn.text) for turn in visible]
    if not guidelines:
        return tuple(chat)
    block = f"{GUIDELINES_HEADING}\n\n{guidelines}"
    for index, message in enumerate(chat):
        if message.role == "system":
            content = message.content
            content = (*content, TextBlock(block)) if isinstance(content, tuple) else f"{content}\n\n{block}"
            chat[index] = msgspec.structs.replace(message, content=content)
            return tuple(chat)
    return (Message(role="system", content=block), *chat)


_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    """Return a glob as a regular expression. `**` crosses folders; a glob without a slash matches in any folder."""
    pattern = pattern.removeprefix("./")
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile(anywhere + "".join(_WILDCARDS.get(part) or re.escape(part) for part in parts), re.DOTALL)
