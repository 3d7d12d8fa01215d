"""The targets of a file -> which of them could be asked now, and what the others lack. No target is asked anything."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from agentv.errors import AgentvError, ConfigError, ProviderError, nearest
from agentv.protocols import BatchProvider, Checked, Provider
from agentv.providers.cli.provider import CliSettings
from agentv.providers.network import NetworkProvider
from agentv.providers.settings import LanguageModelSettings, TargetSettings
from agentv.records import Problem
from agentv.targets.read import TargetEntry, TargetList, read_targets

PLAIN_WORD = re.compile(r"[\w./+-]+(?=\s|$)")
"""The first word of a command, if it is no assignment, no placeholder and nothing else that the shell makes something
of."""
CREDENTIALS = ("api_key", "auth_token", "credentials")
"""Where the client of an SDK that only misses its key when it is asked (Anthropic's) has what it has."""
Healthcheck = Literal["none", "not run", "passed", "failed"]


class TargetState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a target is ready, and all that speaks against it."""

    name: str
    provider: str
    ready: bool
    judge: str | None
    """Who grades its answers, unless an evaluator names somebody else."""
    healthcheck: Healthcheck
    problems: tuple[Problem, ...]


def read_for_all(file: Path) -> TargetList:
    """The targets of a file, as if every one of them were used."""
    return read_targets(file, os.environ, read_targets(file).names)


async def target_states(read: TargetList, folders: Sequence[Path], *, check: bool) -> list[TargetState]:
    """The state of each target, for the eval files in these folders; `check` also runs what checks its health."""
    return [await _state(entry, read, folders, check) for entry in read.entries]


async def _state(entry: TargetEntry, read: TargetList, folders: Sequence[Path], check: bool) -> TargetState:
    problems = list(entry.problems)
    judge = _judge(entry.settings) if entry.settings else None
    healthcheck: Healthcheck = "none"
    if judge is not None and judge not in read.names:
        problems.append(Problem(message=f"judge_target: unknown target {judge!r}", hint=nearest(judge, read.names)))
    if entry.settings is not None and not any(map(_is_error, problems)):
        try:
            provider = _opened(entry.settings, folders)
            await _connect(provider)
            healthcheck, failure = await _health(provider, check)
            problems += failure
        except (ConfigError, ProviderError) as error:
            problems.append(Problem(message=error.message, hint=error.hint))
    return TargetState(
        name=entry.name,
        provider=entry.provider,
        ready=not any(map(_is_error, problems)),
        judge=judge,
        healthcheck=healthcheck,
        problems=tuple(problems),
    )


def _is_error(problem: Problem) -> bool:
    return problem.severity == "error"


async def _health(provider: Provider | BatchProvider, check: bool) -> tuple[Healthcheck, list[Problem]]:
    """What became of the target's own check, and what it found."""
    if isinstance(provider, NetworkProvider) or not isinstance(provider, Checked) or provider.check is None:
        return "none", []
    if not check:
        return "not run", []
    try:
        await provider.check.run()
    except ProviderError as error:
        return "failed", [Problem(message=f"its healthcheck failed: {error.message}", hint=error.hint)]
    return "passed", []


def _judge(settings: TargetSettings) -> str | None:
    """The target that grades: the one that is named, else a language model grades itself."""
    itself = settings.name if isinstance(settings, LanguageModelSettings) else None
    return settings.judge_target or itself


def _opened(settings: TargetSettings, folders: Sequence[Path]) -> Provider | BatchProvider:
    """The provider, for the first of the folders that it can be opened for: paths are relative to eval files."""
    first: AgentvError | None = None
    for folder in folders:
        try:
            if isinstance(settings, CliSettings):
                _expect_program(settings, folder)
            return settings.open(folder.absolute())
        except ConfigError as error:
            first = first or error
    assert first is not None
    raise first


def _expect_program(settings: CliSettings, folder: Path) -> None:
    """`ConfigError` when the shell would not find what the command begins with."""
    word = PLAIN_WORD.match(settings.command_template.strip())
    cwd = folder / Path(settings.cwd or ".").expanduser()
    if word is None or not cwd.is_dir():
        return
    found = subprocess.run(["/bin/sh", "-c", 'command -v "$0"', word[0]], cwd=cwd, capture_output=True, check=False)
    if found.returncode:
        hint = "install it, or write its path into 'command_template'"
        raise ConfigError(f"no such program: {word[0]}", hint=hint)


async def _connect(provider: Provider | BatchProvider) -> None:
    """Make the client of a target on the network, which finds out whether there is a key. Nothing is sent."""
    if isinstance(provider, NetworkProvider):
        await provider.check.run()
        async with provider:
            client = provider.client()
            if hasattr(client, "api_key") and not any(getattr(client, name, None) for name in CREDENTIALS):
                hint = "write api_key: ${{ VARIABLE }}, or set the variable that its SDK looks for"
                raise ConfigError("there is no api_key", hint=hint)
