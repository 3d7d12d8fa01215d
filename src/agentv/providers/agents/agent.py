"""A coding agent's program, and a request -> what the agent said and did.

What coding agents have in common: their settings, the form of a prompt, and a program that reads the prompt from
stdin and writes its events to stdout, see `transcript`. An agent whose time is up may have answered all the same: it
waits for something that runs in the background, say. That is found out when its call is cancelled, and not before,
since there may be several answers.
"""

import asyncio
import os
import re
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from agentv.errors import ConfigError, ProviderError, nearest
from agentv.formats.conversion import Misfit
from agentv.notices import tell_inner_retry
from agentv.processes.child import ProcessResult
from agentv.processes.command import SHOWN_CHARACTERS, describe_exit, output_tail, run_program, shorten
from agentv.processes.streams import Capture, Output
from agentv.protocols import attach_outcome
from agentv.providers.agents.event_log import LOG_FORMATS, AgentLog, AgentLogs
from agentv.providers.agents.transcript import NOT_EXITED, AgentFailure, EventLines, InnerRetry, Transcript, add_line
from agentv.providers.settings import NOT_IN_CACHE_KEY, VARIABLE, Flag, Seconds, Text
from agentv.providers.workspaces.settings import WorkspaceSettings
from agentv.records import Json, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.telemetry.context import with_variables

EVENT_CHARACTERS = 300
LOGS = Path(".agentv/logs")
_EXPLAINS_NOTHING = re.compile(r"\s*Reading (?:prompt|additional input) from stdin|.*\bWARN(?:ING)?\b", re.IGNORECASE)
LogFormat = Annotated[str, Meta(extra_json_schema={"anyOf": [{"enum": [*LOG_FORMATS]}, {"pattern": VARIABLE}]})]


class CodingAgentSettings(WorkspaceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A coding agent, driven through its own command-line program."""

    reads_files: ClassVar[bool] = True
    always_has_workspace: ClassVar[bool] = True
    kind: ClassVar[str]
    """What this kind of target is called."""
    program: ClassVar[str]
    """The usual name of its program."""
    install: ClassVar[str]
    """How to get the program."""

    executable: Annotated[Text | None, Meta(description="The program, if not its usual name.")] = None
    args: Annotated[tuple[str, ...] | None, Meta(description="More arguments for it.")] = None
    model: Annotated[Text | None, Meta(description="The model it should use.")] = None
    system_prompt: Annotated[str | None, Meta(description="Goes before the case's own system message.")] = None
    timeout_seconds: Annotated[Seconds | None, Meta(description="How long one case may take."), NOT_IN_CACHE_KEY] = None
    log_dir: Annotated[Text | None, Meta(description="Where its logs go, one file a case.")] = None
    log_format: Annotated[LogFormat | None, Meta(description="Its events as they are, or a line each.")] = None
    keep_sessions: Annotated[
        Flag | None, Meta(description="Whether it keeps its own record of each case."), NOT_IN_CACHE_KEY
    ] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        form = "json" if self.log_format is None else self.log_format
        if form not in LOG_FORMATS and not form.startswith("${{"):
            yield Misfit(("log_format",), f"unknown log_format {form!r}", nearest(form, LOG_FORMATS))

    def find_program(self, folder: Path) -> str:
        """Return the path of the program; raise `ConfigError` if there is none."""
        name = self.executable or self.program
        path = str(folder / Path(name).expanduser()) if "/" in name else name
        found = shutil.which(path)
        if found is None:
            message = f"no such program: {path}"
            raise ConfigError(message, hint=f"{self.install}; 'executable' names it if it is somewhere else")
        return os.path.abspath(found)

    def logs(self) -> AgentLogs:
        """Return where its events are logged: below the folder that the run was started in."""
        folder = Path(self.log_dir).expanduser() if self.log_dir else LOGS / self.kind
        return AgentLogs(Path.cwd() / folder, self.log_format or "json")


def link_files(heading: str, files: Iterable[Path]) -> str:
    """Return a part of a prompt that has the agent read files; empty without files."""
    listed = [f"* [{path.name}]({path.as_uri()})" for path in files]
    return "\n".join([heading, *listed]) if listed else ""


def join_parts(*parts: str | None) -> str:
    """Join the parts of a prompt that are not empty, with a blank line between them."""
    return "\n\n".join(part for part in parts if part)


def make_prompt(request: ProviderRequest, *before: str | None) -> str:
    """Return the prompt for an agent that is given the guidelines, and reads the attached files itself."""
    guidelines = f"Follow these guidelines:\n\n{request.guidelines}" if request.guidelines else ""
    files = link_files("Read these files before you do anything else:", request.input_files)
    return join_parts(*before, guidelines, files, request.question)


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
        """Return the arguments of the program, with the user's own among them."""

    def prompt(self, request: ProviderRequest) -> str:
        """Return what the program reads from stdin."""
        return make_prompt(request)

    @abstractmethod
    def transcript(self) -> Transcript:
        """Return an empty transcript, for the events of one request."""

    def preview(self, request: ProviderRequest) -> Json:
        """Return what is sent for a request: the command, and what it reads from stdin."""
        return {"command": self._command(request), "stdin": self.prompt(request)}

    def _command(self, request: ProviderRequest) -> list[str]:
        return [self._program, *self.arguments(request, self._extra)]

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        transcript, start = self.transcript(), time.perf_counter()
        try:
            async with self.workspaces.folder(request) as workspace:
                with self._logs.new(request) as log:
                    events = EventLines(_Reader(transcript, log).take)
                    start = time.perf_counter()
                    finished = await self._run(request, workspace, events)
                    events.end()
                    duration_ms = _milliseconds_since(start)
        except asyncio.CancelledError as error:
            attach_outcome(error, self._stopped(transcript, _milliseconds_since(start), error))
            raise
        return self._ended(transcript, duration_ms, finished)

    def _ended(self, transcript: Transcript, duration_ms: float, finished: ProcessResult) -> ProviderResponse:
        """Return the response of an agent that has exited; raise `ProviderError` if it has not answered."""
        if transcript.failure is not None:
            raise self._failed(transcript.failure, transcript.partial(duration_ms))
        if finished.code:
            how, may_pass = describe_exit(finished.code), False
        elif not transcript.answer.strip():
            how, may_pass = "ended without an answer", True
        elif not transcript.is_complete:
            how, may_pass = "broke off before it was done", True
        else:
            return transcript.response(duration_ms)
        message = f"{self._kind} {how}{_last_words(transcript, finished)}"
        raise ProviderError(message, may_pass=may_pass, partial=transcript.partial(duration_ms))

    def _failed(self, failure: AgentFailure, partial: ProviderResponse | None) -> ProviderError:
        reason = shorten(clean(failure.message).strip(), SHOWN_CHARACTERS) or "it does not say why"
        message = f"{self._kind} reports a failure: {reason}"
        return ProviderError(message, may_pass=failure.may_pass, status=failure.status, partial=partial)

    def _stopped(
        self, transcript: Transcript, duration_ms: float, cancelled: asyncio.CancelledError
    ) -> ProviderResponse | ProviderError:
        """Return what has become of an agent that was stopped: it may have answered, and not have exited."""
        failure, retry = transcript.failure, transcript.retry
        if failure is None and transcript.is_complete and transcript.answer.strip():
            return transcript.response(duration_ms, NOT_EXITED)
        partial = transcript.partial(duration_ms)
        if failure is not None:
            return self._failed(failure, partial)
        if retry is not None:
            return ProviderError(_describe(retry), may_pass=retry.may_pass, status=retry.status, partial=partial)
        printed = "".join(getattr(cancelled, "__notes__", ()))  # to stderr
        return ProviderError(_explanation(printed), may_pass=True, partial=partial)

    async def _run(self, request: ProviderRequest, workspace: Path, events: Capture) -> ProcessResult:
        command = self._command(request)
        if any("\0" in word for word in command):
            raise ProviderError("an argument of the program has a NUL character, which it cannot hold")
        argv = [b"/bin/sh", b"-c", b'cd -- "$0" && exec "$@"', os.fsencode(workspace), *map(os.fsencode, command)]
        with tempfile.TemporaryFile() as file:
            file.write(self.prompt(request).encode())
            file.seek(0)
            environment = with_variables(self.workspaces.environment, request.telemetry)
            return await run_program(argv, environment, stdin=file.fileno(), stdout=events)


class _Reader:
    """Takes the lines that a program writes: they go to the log, and what they mean to the transcript."""

    def __init__(self, transcript: Transcript, log: AgentLog):
        self._transcript, self._log = transcript, log
        self._task = asyncio.current_task()

    def take(self, line: bytes) -> None:
        transcript = self._transcript
        if self._task is not None and self._task.cancelling():
            self._log.write(line, "after it was asked to stop")  # what it says then is no failure of its own
            return
        before, transcript.arrived = transcript.retry, _now()
        self._log.write(line, add_line(transcript, line))
        if transcript.retry is not None and transcript.retry is not before:
            tell_inner_retry(transcript.retry.attempt, transcript.retry.reason)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milliseconds_since(start: float) -> float:
    return round((time.perf_counter() - start) * 1000, 3)


def _last_words(transcript: Transcript, finished: ProcessResult) -> str:
    """Return what a program had to say when it ended without an answer, to be put behind a message."""
    if transcript.last_event:
        finished = finished._replace(stdout=Output())  # its events are for programs
    if text := _explanation(output_tail(finished)):
        return f": {text}"
    if transcript.retry is not None:
        return f": {_describe(transcript.retry)}"
    last_event = shorten(clean(transcript.last_event).partition("{")[0].strip(": "), EVENT_CHARACTERS)
    return f": its last event was {last_event!r}" if last_event else ", and said nothing"


def _explanation(tail: str) -> str:
    """Return the end of an output without the lines that explain nothing, such as warnings on something else."""
    lines = tail.removeprefix(": ").splitlines() if tail.startswith(": ") else ()
    return "\n".join(line for line in lines if line.strip() and not _EXPLAINS_NOTHING.match(line))


def _describe(retry: InnerRetry) -> str:
    return f"its last retry was because of {shorten(clean(retry.reason), SHOWN_CHARACTERS)}"
