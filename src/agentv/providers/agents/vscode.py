"""VS Code: a prompt document is opened in its chat, and the agent there writes its answer to a file.

The editor belongs to the user. agentv must not end what the editor's command starts, so the command is not run through
`processes`, which ends all descendants of a child.
"""

import asyncio
import os
import signal
import tempfile
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, ClassVar

from agentv.errors import ProviderError
from agentv.files.conversion import Misfit
from agentv.files.temporary import make_folder, remove_folder
from agentv.processes.child import GRACE_SECONDS, ProcessResult
from agentv.processes.command import MAX_ANSWER_BYTES, describe_exit, output_tail
from agentv.processes.streams import TAIL_BYTES, StreamOutput
from agentv.protocols import Provider
from agentv.providers.agents.agent import CodingAgentSettings, join_parts, link_files
from agentv.providers.trace_context import with_variables
from agentv.records import Json, ProviderRequest, ProviderResponse

POLL_SECONDS = 0.2
RESPONSE_NAME = "response.md"
UNUSED = {
    "model": "choose the model in the editor",
    "log_dir": "the editor keeps its own records",
    "log_format": "the editor keeps its own records",
    "env": "the editor keeps the environment that it was started with",
    "keep_sessions": "the editor keeps its own records",
}
"""Settings of coding agents that the editor's command does not support, and what to do instead."""


class VscodeSettings(CodingAgentSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent in VS Code's chat."""

    is_serial: ClassVar[bool] = True  # several windows would compete for the focus
    kind: ClassVar[str] = "vscode"
    program: ClassVar[str] = "code"
    install: ClassVar[str] = "install VS Code and its 'code' command"

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        for name, hint in UNUSED.items():
            if getattr(self, name) is not None:
                yield Misfit(
                    (name,),
                    f"{self.kind} does not support this setting",
                    hint,
                    "warning",
                )

    def open(self, folder: Path) -> Provider:
        return Vscode(self, folder)


class VscodeInsidersSettings(VscodeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent in the chat of VS Code's Insiders build."""

    kind: ClassVar[str] = "vscode-insiders"
    program: ClassVar[str] = "code-insiders"
    install: ClassVar[str] = "install VS Code Insiders and its 'code-insiders' command"


class Vscode:
    """Opens a prompt document for each request and waits for the answer."""

    def __init__(self, settings: VscodeSettings, folder: Path):
        self._settings = settings
        self._program = settings.find_program(folder)
        self.workspaces = settings.workspaces(folder)

    def preview(self, request: ProviderRequest) -> Json:
        """Return the document that is opened for a request. The real path of the answer is only known in a run."""
        return {"document": self._document(request, Path(RESPONSE_NAME))}

    def _document(self, request: ProviderRequest, response: Path) -> str:
        return prompt_document(request, self._settings.system_prompt, response)

    async def invoke(self, request: ProviderRequest) -> ProviderResponse:
        async with self.workspaces.folder(request) as workspace:
            try:
                folder = make_folder(workspace, ".agentv-")
            except OSError as error:
                raise ProviderError(f"the prompt cannot be written to {workspace}: {error.strerror}") from error
            try:
                return ProviderResponse(text=await self._answer(request, workspace, folder))
            finally:
                remove_folder(folder)

    async def _answer(self, request: ProviderRequest, workspace: Path, folder: Path) -> str:
        document = folder / "prompt.md"
        response = folder / RESPONSE_NAME
        document.write_bytes(self._document(request, response).encode())
        command = [self._program, "chat", "--mode", "agent"]
        command += self._settings.args or ()
        command += ["--add-file", str(document), f"Do what {document} says."]
        environment = with_variables(os.environb, request)
        with tempfile.TemporaryFile() as output:
            async with _run_editor_command(command, workspace, output, environment) as opening:
                await self._wait_for_answer(response, opening, output)
        return _read_answer(response)

    async def _wait_for_answer(self, response: Path, opening: Process, output: BinaryIO) -> None:
        """Wait until the response file stops changing. Raise `ProviderError` if the editor's command fails first."""
        previous = None
        while True:
            current = _file_state(response)
            if current is not None and current == previous:
                return
            if current is None and opening.returncode:
                raise ProviderError(f"{self._settings.kind} {_failure_message(opening.returncode, output)}")
            previous = current
            await asyncio.sleep(POLL_SECONDS)


def prompt_document(request: ProviderRequest, system_prompt: str | None, response: Path) -> str:
    """Return the prompt as a Markdown document. It tells the agent to write its answer to `response`."""
    guidelines = link_files(
        "Read these guidelines before you do anything else, and follow them:",
        request.guideline_files,
    )
    files = link_files("Read these files before you begin:", request.input_files)
    part = response.with_suffix(".part")
    instruction = (
        f"When you are done, write your whole answer to the file {part}, and nothing else. Then rename that file "
        f"to {response}: this marks the answer as complete.\n"
    )
    return join_parts(system_prompt, guidelines, files, request.question, instruction)


@asynccontextmanager
async def _run_editor_command(
    command: list[str],
    workspace: Path,
    output: BinaryIO,
    environment: Mapping[bytes, bytes],
) -> AsyncIterator[Process]:
    """Run the command that makes the editor open the chat. It is killed if it is still running at the end."""
    try:
        opening = await asyncio.create_subprocess_exec(
            *command,
            cwd=workspace,
            env=environment,
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ProviderError(f"{command[0]} cannot be started: {error}") from error
    try:
        yield opening
    finally:
        await _end(opening)


async def _end(process: Process) -> None:
    """Terminate a process group, and kill it if it has not exited after `GRACE_SECONDS`."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await process.wait()


def _failure_message(code: int, output: BinaryIO) -> str:
    """Return how the editor's command failed, with the end of its output."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - TAIL_BYTES))
    written = StreamOutput(tail=output.read())
    finished = ProcessResult(code, stdout=StreamOutput(), stderr=written)
    return f"{describe_exit(code)}{output_tail(finished)}"


def _file_state(response: Path) -> tuple[int, int] | None:
    """Return the size and mtime of the response file, or None if it is missing or empty."""
    try:
        found = response.stat(follow_symlinks=False)
    except OSError:
        return None
    if not found.st_size:
        return None
    return found.st_size, found.st_mtime_ns


def _read_answer(response: Path) -> str:
    """Return the answer in the response file. Raise `ProviderError` if it has none."""
    if not response.is_file():
        raise ProviderError("the response file of the agent is not a regular file")
    if response.stat().st_size > MAX_ANSWER_BYTES:
        raise ProviderError(f"the agent answered with more than {MAX_ANSWER_BYTES >> 20} MiB")
    content = response.read_bytes().decode("utf-8", "replace")
    text = content.removeprefix("\ufeff")
    if not text.strip():
        raise ProviderError("the agent wrote an empty answer", may_pass=True)
    return text
