"""VS Code: a prompt document is opened in its chat, and the agent there writes its answer to a file.

The editor is the user's own. What its command starts is not ours to end: it is no child like others, see `process`.
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
from agentv.formats.conversion import Misfit
from agentv.processes.child import GRACE_SECONDS, ProcessResult
from agentv.processes.command import MAX_ANSWER_BYTES, describe_exit, output_tail
from agentv.processes.streams import TAIL_BYTES, Output
from agentv.protocols import Provider
from agentv.providers.agents.agent import CodingAgentSettings, join_parts, link_files
from agentv.records import Json, ProviderRequest, ProviderResponse
from agentv.system.temporary import make_folder, remove_folder
from agentv.telemetry.context import with_variables

POLL_SECONDS = 0.2
UNUSED = {
    "model": "choose the model in the editor",
    "log_dir": "the editor keeps its own records",
    "log_format": "the editor keeps its own records",
    "env": "the editor has the environment that it was started with",
    "keep_sessions": "the editor keeps its own records",
}
"""Settings of coding agents that the editor's command knows nothing of, and what to do."""


class VscodeSettings(CodingAgentSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent in VS Code's chat."""

    is_serial: ClassVar[bool] = True  # windows would fight for the focus
    kind: ClassVar[str] = "vscode"
    program: ClassVar[str] = "code"
    install: ClassVar[str] = "install VS Code and its 'code' command"

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        for name, hint in UNUSED.items():
            if getattr(self, name) is not None:
                yield Misfit((name,), f"{self.kind} makes no use of this", hint, "warning")

    def open(self, folder: Path) -> Provider:
        return Vscode(self, folder)


class VscodeInsidersSettings(VscodeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent in the chat of VS Code's Insiders build."""

    kind: ClassVar[str] = "vscode-insiders"
    program: ClassVar[str] = "code-insiders"
    install: ClassVar[str] = "install VS Code Insiders and its 'code-insiders' command"


class Vscode:
    """Opens a prompt document for each request, and waits for the answer."""

    def __init__(self, settings: VscodeSettings, folder: Path):
        self._settings = settings
        self._program = settings.find_program(folder)
        self.workspaces = settings.workspaces(folder)

    def preview(self, request: ProviderRequest) -> Json:
        """Return the document that is opened for a request; where the answer goes is only known in a run."""
        return {"document": prompt_document(request, self._settings.system_prompt, Path("response.md"))}

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
        document, response = folder / "prompt.md", folder / "response.md"
        document.write_bytes(prompt_document(request, self._settings.system_prompt, response).encode())
        arguments = ["chat", "--mode", "agent", *(self._settings.args or ()), "--add-file", str(document)]
        with tempfile.TemporaryFile() as output:
            async with _run_editor_command(
                [self._program, *arguments, f"Do what {document} says."],
                workspace,
                output,
                with_variables(os.environb, request.telemetry),
            ) as opening:
                before = None
                while (now := _file_state(response)) is None or now != before:
                    if now is None and opening.returncode:
                        raise ProviderError(f"{self._settings.kind} {_failure_message(opening.returncode, output)}")
                    before = now
                    await asyncio.sleep(POLL_SECONDS)
        return _read_answer(response)


def prompt_document(request: ProviderRequest, system_prompt: str | None, response: Path) -> str:
    """Return the prompt as a document that a person could open as well."""
    part = response.with_suffix(".part")
    return join_parts(
        system_prompt,
        link_files("Read these guidelines before you do anything else, and follow them:", request.guideline_files),
        link_files("Read these files before you begin:", request.input_files),
        request.question,
        f"When you are done, write your whole answer to the file {part}, and nothing else. Then rename that file "
        f"to {response}: this tells that the answer is complete.\n",
    )


@asynccontextmanager
async def _run_editor_command(
    command: list[str], workspace: Path, output: BinaryIO, environment: Mapping[bytes, bytes]
) -> AsyncIterator[Process]:
    """Run the editor's command, which hands over to the editor; end it if it is still there at the end."""
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
        for number in (signal.SIGTERM, signal.SIGKILL):
            if opening.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(opening.pid, number)
                with suppress(TimeoutError):
                    async with asyncio.timeout(GRACE_SECONDS):
                        await opening.wait()


def _failure_message(code: int, output: BinaryIO) -> str:
    """Return how the editor's command failed, with its output."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL_BYTES))
    return f"{describe_exit(code)}{output_tail(ProcessResult(code, Output(), Output(tail=output.read())))}"


def _file_state(response: Path) -> tuple[int, int] | None:
    """Return size and time of the response file, None if it is empty; it is complete when they stay the same."""
    try:
        found = response.stat(follow_symlinks=False)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if found.st_size else None


def _read_answer(response: Path) -> str:
    """Return the answer in the response file."""
    if not response.is_file():
        raise ProviderError("the agent made something of its response file that is no file")
    if response.stat().st_size > MAX_ANSWER_BYTES:
        raise ProviderError(f"the agent answered with more than {MAX_ANSWER_BYTES >> 20} MiB")
    text = response.read_bytes().decode("utf-8", "replace").removeprefix("\ufeff")
    if not text.strip():
        raise ProviderError("the agent wrote an empty answer", may_pass=True)
    return text
