"""A coding agent's program, and a request -> what the agent said and did.

What coding agents have in common: their settings, the form of a prompt, and a program that reads the prompt from
stdin and writes its events to stdout, a JSON object a line. What the events mean is each agent's own affair.
"""

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError, ProviderError, nearest
from agentv.formats.conversion import Misfit
from agentv.formats.wire import mended_json, response_from
from agentv.processes.child import ProcessResult
from agentv.processes.command import SHOWN_CHARACTERS, describe_exit, output_tail, run_program, shorten
from agentv.processes.streams import Capture
from agentv.providers.agents.event_log import LOG_FORMATS, AgentLogs
from agentv.providers.settings import NOT_IN_CACHE_KEY, VARIABLE, Seconds, Text
from agentv.providers.workspaces.settings import WorkspaceSettings
from agentv.records import Json, ProviderRequest, ProviderResponse
from agentv.redact import clean

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""When the events have come to so much, what more is said and done on the way is not kept; the answer is."""
LOGS = Path(".agentv/logs")
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


class AgentFailure(NamedTuple):
    """A failure that an agent has reported; `may_pass` says that a second try may help."""

    message: str
    may_pass: bool = True


class Transcript(ABC):
    """What an agent has said and done, put together from its events.

    Events come from another program: those that are not understood are skipped, and any field may be missing.
    """

    def __init__(self) -> None:
        self.answer = ""
        self.is_complete = False
        """Whether the agent has reported that it is done."""
        self.size = 0
        self.failure: AgentFailure | None = None
        self.figures: Json = {}
        self._messages: list[Json] = []
        self._calls: dict[str, Json] = {}

    @abstractmethod
    def add(self, event: Json) -> str:
        """Add an event; return a line for a person that says what it means."""

    def add_message(self, text: str) -> None:
        """Add a message of the agent."""
        if self.size <= MAX_KEPT_BYTES:
            self._messages.append({"role": "assistant", "content": text})

    def add_call(self, tool: str, input_: Any, id_: Any) -> Json:
        """Add a call of a tool and return it: it may be changed later. The same id means the same call."""
        known = self._calls.get(id_) if isinstance(id_, str) else None
        if known is not None:
            known.update(tool=tool, input=input_)
            return known
        call = {"tool": tool, "input": input_}
        if self.size > MAX_KEPT_BYTES:
            return call
        if isinstance(id_, str):
            self._calls[id_] = call | {"id": id_}
            call = self._calls[id_]
        self._messages.append({"role": "assistant", "tool_calls": [call]})
        return call

    def add_output(self, id_: Any, output: Any) -> str:
        """Add the output of a call; return the name of its tool."""
        call = self._calls.get(id_, {}) if isinstance(id_, str) else {}
        if self.size <= MAX_KEPT_BYTES:
            call["output"] = output
        return str(call.get("tool", "a tool"))

    def response(self) -> ProviderResponse:
        """Return the response; the answer is always one of its messages."""
        if not any(message.get("content") == self.answer for message in self._messages):
            self._messages.append({"role": "assistant", "content": self.answer})
        return response_from({"text": self.answer, "output_messages": self._messages, **self.figures})


class CodingAgent(ABC):
    """Runs the program once for each request."""

    def __init__(self, settings: CodingAgentSettings, folder: Path):
        self._kind = settings.kind
        self._program = settings.find_program(folder)
        self._extra = settings.args or ()
        self.workspaces = settings.workspaces(folder)
        self._logs = settings.logs()

    @abstractmethod
    def arguments(self, request: ProviderRequest, workspace: Path, extra: tuple[str, ...]) -> list[str]:
        """Return the arguments of the program, with the user's own among them."""

    def prompt(self, request: ProviderRequest) -> str:
        """Return what the program reads from stdin."""
        return make_prompt(request)

    @abstractmethod
    def transcript(self) -> Transcript:
        """Return an empty transcript, for the events of one request."""

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        transcript = self.transcript()
        async with self.workspaces.folder(request) as workspace:
            with self._logs.new(request) as log:

                def take(line: bytes) -> None:
                    transcript.size += len(line)
                    log.write(line, add_line(transcript, line))

                events = EventLines(take)
                finished = await self._run(request, workspace, events)
                events.end()
        if transcript.failure is not None:
            reason = shorten(clean(transcript.failure.message).strip(), SHOWN_CHARACTERS) or "it does not say why"
            raise ProviderError(f"{self._kind} reports a failure: {reason}", may_pass=transcript.failure.may_pass)
        if finished.code:
            raise ProviderError(f"{self._kind} {describe_exit(finished.code)}{output_tail(finished)}")
        if not transcript.answer.strip():
            raise ProviderError(f"{self._kind} ended without an answer{output_tail(finished)}", may_pass=True)
        if not transcript.is_complete:
            raise ProviderError(f"{self._kind} broke off before it was done{output_tail(finished)}", may_pass=True)
        return transcript.response()

    async def _run(self, request: ProviderRequest, workspace: Path, events: Capture) -> ProcessResult:
        command = [self._program, *self.arguments(request, workspace, self._extra)]
        if any("\0" in word for word in command):
            raise ProviderError("an argument of the program has a NUL character, which it cannot hold")
        argv = [b"/bin/sh", b"-c", b'cd -- "$0" && exec "$@"', os.fsencode(workspace), *map(os.fsencode, command)]
        with tempfile.TemporaryFile() as file:
            file.write(self.prompt(request).encode())
            file.seek(0)
            return await run_program(argv, self.workspaces.environment, stdin=file.fileno(), stdout=events)


class EventLines(Capture):
    """Passes on a stream line by line as it comes, and keeps the end of it; a line that is too long is left out."""

    def __init__(self, take: Callable[[bytes], None]):
        super().__init__()
        self._take = take
        self._line_parts: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        super().add(chunk)
        first, *more = chunk.split(b"\n")
        self._add_part(first)
        for part in more:
            self.end()
            self._add_part(part)

    def _add_part(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_LINE_BYTES:
            self._line_parts.append(part)
        else:
            self._line_parts.clear()

    def end(self) -> None:
        """Pass on the line that is not ended yet."""
        line = b"".join(self._line_parts).strip()
        self._line_parts.clear()
        self._size = 0
        if line:
            self._take(line)


def add_line(transcript: Transcript, line: bytes) -> str:
    """Add the event in a line to a transcript; return what it means for a person, or nothing if it is no event."""
    event = parse_event(line)
    try:
        return transcript.add(event) if event else ""
    except RecursionError:
        return ""  # nested so deep that it could not be written down either


def parse_event(line: bytes) -> Json | None:
    """Return the event in a line; None for any other line."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        mended = mended_json(line) if line.startswith(b"{") else None
        found = None if mended is None else msgspec.json.decode(mended)
    return found if isinstance(found, dict) else None
