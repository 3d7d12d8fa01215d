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
from agentv.processes.child import run_process
from agentv.processes.command import complete_output, expect_success, output_tail
from agentv.processes.streams import Capture

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_INTERPRETERS = re.compile(r"python[\d.]*|node|bun|deno|ruby|perl|php|(?:ba|da|z|k)?sh")
_SOURCES = (".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl")


class MissingProgram(SettingError):
    """The program of a script is not on this machine; it may be on the one that the script is meant for."""


class Program:
    """A program that reads JSON and writes JSON: a list of arguments, or a command for the shell.

    Raise `SettingError` if its files do not exist, `MissingProgram` if the program itself is not installed; `at`
    are the steps to the setting that names the program.
    """

    def __init__(self, command: str | Sequence[str], cwd: Path, at: Steps = ("script",)):
        if not cwd.is_dir():
            hint = "it is relative to the eval file's folder"
            raise SettingError(f"cwd: no such folder: {cwd}", *at[:-1], "cwd", hint=hint)
        arguments = _split(command)
        if (missing := _missing_file(arguments, cwd)) is not None:
            kind, message, hint = missing
            raise kind(f"script: {message}", *at, hint=hint)
        line = command if isinstance(command, str) else "exec " + shlex.join(command)
        self.fingerprint = [line, *(_content(cwd / argument) for argument in arguments)]
        """The command and the content of the files that it names."""
        self._argv = [b"/bin/sh", b"-c", os.fsencode(f"cd -- {shlex.quote(str(cwd))} || exit; {line}")]

    async def run(self, payload: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON object that the program writes; raise `BadJudgement` if it writes none."""
        environment = {**os.environb, **{os.fsencode(name): os.fsencode(value) for name, value in variables.items()}}
        with tempfile.TemporaryFile() as file:
            file.write(msgspec.json.encode(payload, enc_hook=str))
            file.seek(0)
            try:
                keep = Capture(MAX_OUTPUT_BYTES)
                finished = await run_process(self._argv, environment, stdin=file.fileno(), stdout=keep)
            except OSError as error:
                raise ProviderError(f"the script cannot be started: {error.strerror}") from error
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


def _missing_file(arguments: Sequence[str], cwd: Path) -> tuple[type[SettingError], str, str] | None:
    """Return the error, its message and a hint if the program, or the source file that it runs, does not exist."""
    if not arguments:
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
