"""A judge's program and its input -> what it answered."""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentv.errors import ConfigError, ProviderError
from agentv.judges.reply import BadJudgement
from agentv.processes.child import run_process
from agentv.processes.command import complete_output, expect_success, output_tail
from agentv.processes.streams import Capture

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_INTERPRETERS = re.compile(r"python[\d.]*|node|bun|deno|ruby|perl|php|(?:ba|da|z|k)?sh")
_SOURCES = (".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl")


class Script:
    """A program that reads JSON and writes JSON: a list of words, or a line for the shell."""

    def __init__(self, script: str | Sequence[str], cwd: Path):
        if not cwd.is_dir():
            raise ConfigError(f"cwd: no such folder: {cwd}", hint="it is relative to the eval file's folder")
        words = _words(script)
        _expect_files(words, cwd)
        line = script if isinstance(script, str) else "exec " + shlex.join(script)
        self.fingerprint = [line, *(_content(cwd / word) for word in words)]
        self._argv = [b"/bin/sh", b"-c", os.fsencode(f"cd -- {shlex.quote(str(cwd))} || exit; {line}")]

    async def run(self, payload: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
        """The JSON object that the program writes when it has read the payload."""
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


def _words(script: str | Sequence[str]) -> list[str]:
    """The words of a script, if they can be told: a line that is more than words is the shell's own affair."""
    if not isinstance(script, str):
        return list(script)
    if re.search(r"[;&|<>$`()#\n*?{}~]", script):
        return []
    try:
        words = shlex.split(script)
    except ValueError:
        return []
    return [] if words and "=" in words[0] else words


def _expect_files(words: Sequence[str], cwd: Path) -> None:
    """`ConfigError` for a program or its source that is not there."""
    if not words:
        return
    program, *rest = words
    if "/" in program and not (cwd / program).exists():
        raise ConfigError(f"script: no such file: {program}", hint=f"it is relative to {cwd}")
    if "/" not in program and not shutil.which(program):
        hint = f"write ./{program}, or name its interpreter" if (cwd / program).exists() or "." in program else ""
        raise ConfigError(f"script: no such command: {program}", hint=hint)
    source = next((word for word in rest if not word.startswith("-")), "")
    if _INTERPRETERS.fullmatch(Path(program).name) and source.endswith(_SOURCES) and not (cwd / source).exists():
        raise ConfigError(f"script: no such file: {source}", hint=f"it is relative to {cwd}")


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace") if path.is_file() and path.stat().st_size < 1 << 20 else ""
    except OSError:
        return ""
