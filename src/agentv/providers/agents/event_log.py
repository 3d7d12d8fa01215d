"""The events of a coding agent -> a log file a case, without the run's secrets."""

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Self

from agentv.notices import note, warn
from agentv.records import Problem, ProviderRequest
from agentv.redact import clean
from agentv.system.dumps import clean_name

LOG_FORMATS = {"json": ".jsonl", "summary": ".log"}
"""How events can be logged, and how the names of such files end."""
SHOWN_CHARACTERS = 300


class AgentLogs:
    """Opens the logs of a target, all in one folder. One that cannot be written is a warning, no error."""

    def __init__(self, folder: Path, form: str):
        self._folder, self._form = folder, form
        self._warned: set[str] = set()

    def new(self, request: ProviderRequest) -> "AgentLog":
        """Return the log of one attempt at a case; no other run and no other case writes to the same file."""
        stem = f"{datetime.now():%Y%m%d_%H%M%S}_{clean_name(request.eval_id, clean)}_attempt-{request.attempt}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = self._create(stem)
        except OSError as error:
            self.warn(error)
            return AgentLog(self, None, self._form)
        note(f"{request.eval_id}: events are logged in {file.name}")
        return AgentLog(self, file, self._form)

    def _create(self, stem: str) -> BinaryIO:
        """Create a file of this name, with a number added if there is one already."""
        path = self._folder / f"{stem}{LOG_FORMATS[self._form]}"
        number = 1
        while True:
            try:
                return path.open("xb")
            except FileExistsError:
                number += 1
                path = path.with_name(f"{stem}-{number}{path.suffix}")

    def warn(self, error: OSError) -> None:
        """Warn, once for each reason, that a log cannot be written."""
        reason = error.strerror or str(error)
        if reason not in self._warned:
            self._warned.add(reason)
            warn(Problem(message=f"logs cannot be written here: {reason}", severity="warning", file=self._folder))


class AgentLog:
    """Writes events as they come: as they are, or each as one line for a person."""

    def __init__(self, logs: AgentLogs, file: BinaryIO | None, form: str):
        self._logs, self._file, self._form = logs, file, form

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # there has been a warning
                self._file.close()

    def write(self, line: bytes, summary: str) -> None:
        """Write a line of the agent's output; `summary` says what it means, and is empty if it is no event."""
        text = clean(line.decode("utf-8", "replace")) if self._form == "json" else _short(clean(summary))
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


def _short(text: str) -> str:
    """Return the text as one line of readable length."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"
