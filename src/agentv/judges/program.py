"""A judge that is a program: a payload as JSON on its stdin -> a JSON object on its stdout."""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import ProviderError, SettingError
from agentv.formats.yaml import Steps
from agentv.judges.reply import BadJudgement
from agentv.processes.child import ProcessResult, run_process
from agentv.processes.command import complete_output, expect_success, output_tail, shell_in
from agentv.processes.streams import Capture
from agentv.processes.variables import case_variables
from agentv.records import Exchange

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_INTERPRETERS = re.compile(r"python[\d.]*|node|bun|deno|ruby|perl|php|(?:ba|da|z|k)?sh")
_SOURCES = (".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl")


class MissingProgram(SettingError):
    """The program of a script is not on this machine; it may be on the one that the script is meant for."""


WORKSPACE = "workspace"
"""The `cwd` of a program that runs in the folder that the agent has worked in; a folder of that name is ./workspace."""


class Program:
    """A program of the user's: a list of arguments, or a command for the shell.

    Raise `SettingError` if its files do not exist, `MissingProgram` if the program itself is not installed; `at`
    are the steps to the setting that names the program.

    With `in_workspace` it runs in the workspace, if there is one. Its own files are still looked for in `cwd` first,
    where the agent cannot have changed them; what is not there is expected in the workspace.
    """

    def __init__(self, command: str | Sequence[str], cwd: Path, at: Steps = ("script",), *, in_workspace: bool = False):
        if not cwd.is_dir():
            hint = "it is relative to the eval file's folder"
            raise SettingError(f"cwd: no such folder: {cwd}", *at[:-1], "cwd", hint=hint)
        arguments = _split(command)
        if (missing := _missing_file(arguments, cwd, elsewhere=in_workspace)) is not None:
            kind, message, hint = missing
            name = "command" if at[-1] == "command" else "script"
            raise kind(f"{name}: {message}", *at, hint=hint)
        line = command if isinstance(command, str) else "exec " + shlex.join(command)
        self._cwd, self._in_workspace = cwd, in_workspace
        self.fingerprint = [line, *(_content(cwd / argument) for argument in arguments)]
        """The command and the content of the files that it names."""
        own = [str(cwd / argument) if in_workspace and _is_own(argument, cwd) else argument for argument in arguments]
        self._line = line if own == arguments else "exec " + shlex.join(own)

    async def finish(
        self,
        data: bytes,
        variables: Mapping[bytes, bytes],
        workspace: Path | None = None,
        streams: tuple[Capture, Capture] | None = None,
    ) -> ProcessResult:
        """Run the program to its end, with `data` on its stdin; raise `ProviderError` if it cannot be started.

        `streams` get its stdout and its stderr, for a caller that wants them when the program does not end.
        """
        stdout, stderr = streams or output_captures()
        argv = shell_in(workspace if workspace is not None and self._in_workspace else self._cwd, self._line)
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            environment = {**os.environb, **variables}
            try:
                return await run_process(argv, environment, stdin=file.fileno(), stdout=stdout, stderr=stderr)
            except OSError as error:
                raise ProviderError(f"the program cannot be started: {error.strerror}") from error

    async def run(
        self, payload: Mapping[str, Any], variables: Mapping[bytes, bytes], workspace: Path | None = None
    ) -> dict[str, Any]:
        """Return the JSON object that the program writes; raise `BadJudgement` if it writes none."""
        finished = await self.finish(msgspec.json.encode(payload, enc_hook=str), variables, workspace)
        expect_success(finished)
        try:
            found = msgspec.json.decode(complete_output(finished.stdout, MAX_OUTPUT_BYTES))
        except (msgspec.DecodeError, RecursionError):
            raise BadJudgement(
                f"the script wrote no JSON object{output_tail(finished._replace(stderr=finished.stdout))}"
            ) from None
        if not isinstance(found, dict):
            raise BadJudgement(f"the script wrote no JSON object but {type(found).__name__}")
        return found


def output_captures() -> tuple[Capture, Capture]:
    """Return what keeps the stdout and the stderr of a program that judges."""
    return Capture(MAX_OUTPUT_BYTES), Capture()


def exchange_variables(exchange: Exchange) -> dict[bytes, bytes]:
    """Return what a program that scores an exchange is told in its environment."""
    return case_variables(exchange.case.id, exchange.case.file.path.parent.absolute(), exchange.workspace)


def _split(command: str | Sequence[str]) -> list[str]:
    """Return the arguments of a command; an empty list if only the shell can tell what they are."""
    if not isinstance(command, str):
        return list(command)
    if re.search(r"[;&|<>$`()#\n*?{}~]", command):
        return []
    try:
        arguments = shlex.split(command)
    except ValueError:
        return []
    return [] if arguments and "=" in arguments[0] else arguments


def _is_own(argument: str, cwd: Path) -> bool:
    """Return whether an argument names a program or a source file that lies in the program's own folder."""
    is_path = "/" in argument or argument.endswith(_SOURCES)
    return is_path and not argument.startswith("-") and (cwd / argument).is_file()


def _missing_file(
    arguments: Sequence[str], cwd: Path, *, elsewhere: bool = False
) -> tuple[type[SettingError], str, str] | None:
    """Return the error, its message and a hint if the program, or the source file that it runs, does not exist.

    Files may also be `elsewhere`, where nobody can look yet.
    """
    if not arguments or (elsewhere and ("/" in arguments[0] or shutil.which(arguments[0]))):
        return None
    program, *rest = arguments
    if "/" in program and not (cwd / program).exists():
        return SettingError, f"no such file: {program}", f"it is relative to {cwd}"
    if "/" not in program and not shutil.which(program):
        if (cwd / program).exists() or "." in program:
            return SettingError, f"no such command: {program}", f"write ./{program}, or name its interpreter"
        return MissingProgram, f"no such command: {program}", "install it, or name another program"
    source = next((argument for argument in rest if not argument.startswith("-")), "")
    if _INTERPRETERS.fullmatch(Path(program).name) and source.endswith(_SOURCES) and not (cwd / source).exists():
        return SettingError, f"no such file: {source}", f"it is relative to {cwd}"
    return None


def _content(path: Path) -> str:
    """Return the text of a file; empty if it is large or cannot be read."""
    try:
        return path.read_text(errors="replace") if path.is_file() and path.stat().st_size < 1 << 20 else ""
    except OSError:
        return ""
