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
from agentv.processes.child import Finished, Keep
from agentv.processes.command import SHOWN_CHARACTERS, cut, ended, run_told, said
from agentv.providers.agents.event_log import LOG_FORMATS, AgentLogs
from agentv.providers.agents.workspaces import Workspaces
from agentv.providers.settings import NOT_IN_CACHE_KEY, VARIABLE, Seconds, TargetSettings, Text
from agentv.records import Json, ProviderRequest, ProviderResponse
from agentv.redact import clean
from agentv.system.folders import existing_folder

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_KEPT_BYTES = 32 * 1024 * 1024
"""When the events have come to so much, what more is said and done on the way is not kept; the answer is."""
LOGS = Path(".agentv/logs")
LogFormat = Annotated[str, Meta(extra_json_schema={"anyOf": [{"enum": [*LOG_FORMATS]}, {"pattern": VARIABLE}]})]


class CodingAgentSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A coding agent, driven through its own command-line program."""

    reads_files: ClassVar[bool] = True
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
    cwd: Annotated[Text | None, Meta(description="The folder it works in, relative to the eval file's.")] = None
    workspace_template: Annotated[Text | None, Meta(description="A folder copied afresh for each case.")] = None
    timeout_seconds: Annotated[Seconds | None, Meta(description="How long one case may take."), NOT_IN_CACHE_KEY] = None
    log_dir: Annotated[Text | None, Meta(description="Where its logs go, one file a case.")] = None
    log_format: Annotated[LogFormat | None, Meta(description="Its events as they are, or a line each.")] = None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if self.cwd is not None and self.workspace_template is not None:
            hint = "an agent works in a folder of yours, or in fresh copies of one: take out the other"
            yield Misfit(("workspace_template",), "cwd is given as well", hint)
        form = "json" if self.log_format is None else self.log_format
        if form not in LOG_FORMATS and not form.startswith("${{"):
            yield Misfit(("log_format",), f"unknown log_format {form!r}", nearest(form, LOG_FORMATS))

    def found_program(self, folder: Path) -> str:
        """Where the program is; `ConfigError` when it is nowhere."""
        name = self.executable or self.program
        path = str(folder / Path(name).expanduser()) if "/" in name else name
        found = shutil.which(path)
        if found is None:
            message = f"no such program: {path}"
            raise ConfigError(message, hint=f"{self.install}; 'executable' names it if it is somewhere else")
        return os.path.abspath(found)

    def workspaces(self, folder: Path) -> Workspaces:
        """Where the agent works; `ConfigError` for a folder that is not there."""
        return Workspaces(
            existing_folder(folder, self.cwd, "cwd") if self.cwd else None,
            existing_folder(folder, self.workspace_template, "workspace_template") if self.workspace_template else None,
        )

    def logs(self) -> AgentLogs:
        """Where its events are logged: under the folder that the run was started in."""
        folder = Path(self.log_dir).expanduser() if self.log_dir else LOGS / self.kind
        return AgentLogs(Path.cwd() / folder, self.log_format or "json")


def links(heading: str, files: Iterable[Path]) -> str:
    """A block that has an agent read files before anything else; nothing without files."""
    listed = [f"* [{path.name}]({path.as_uri()})" for path in files]
    return "\n".join([heading, *listed]) if listed else ""


def joined(*parts: str | None) -> str:
    """The parts of a prompt that there are, with a blank line between them."""
    return "\n\n".join(part for part in parts if part)


def prompt_of(request: ProviderRequest, *before: str | None) -> str:
    """The prompt for an agent that is told the guidelines, and reads the attached files itself."""
    guidelines = f"Follow these guidelines:\n\n{request.guidelines}" if request.guidelines else ""
    files = links("Read these files before you do anything else:", request.input_files)
    return joined(*before, guidelines, files, request.question)


class Reported(NamedTuple):
    """A failure that an agent has reported; `may_pass` says that a second try may help."""

    words: str
    may_pass: bool = True


class Transcript(ABC):
    """What an agent has said and done, put together from its events.

    Events are somebody else's: what is not understood is passed over, and nothing in them is taken for granted.
    """

    def __init__(self) -> None:
        self.answer = ""
        self.is_complete = False
        """Whether the agent has told that it is done."""
        self.size = 0
        self.failure: Reported | None = None
        self.figures: Json = {}
        self._messages: list[Json] = []
        self._calls: dict[str, Json] = {}

    @abstractmethod
    def take(self, event: Json) -> str:
        """Take in an event; what it says, in words for a person."""

    def say(self, text: str) -> None:
        """The agent has said something."""
        if self.size <= MAX_KEPT_BYTES:
            self._messages.append({"role": "assistant", "content": text})

    def call(self, tool: str, input_: Any, id_: Any) -> Json:
        """The agent calls a tool. What is given can be changed later; the same id means the same call."""
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

    def returned(self, id_: Any, output: Any) -> str:
        """A tool has given something back: the tool's name."""
        call = self._calls.get(id_, {}) if isinstance(id_, str) else {}
        if self.size <= MAX_KEPT_BYTES:
            call["output"] = output
        return str(call.get("tool", "a tool"))

    def response(self) -> ProviderResponse:
        """All of it; the answer is among the messages, whoever told it."""
        if not any(message.get("content") == self.answer for message in self._messages):
            self._messages.append({"role": "assistant", "content": self.answer})
        return response_from({"text": self.answer, "output_messages": self._messages, **self.figures})


class CodingAgent(ABC):
    """Runs the program once for each request."""

    def __init__(self, settings: CodingAgentSettings, folder: Path):
        self._kind = settings.kind
        self._program = settings.found_program(folder)
        self._extra = settings.args or ()
        self.workspaces = settings.workspaces(folder)
        self._logs = settings.logs()

    @abstractmethod
    def arguments(self, request: ProviderRequest, workspace: Path, extra: tuple[str, ...]) -> list[str]:
        """The arguments of the program, with those of the user among them."""

    def prompt(self, request: ProviderRequest) -> str:
        """What the program reads from stdin."""
        return prompt_of(request)

    @abstractmethod
    def transcript(self) -> Transcript:
        """An empty transcript, for the events of one request."""

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        transcript = self.transcript()
        async with self.workspaces.new() as workspace:
            with self._logs.new(request) as log:

                def take(line: bytes) -> None:
                    transcript.size += len(line)
                    log.write(line, taken(transcript, line))

                events = EventLines(take)
                finished = await self._run(request, workspace, events)
                events.end()
        if transcript.failure is not None:
            words = cut(clean(transcript.failure.words).strip(), SHOWN_CHARACTERS) or "it does not say why"
            raise ProviderError(f"{self._kind} reports a failure: {words}", may_pass=transcript.failure.may_pass)
        if finished.code:
            raise ProviderError(f"{self._kind} {ended(finished.code)}{said(finished)}")
        if not transcript.answer.strip():
            raise ProviderError(f"{self._kind} ended without an answer{said(finished)}", may_pass=True)
        if not transcript.is_complete:
            raise ProviderError(f"{self._kind} broke off before it was done{said(finished)}", may_pass=True)
        return transcript.response()

    async def _run(self, request: ProviderRequest, workspace: Path, events: Keep) -> Finished:
        words = [self._program, *self.arguments(request, workspace, self._extra)]
        if any("\0" in word for word in words):
            raise ProviderError("an argument of the program has a NUL character, which it cannot hold")
        argv = [b"/bin/sh", b"-c", b'cd -- "$0" && exec "$@"', os.fsencode(workspace), *map(os.fsencode, words)]
        with tempfile.TemporaryFile() as file:
            file.write(self.prompt(request).encode())
            file.seek(0)
            return await run_told(argv, os.environb, stdin=file.fileno(), stdout=events)


class EventLines(Keep):
    """Hands on a stream line by line, as it comes; keeps the end of it, like any other. A huge line is passed over."""

    def __init__(self, take: Callable[[bytes], None]):
        super().__init__()
        self._take = take
        self._begun: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        super().add(chunk)
        first, *more = chunk.split(b"\n")
        self._begin(first)
        for part in more:
            self.end()
            self._begin(part)

    def _begin(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= MAX_LINE_BYTES:
            self._begun.append(part)
        else:
            self._begun.clear()

    def end(self) -> None:
        """Hand on the line that has been begun."""
        line = b"".join(self._begun).strip()
        self._begun.clear()
        self._size = 0
        if line:
            self._take(line)


def taken(transcript: Transcript, line: bytes) -> str:
    """What a line says, once a transcript has taken it in; nothing for a line that is no event."""
    event = event_in(line)
    try:
        return transcript.take(event) if event else ""
    except RecursionError:
        return ""  # nested so deep that it could not be written down either


def event_in(line: bytes) -> Json | None:
    """The event that a line is; nothing for any other line."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        mended = mended_json(line) if line.startswith(b"{") else None
        found = None if mended is None else msgspec.json.decode(mended)
    return found if isinstance(found, dict) else None
