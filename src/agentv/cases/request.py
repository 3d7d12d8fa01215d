"""EvalCase -> ProviderRequest: what exactly is sent.

Files are read here, when the case runs, and not when it is loaded. A file that is a guideline leaves
the message: its content goes to `guidelines`, and a marker stays where it was.
"""

import enum
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentv.cases.attachments import attached_file, attached_text
from agentv.errors import AttachmentError
from agentv.records import EvalCase, EvalFile, FileBlock, Message, ProviderRequest, TextBlock

GUIDELINES_HEADING = "[[ ## Guidelines ## ]]"


class Files(enum.Enum):
    """How a file goes into a prompt: its content, or its path for a target that reads files itself."""

    INLINE = "inline"
    REFERENCE = "reference"


class _Turn(NamedTuple):
    """One message as text. `visible` is False for one that only attaches guidelines, or is empty."""

    message: Message
    text: str
    visible: bool


def build_request(case: EvalCase, guideline_patterns: Sequence[str], files: Files) -> ProviderRequest:
    """What is sent to a target for `case`. A file that cannot be read raises `AttachmentError`."""
    if (text := _only_text(case.input_messages)) is not None:  # most cases are this simple
        return ProviderRequest(eval_id=case.id, question=text, chat_prompt=case.input_messages)
    reader = _Reader(case.file, guideline_patterns, files)
    try:
        turns = [reader.turn(message) for message in case.input_messages]
    except AttachmentError as error:
        raise AttachmentError(error.message, file=case.file.path, line=case.line, hint=error.hint) from error
    guidelines = reader.guidelines()
    return ProviderRequest(
        eval_id=case.id,
        question=_question(turns),
        guidelines=guidelines,
        chat_prompt=_chat_prompt(turns, guidelines),
        input_files=tuple(reader.input_files),
        guideline_files=tuple(reader.guideline_files),
    )


def _only_text(messages: Sequence[Message]) -> str | None:
    """The text of a conversation that is one plain question."""
    message = messages[0]
    if len(messages) > 1 or message.tool_calls or message.role not in ("user", "system"):
        return None
    return message.content if isinstance(message.content, str) and message.content.strip() else None


def is_guideline(value: str, path: Path, eval_file: EvalFile, patterns: Sequence[str]) -> bool:
    """Whether a file block is a guideline, by its path as written or by its path from the repo's root."""
    root = eval_file.root
    names = [value, path.relative_to(root).as_posix()] if root and path.is_relative_to(root) else [value]
    return any(_glob(pattern).fullmatch(name.removeprefix("./")) for pattern in patterns for name in names)


class _Reader:
    """Turns messages into text and remembers the files it met on the way, each once."""

    def __init__(self, eval_file: EvalFile, patterns: Sequence[str], files: Files):
        self._eval_file, self._patterns, self._files = eval_file, patterns, files
        self.input_files: dict[Path, None] = {}
        self.guideline_files: dict[Path, str] = {}

    def turn(self, message: Message) -> _Turn:
        parts, visible = [], bool(message.tool_calls)
        for block in _blocks(message):
            if isinstance(block, TextBlock):
                text, shown = block.value, bool(block.value.strip())
            else:
                text, shown = self._file(block.value)
            parts.append(text)
            visible = visible or shown
        return _Turn(message, "\n".join(part for part in parts if part), visible)

    def guidelines(self) -> str:
        """The content of the guideline files; several are each headed by their name."""
        if len(self.guideline_files) == 1:
            return next(iter(self.guideline_files.values()))
        return "\n\n".join(f"=== {path.name} ===\n{text}" for path, text in self.guideline_files.items())

    def _file(self, value: str) -> tuple[str, bool]:
        path = attached_file(value, self._eval_file)
        shown = value.replace('"', "&quot;")
        if is_guideline(value, path, self._eval_file, self._patterns):
            if path not in self.guideline_files:
                self.guideline_files[path] = attached_text(value, path)
            return f"<Attached: {value}>", False
        self.input_files[path] = None
        if self._files is Files.REFERENCE:
            return f'<file: path="{shown}">', True
        return f'<file path="{shown}">\n{attached_text(value, path)}\n</file>', True


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
    """The prompt as one text: the only message's own, or all turns under the names of their roles."""
    visible = [turn for turn in turns if turn.visible]
    if len(visible) <= 1 and all(turn.message.role in ("system", "user") for turn in turns):
        return "\n\n".join(text for turn in visible or turns if (text := _with_calls(turn)))
    spoken = ((turn.message.role, _with_calls(turn)) for turn in turns)
    return "\n\n".join(f"@[{role.capitalize()}]:\n{text}" for role, text in spoken if text.strip())


def _with_calls(turn: _Turn) -> str:
    calls = [msgspec.json.encode(call).decode() for call in turn.message.tool_calls or ()]
    return "\n".join(filter(None, [turn.text, *calls]))


def _chat_prompt(turns: Sequence[_Turn], guidelines: str) -> tuple[Message, ...]:
    """The turns for a language model, with the guidelines in the (first) system message."""
    chat = [msgspec.structs.replace(turn.message, content=turn.text) for turn in turns if turn.visible]
    if not guidelines:
        return tuple(chat)
    block = f"{GUIDELINES_HEADING}\n\n{guidelines}"
    for index, message in enumerate(chat):
        if message.role == "system":
            chat[index] = msgspec.structs.replace(message, content=f"{message.content}\n\n{block}")
            return tuple(chat)
    return (Message(role="system", content=block), *chat)


_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression. `**` crosses folders; without a slash any folder will do."""
    pattern = pattern.removeprefix("./")
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile(anywhere + "".join(_WILDCARDS.get(part) or re.escape(part) for part in parts), re.DOTALL)
