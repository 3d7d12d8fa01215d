"""Check the files that cases attach, before anything runs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentv.cases.attachments import find_attachment, media_type, read_attachment
from agentv.cases.origin import OriginFinder
from agentv.errors import AttachmentError
from agentv.files.conversion import MAX_MISFITS, Misfit
from agentv.files.yaml import Steps
from agentv.records import EvalCase, FileBlock, Message, Problem

_ALIASES = {
    "input_messages": "input",
    "expected_messages": "expected_output",
}


@dataclass
class AttachmentCheck:
    """Report the attached files that cannot be used.

    A run checks only that files are there. With `reads_content`, their content is checked as well.
    """

    report: Callable[[Problem], None]
    reads_content: bool
    _origins: OriginFinder = field(default_factory=OriginFinder)

    def check(self, case: EvalCase) -> None:
        """Report the problems of the files of one case, each at its position."""
        if not _has_blocks(case):
            return
        found = 0
        for message_steps, value in _attached_files(case):
            misfit = self._problem_of(value, case)
            if misfit is None:
                continue
            found += 1
            written = self._origins.written(case)
            steps = _written_steps(message_steps, written.value)
            # Each lookup scans the text of the case, so the number of exact positions is limited.
            if found > MAX_MISFITS:
                steps = ()
            self.report(misfit.problem(case.file.path, written.place(steps)))

    def _problem_of(self, value: str, case: EvalCase) -> Misfit | None:
        """Return the problem of a file, or None if it can be used."""
        try:
            path = find_attachment(value, case.file)
            if not self.reads_content:
                return None
            if path.stat().st_size == 0:
                return Misfit((), f"empty file: {value}", severity="warning")
            if media_type(value, path) is None:
                read_attachment(value, path)
        except AttachmentError as error:
            if isinstance(error.__cause__, UnicodeDecodeError):
                hint = "only targets that read files themselves can use it"
                return Misfit((), error.message, hint, "warning")
            return Misfit((), error.message, error.hint)
        except OSError as error:
            return Misfit((), str(error))
        return None


def _has_blocks(case: EvalCase) -> bool:
    """Return whether a message of the case consists of blocks; in most cases none does."""
    for message in case.input_messages + case.expected_messages:  # noqa: SIM110  # runs once per case
        if type(message.content) is tuple:
            return True
    return False


def _attached_files(case: EvalCase) -> Iterator[tuple[Steps, str]]:
    """Yield the path of each attached file, with the steps that lead to it."""
    for name in _ALIASES:
        messages: tuple[Message, ...] = getattr(case, name)
        for index, message in enumerate(messages):
            if not isinstance(message.content, tuple):
                continue
            for number, block in enumerate(message.content):
                if isinstance(block, FileBlock):
                    yield (name, index, "content", number, "value"), block.value


def _written_steps(steps: Steps, written: Mapping[str, Any] | None) -> Steps:
    """Return the steps as written in the file, where a field may have its alias."""
    name, *rest = steps
    if written is not None and written.get(str(name)) is None:
        name = _ALIASES[str(name)]
    return name, *rest
