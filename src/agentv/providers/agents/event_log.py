"""Log files with the events of a coding agent, one file per attempt, with secrets masked."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Self

from agentv.files.dumps import clean_name
from agentv.log import debug, warn
from agentv.records import Problem, ProviderRequest
from agentv.redact import clean
from agentv.text import truncate

LOG_FORMATS = {"json": ".jsonl", "summary": ".log"}
"""The formats of a log, and the suffixes of their files."""
SHOWN_CHARACTERS = 300


class AgentLogs:
    """Opens the logs of a target, all in one folder. A log that cannot be written is a warning, not an error."""

    def __init__(self, folder: Path, form: str):
        self._folder = folder
        self._form = form
        self._warned: set[str] = set()

    def new(self, request: ProviderRequest) -> "AgentLog":
        """Return the log of one attempt at a case, in a file of its own."""
        time = f"{datetime.now():%Y%m%d_%H%M%S}"
        name = clean_name(request.eval_id, clean)
        stem = f"{time}_{name}_attempt-{request.attempt}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._create(stem)
        except OSError as error:
            self.warn(error)
            return AgentLog(self, None, self._form)
        debug(f"{request.eval_id}: events are logged in {file.name}")
        return AgentLog(self, file, self._form)

    def _create(self, stem: str) -> BinaryIO:
        """Create a file with this stem, adding a number if the name is taken."""
        path = self._folder / f"{stem}{LOG_FORMATS[self._form]}"
        number = 1
        while True:
            try:
                return path.open("xb")
            except FileExistsError:
                number += 1
                path = path.with_name(f"{stem}-{number}{path.suffix}")

    def warn(self, error: OSError) -> None:
        """Warn that a log cannot be written, once per reason."""
        reason = error.strerror or str(error)
        if reason in self._warned:
            return
        self._warned.add(reason)
        problem = Problem(
            message=f"logs cannot be written here: {reason}",
            severity="warning",
            file=self._folder,
        )
        warn(problem)


@dataclass
class AgentLog:
    """Writes the events of one attempt: unchanged, or as one readable line per event."""

    _logs: AgentLogs
    _file: BinaryIO | None
    _form: str

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # `write` has warned about it
                self._file.close()

    def write(self, line: bytes, summary: str) -> None:
        """Write a line of the agent's output. `summary` describes it, and is empty if the line is not an event."""
        text = self._text(line, summary)
        if self._file is None or not text:
            return
        try:
            self._file.write(text.encode("utf-8", "replace") + b"\n")
            self._file.flush()
        except OSError as error:
            self._logs.warn(error)
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _text(self, line: bytes, summary: str) -> str:
        if self._form == "json":
            return clean(line.decode("utf-8", "replace"))
        return _one_line(clean(summary))


def _one_line(text: str) -> str:
    """Return the text as one line of at most `SHOWN_CHARACTERS`."""
    return truncate(" ".join(text.split()), SHOWN_CHARACTERS)
