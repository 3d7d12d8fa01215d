"""A judge's program and its input -> what it answered."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentv.commands import expect_success, said, whole
from agentv.errors import ConfigError, ProviderError
from agentv.judgements import BadJudgement
from agentv.process import Keep, run_process

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_SOURCES = (".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl")


class Script:
    """A program that reads JSON and writes JSON: a list of words, or a line for the shell."""

    def __init__(self, script: str | Sequence[str], cwd: Path):
        if not cwd.is_dir():
            raise ConfigError(f"cwd: no such folder: {cwd}")
        words = shlex.split(script) if isinstance(script, str) else list(script)
        _expect_files(words, cwd)
        line = script if isinstance(script, str) else "exec " + shlex.join(script)
        self.fingerprint = [*words, *(_content(cwd / word) for word in words)]
        self._argv = [b"/bin/sh", b"-c", os.fsencode(f"cd -- {shlex.quote(str(cwd))} || exit; {line}")]

    async def run(self, payload: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
        """The JSON object that the program writes when it has read the payload."""
        environment = {**os.environb, **{os.fsencode(name): os.fsencode(value) for name, value in variables.items()}}
        with tempfile.TemporaryFile() as file:
            file.write(msgspec.json.encode(payload, enc_hook=str))
            file.seek(0)
            try:
                keep = Keep(MAX_OUTPUT_BYTES)
                finished = await run_process(self._argv, environment, stdin=file.fileno(), stdout=keep)
            except OSError as error:
                raise ProviderError(f"the script cannot be started: {error.strerror}") from error
        expect_success(finished)
        try:
            found = msgspec.json.decode(whole(finished.stdout))
        except (msgspec.DecodeError, RecursionError):
            raise BadJudgement(
                f"the script wrote no JSON object{said(finished._replace(stderr=finished.stdout))}"
            ) from None
        if not isinstance(found, dict):
            raise BadJudgement(f"the script wrote no JSON object but {type(found).__name__}")
        return found


def _expect_files(words: Sequence[str], cwd: Path) -> None:
    """`ConfigError` for a program that is not there, as far as that can be told."""
    if not words:
        raise ConfigError("script: it is empty")
    program = words[0]
    if "/" in program and not (cwd / program).exists():
        raise ConfigError(f"script: no such file: {program}", hint=f"it is relative to {cwd}")
    if "/" not in program and len(words) == 1 and not shutil.which(program) and program.endswith(_SOURCES):
        raise ConfigError(f"script: no such command: {program}", hint=f"write ./{program}, or name its interpreter")
    for word in words[1:]:
        if word.endswith(_SOURCES) and not any(sign in word for sign in "*?$`(") and not (cwd / word).exists():
            raise ConfigError(f"script: no such file: {word}", hint=f"it is relative to {cwd}")


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace") if path.is_file() and path.stat().st_size < 1 << 20 else ""
    except OSError:
        return ""
