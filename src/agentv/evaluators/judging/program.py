"""Runs a judge that is a program: it reads a JSON payload from stdin and writes a JSON object to stdout."""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.errors import MissingProgram, ProviderError, SettingError
from agentv.evaluators.judging.reply import BadJudgement
from agentv.files.encode import to_json
from agentv.files.yaml import Steps
from agentv.processes.child import ProcessResult, run_process
from agentv.processes.command import complete_output, expect_success, output_tail, shell_in
from agentv.processes.machine import start_error
from agentv.processes.streams import Capture
from agentv.processes.variables import case_variables, state_variables
from agentv.providers.settings import Text
from agentv.records import Exchange
from agentv.versions.commands import command_files

CommandLine = Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
"""A command for the shell, or a list of arguments."""
WORKSPACE = "workspace"
"""The `cwd` of a program that runs in the agent's workspace. A folder with that name is written `./workspace`."""
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_INTERPRETERS = re.compile(r"python[\d.]*|node|bun|deno|ruby|perl|php|(?:ba|da|z|k)?sh")
_SOURCES = (".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl")
_SHELL_SYNTAX = re.compile(r"[;&|<>$`()#\n*?{}~]")

_SHELL_WORDS = re.compile(r"[!.:]|cd|command|eval|exec|exit|export|set|trap|type|ulimit|umask|unset|wait")
"""What a shell runs itself as the first word of a command."""


class Program:
    """A program of the user: a list of arguments, or a command for the shell.

    With `in_workspace`, it runs in the agent's workspace if there is one. Its own files are still resolved in `cwd`
    first, where the agent cannot have changed them; all others are expected in the workspace.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        cwd: Path,
        at: Steps = ("script",),
        *,
        in_workspace: bool = False,
    ):
        """Check that the program can be run; `at` are the steps to the setting that names it.

        Raise `SettingError` if one of its files does not exist, `MissingProgram` if the program is not installed.
        """
        if not cwd.is_dir():
            hint = "it is relative to the eval file's folder"
            raise SettingError(f"cwd: no such folder: {cwd}", *at[:-1], "cwd", hint=hint)
        arguments = _split(command)
        if arguments:
            _check_files(arguments, cwd, at, in_workspace=in_workspace)
        line = _shell_line(command)
        self.fingerprint = [line, *sorted(command_files(line, cwd).values())]
        """The command and the digests of the programs and scripts that it names."""
        self._cwd = cwd
        self._in_workspace = in_workspace
        self._line = line
        if in_workspace:
            resolved = [_resolve_own_file(argument, cwd) for argument in arguments]
            if resolved != arguments:
                self._line = _shell_line(resolved)

    async def finish(
        self,
        data: bytes,
        variables: Mapping[bytes, bytes],
        workspace: Path | None = None,
        streams: tuple[Capture, Capture] | None = None,
    ) -> ProcessResult:
        """Run the program to completion with `data` on its stdin; raise `ProviderError` if it cannot be started.

        `streams` capture stdout and stderr, for a caller that needs them even if the program does not finish.
        """
        stdout, stderr = streams or output_captures()
        folder = self._cwd
        if self._in_workspace and workspace is not None:
            folder = workspace
        argv = shell_in(folder, self._line)
        environment = {**os.environb, **variables}
        # A file, not a pipe: a program that does not read its stdin must not block us.
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            try:
                return await run_process(
                    argv,
                    environment,
                    stdin=file.fileno(),
                    stdout=stdout,
                    stderr=stderr,
                )
            except OSError as error:
                machine = start_error(error)
                if machine is not None:
                    raise machine from error
                raise ProviderError(f"the program cannot be started: {error.strerror}") from error

    async def run(
        self,
        payload: Mapping[str, Any],
        variables: Mapping[bytes, bytes],
        workspace: Path | None = None,
    ) -> dict[str, Any]:
        """Return the JSON object that the program writes; raise `BadJudgement` if it writes anything else."""
        data = to_json(payload)
        finished = await self.finish(data, variables, workspace)
        expect_success(finished)
        try:
            output = complete_output(finished.stdout, MAX_OUTPUT_BYTES)
            found: dict[str, Any] = msgspec.json.decode(output, type=dict)
        except (msgspec.DecodeError, RecursionError):
            written = stdout_tail(finished)
            raise BadJudgement(f"the script wrote no JSON object{written}") from None
        return found


def output_captures() -> tuple[Capture, Capture]:
    """Return captures for the stdout and the stderr of a program that judges."""
    stdout = Capture(MAX_OUTPUT_BYTES)
    stderr = Capture()
    return stdout, stderr


def stdout_tail(finished: ProcessResult) -> str:
    """Return the end of stdout, to be appended to a message."""
    # `output_tail` prefers stderr, which says nothing about malformed output.
    return output_tail(finished._replace(stderr=finished.stdout))


def exchange_variables(exchange: Exchange) -> dict[bytes, bytes]:
    """Return the environment variables for a program that scores an exchange."""
    case = exchange.case
    eval_folder = case.file.path.parent.absolute()
    variables = case_variables(case.id, eval_folder, exchange.workspace)
    variables.update(state_variables(exchange.request.state))
    return variables


def _shell_line(command: str | Sequence[str]) -> str:
    """Return the line that runs a command in a shell."""
    if isinstance(command, str):
        return command
    return "exec " + shlex.join(command)


def _split(command: str | Sequence[str]) -> list[str]:
    """Return the arguments of a command; an empty list if only a shell can parse it."""
    if not isinstance(command, str):
        return list(command)
    if _SHELL_SYNTAX.search(command):
        return []
    try:
        arguments = shlex.split(command)
    except ValueError:
        return []
    if arguments and (_SHELL_WORDS.fullmatch(arguments[0]) or "=" in arguments[0]):
        return []  # `exit 1`, or an assignment: VARIABLE=value program
    return arguments


def _check_files(
    arguments: Sequence[str],
    cwd: Path,
    at: Steps,
    *,
    in_workspace: bool,
) -> None:
    """Raise `SettingError` if the program or its source file does not exist, `MissingProgram` if not installed.

    Files of a program that runs in the workspace are not checked: the agent may have yet to create them.
    """
    program, *rest = arguments
    is_path = "/" in program
    is_installed = not is_path and shutil.which(program) is not None
    if in_workspace and (is_path or is_installed):
        return
    setting = ".".join(map(str, at))
    if is_path and not (cwd / program).exists():
        raise SettingError(f"{setting}: no such file: {program}", *at, hint=f"it is relative to {cwd}")
    if not is_path and not is_installed:
        message = f"{setting}: no such command: {program}"
        if (cwd / program).exists() or "." in program:
            raise SettingError(message, *at, hint=f"write ./{program}, or name its interpreter")
        raise MissingProgram(message, *at, hint="install it, or name another program")
    if _INTERPRETERS.fullmatch(Path(program).name):
        source = _first_operand(rest)
        if source.endswith(_SOURCES) and not (cwd / source).exists():
            raise SettingError(f"{setting}: no such file: {source}", *at, hint=f"it is relative to {cwd}")


def _first_operand(arguments: Sequence[str]) -> str:
    """Return the first argument that is not an option; empty if there is none."""
    for argument in arguments:
        if not argument.startswith("-"):
            return argument
    return ""


def _resolve_own_file(argument: str, cwd: Path) -> str:
    """Return the path of a program or source file in `cwd`; any other argument unchanged."""
    is_path = "/" in argument or argument.endswith(_SOURCES)
    is_option = argument.startswith("-")
    if is_path and not is_option and (cwd / argument).is_file():
        return str(cwd / argument)
    return argument
