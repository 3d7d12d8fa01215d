"""The base of coding agents that are command-line programs.

This module has what coding agents share: their settings, the form of a prompt, and a provider that runs a program. The
program reads the prompt from stdin and writes its events to stdout, see `transcript`. An agent that reaches its timeout
may have answered already: it may be waiting for a background task, for example. That is only checked when the call is
cancelled, since an agent may give several answers.
"""

import asyncio
import os
import re
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from agentv.errors import MissingProgram, ProviderError, nearest
from agentv.files.conversion import Misfit
from agentv.files.state import state_folder
from agentv.processes.child import ProcessResult
from agentv.processes.command import SHOWN_CHARACTERS, describe_exit, output_tail, run_program
from agentv.processes.streams import Capture, StreamOutput
from agentv.protocols import attach_outcome
from agentv.providers.agents.event_log import LOG_FORMATS, AgentLog, AgentLogs
from agentv.providers.agents.transcript import NOT_EXITED, AgentFailure, EventLines, InnerRetry, Transcript, add_line
from agentv.providers.inner_retries import report_inner_retry
from agentv.providers.settings import NOT_IN_CACHE_KEY, VARIABLE, Flag, Seconds, Text
from agentv.providers.trace_context import with_variables
from agentv.providers.workspaces.settings import WorkspaceSettings
from agentv.records import Json, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.text import timestamp_now, truncate

EVENT_CHARACTERS = 300
DEFAULT_LOG_FORMAT = "json"
RUN_IN_FOLDER = b'cd -- "$0" && exec "$@"'
"""A shell script that replaces itself with a program, in the folder that is its first argument."""
_EXPLAINS_NOTHING = re.compile(r"\s*Reading (?:prompt|additional input) from stdin|.*\bWARN(?:ING)?\b", re.IGNORECASE)
LogFormat = Annotated[
    str,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"enum": [*LOG_FORMATS]},
                {"pattern": VARIABLE},
            ]
        }
    ),
]


class CodingAgentSettings(WorkspaceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A coding agent, driven through its own command-line program."""

    reads_files: ClassVar[bool] = True
    always_has_workspace: ClassVar[bool] = True
    kind: ClassVar[str]
    """The name of this provider kind."""
    program: ClassVar[str]
    """The usual name of the program."""
    install: ClassVar[str]
    """How to install the program."""

    executable: Annotated[
        Text | None,
        Meta(description="The program to run. Defaults to the agent's usual command."),
    ] = None
    args: Annotated[
        tuple[str, ...] | None,
        Meta(description="Additional arguments."),
    ] = None
    model: Annotated[
        Text | None,
        Meta(description="The model to use."),
    ] = None
    system_prompt: Annotated[
        str | None,
        Meta(description="Prepended to the case's own system message."),
    ] = None
    timeout_seconds: Annotated[
        Seconds | None,
        Meta(description="Time limit per case."),
        NOT_IN_CACHE_KEY,
    ] = None
    log_dir: Annotated[
        Text | None,
        Meta(description="Folder for its logs, one file per case."),
    ] = None
    log_format: Annotated[
        LogFormat | None,
        Meta(description="json for raw events, summary for one line per event."),
    ] = None
    keep_sessions: Annotated[
        Flag | None,
        Meta(description="Whether the agent keeps its own record of each case."),
        NOT_IN_CACHE_KEY,
    ] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        form = self.log_format
        if form is None or form in LOG_FORMATS or form.startswith("${{"):
            return
        yield Misfit(
            ("log_format",),
            f"unknown log_format {form!r}",
            nearest(form, LOG_FORMATS),
        )

    def find_program(self, folder: Path) -> str:
        """Return the absolute path of the program. Raise `MissingProgram` if it is not installed."""
        name = self.executable or self.program
        if "/" in name:
            name = str(folder / Path(name).expanduser())
        found = shutil.which(name)
        if found is None:
            raise MissingProgram(
                f"no such program: {name}",
                hint=f"{self.install}, or set 'executable' to its path",
            )
        return os.path.abspath(found)

    def logs(self) -> AgentLogs:
        """Return the logs of its events. Their folder is relative to the folder in which the run was started."""
        folder = state_folder("logs") / self.kind
        if self.log_dir:
            folder = Path(self.log_dir).expanduser()
        return AgentLogs(Path.cwd() / folder, self.log_format or DEFAULT_LOG_FORMAT)


def link_files(heading: str, files: Iterable[Path]) -> str:
    """Return the part of a prompt that lists files to read, or "" if there are none."""
    links = [f"* [{path.name}]({path.as_uri()})" for path in files]
    if not links:
        return ""
    return "\n".join([heading, *links])


def join_parts(*parts: str | None) -> str:
    """Join the parts of a prompt with blank lines, skipping empty ones."""
    return "\n\n".join(part for part in parts if part)


def make_prompt(request: ProviderRequest) -> str:
    """Return the prompt for an agent that gets the guidelines as text and reads attached files itself."""
    guidelines = ""
    if request.guidelines:
        guidelines = f"Follow these guidelines:\n\n{request.guidelines}"
    files = link_files("Read these files before you do anything else:", request.input_files)
    return join_parts(guidelines, files, request.question)


class CodingAgent(ABC):
    """Runs the program once for each request."""

    def __init__(self, settings: CodingAgentSettings, folder: Path):
        self._kind = settings.kind
        self._program = settings.find_program(folder)
        self._extra = settings.args or ()
        self.workspaces = settings.workspaces(folder)
        self._logs = settings.logs()

    @abstractmethod
    def arguments(self, request: ProviderRequest, extra: tuple[str, ...]) -> list[str]:
        """Return the arguments of the program, including `extra`, the user's own."""

    def prompt(self, request: ProviderRequest) -> str:
        """Return what the program reads from stdin."""
        return make_prompt(request)

    @abstractmethod
    def transcript(self) -> Transcript:
        """Return an empty transcript for the events of one request."""

    def preview(self, request: ProviderRequest) -> Json:
        """Return what is sent for a request: the command and its stdin."""
        return {
            "command": self._command(request),
            "stdin": self.prompt(request),
        }

    def _command(self, request: ProviderRequest) -> list[str]:
        arguments = self.arguments(request, self._extra)
        return [self._program, *arguments]

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        transcript = self.transcript()
        start = time.perf_counter()
        try:
            async with self.workspaces.folder(request) as workspace:
                with self._logs.new(request) as log:
                    events = EventLines(_Reader(transcript, log).take)
                    start = time.perf_counter()  # the time to prepare the workspace does not count
                    finished = await self._run(request, workspace, events)
                    events.end()
                    duration_ms = _milliseconds_since(start)
        except asyncio.CancelledError as error:
            duration_ms = _milliseconds_since(start)
            outcome = self._stopped(transcript, duration_ms, error)
            attach_outcome(error, outcome)
            raise
        return self._ended(transcript, duration_ms, finished)

    def _ended(self, transcript: Transcript, duration_ms: float, finished: ProcessResult) -> ProviderResponse:
        """Return the response of an agent that has exited. Raise `ProviderError` if it has not answered."""
        if transcript.failure is not None:
            partial = transcript.partial(duration_ms)
            raise self._failed(transcript.failure, partial)
        may_pass = True
        if finished.code:
            how = describe_exit(finished.code)
            may_pass = False
        elif not transcript.answer.strip():
            how = "ended without an answer"
        elif not transcript.is_complete:
            how = "stopped before it was done"
        else:
            return transcript.response(duration_ms)
        raise ProviderError(
            f"{self._kind} {how}{_explain_end(transcript, finished)}",
            may_pass=may_pass,
            partial=transcript.partial(duration_ms),
        )

    def _failed(self, failure: AgentFailure, partial: ProviderResponse | None) -> ProviderError:
        """Return the error for a failure that the agent has reported."""
        message = clean(failure.message).strip()
        reason = truncate(message, SHOWN_CHARACTERS) or "no reason given"
        return ProviderError(
            f"{self._kind} reports a failure: {reason}",
            may_pass=failure.may_pass,
            status=failure.status,
            partial=partial,
        )

    def _stopped(
        self,
        transcript: Transcript,
        duration_ms: float,
        cancelled: asyncio.CancelledError,
    ) -> ProviderResponse | ProviderError:
        """Return the outcome of an agent that was stopped. It may have answered without exiting."""
        failure = transcript.failure
        if failure is None and transcript.is_complete and transcript.answer.strip():
            return transcript.response(duration_ms, NOT_EXITED)
        partial = transcript.partial(duration_ms)
        if failure is not None:
            return self._failed(failure, partial)
        retry = transcript.retry
        if retry is not None:
            return ProviderError(
                _describe(retry),
                may_pass=retry.may_pass,
                status=retry.status,
                partial=partial,
            )
        stderr = "".join(getattr(cancelled, "__notes__", ()))
        return ProviderError(_explanation(stderr), may_pass=True, partial=partial)

    async def _run(self, request: ProviderRequest, workspace: Path, events: Capture) -> ProcessResult:
        command = self._command(request)
        if any("\0" in word for word in command):
            raise ProviderError("an argument of the program contains a NUL character")
        argv = [b"/bin/sh", b"-c", RUN_IN_FOLDER, os.fsencode(workspace)]
        argv += map(os.fsencode, command)
        with tempfile.TemporaryFile() as file:
            file.write(self.prompt(request).encode())
            file.seek(0)
            environment = with_variables(self.workspaces.environment, request)
            return await run_program(
                argv,
                environment,
                stdin=file.fileno(),
                stdout=events,
            )


class _Reader:
    """Writes each line of a program's output to the log and adds its event to the transcript."""

    def __init__(self, transcript: Transcript, log: AgentLog):
        self._transcript = transcript
        self._log = log
        self._task = asyncio.current_task()

    def take(self, line: bytes) -> None:
        if self._task is not None and self._task.cancelling():
            # errors that the agent reports now are caused by the cancellation
            self._log.write(line, "after a stop request")
            return
        transcript = self._transcript
        previous_retry = transcript.retry
        transcript.arrived = timestamp_now()
        summary = add_line(transcript, line)
        self._log.write(line, summary)
        retry = transcript.retry
        if retry is not None and retry is not previous_retry:
            report_inner_retry(retry.attempt, retry.reason)


def _milliseconds_since(start: float) -> float:
    seconds = time.perf_counter() - start
    return round(seconds * 1000, 3)


def _explain_end(transcript: Transcript, finished: ProcessResult) -> str:
    """Return the known reasons why a program exited without an answer, to append to a message."""
    if transcript.last_event:
        finished = finished._replace(stdout=StreamOutput())  # events are not readable
    explanation = _explanation(output_tail(finished))
    if explanation:
        return f": {explanation}"
    if transcript.retry is not None:
        return f": {_describe(transcript.retry)}"
    before_json = clean(transcript.last_event).partition("{")[0]
    last_event = before_json.strip(": ")
    if last_event:
        return f": its last event was {truncate(last_event, EVENT_CHARACTERS)!r}"
    return ", without any output"


def _explanation(tail: str) -> str:
    """Return the output in what `output_tail` returned, without lines that explain nothing, such as warnings."""
    if not tail.startswith(": "):
        return ""
    lines = []
    for line in tail.removeprefix(": ").splitlines():
        if line.strip() and not _EXPLAINS_NOTHING.match(line):
            lines.append(line)
    return "\n".join(lines)


def _describe(retry: InnerRetry) -> str:
    return f"it last retried because of {truncate(clean(retry.reason), SHOWN_CHARACTERS)}"
