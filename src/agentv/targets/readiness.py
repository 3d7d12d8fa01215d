"""The targets of a file -> which of them are ready, and what the others lack. No target is asked anything."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from agentv.errors import AgentvError, ConfigError, ProviderError, SettingError, nearest
from agentv.protocols import BatchProvider, Checked, Provider
from agentv.providers.cli.provider import CliSettings
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import NetworkProvider
from agentv.providers.settings import TargetSettings
from agentv.records import Problem
from agentv.targets.read import TargetEntry, TargetList, read_targets

PLAIN_WORD = re.compile(r"[\w./+-]+(?=\s|$)")
"""The first word of a command, if it is plain: no assignment, no placeholder, no other syntax of the shell."""
CREDENTIALS = ("api_key", "auth_token", "credentials", "_api_key_provider")
"""The attributes of an SDK's client that may hold a key; Anthropic's only misses one with the first request."""
Healthcheck = Literal["none", "not run", "passed", "failed"]


class TargetState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a target is ready, and all the problems with it."""

    name: str
    provider: str
    ready: bool
    judge: str | None
    """The target that grades its answers, unless an evaluator names another."""
    healthcheck: Healthcheck
    problems: tuple[Problem, ...]


def read_all_targets(file: Path) -> TargetList:
    """Return the targets of a file, checked as if every one of them were used."""
    return read_targets(file, os.environ, read_targets(file).names)


async def target_states(read: TargetList, file: Path, folders: Sequence[Path], *, check: bool) -> list[TargetState]:
    """Return the state of each target, for the eval files in these folders; `check` also runs healthchecks."""
    return [await _target_state(entry, read, (file, folders), check) for entry in read.entries]


async def _target_state(
    entry: TargetEntry, read: TargetList, where: tuple[Path, Sequence[Path]], check: bool
) -> TargetState:
    problems = list(entry.problems)
    judge = _judge(entry.settings) if entry.settings else None
    healthcheck: Healthcheck = "none"
    if judge is not None and judge not in read.names:
        problems.append(Problem(message=f"judge_target: unknown target {judge!r}", hint=nearest(judge, read.names)))
    if entry.settings is not None and not any(map(_is_error, problems)):
        try:
            provider = _open(entry.settings, *where)
            await _check_client(provider)
            healthcheck, failure = await _run_healthcheck(provider, check)
            problems += failure
        except (ConfigError, ProviderError) as error:
            field = str(error.steps[0]) if isinstance(error, SettingError) and error.steps else ""
            place = entry.places.get(field) if field else None
            line = place.line if place else None
            problems.append(Problem(message=error.message, line=line, hint=error.hint))
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


async def _run_healthcheck(provider: Provider | BatchProvider, check: bool) -> tuple[Healthcheck, list[Problem]]:
    """Return how the target's own healthcheck ended, and the problem that it found."""
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
    """Return the name of the target that grades: the one that is set, else a language model grades itself."""
    itself = settings.name if isinstance(settings, LanguageModelSettings) else None
    return settings.judge_target or itself


def _open(settings: TargetSettings, file: Path, folders: Sequence[Path]) -> Provider | BatchProvider:
    """Return the provider for the first folder that it can be opened for; paths are relative to eval files."""
    first: AgentvError | None = None
    for folder in folders:
        try:
            if isinstance(settings, CliSettings):
                _check_program(settings, folder)
            return settings.open_for(folder.absolute(), file)
        except ConfigError as error:
            first = first or error
    assert first is not None
    raise first


def _check_program(settings: CliSettings, folder: Path) -> None:
    """Raise `ConfigError` if the shell would not find the program that the command starts."""
    word = PLAIN_WORD.match(settings.command_template.strip())
    cwd = folder / Path(settings.cwd or settings.workspace_template or ".").expanduser()
    if word is None or not cwd.is_dir():
        return
    found = subprocess.run(["/bin/sh", "-c", 'command -v "$0"', word[0]], cwd=cwd, capture_output=True, check=False)
    if found.returncode:
        hint = "install it, or write its path into 'command_template'"
        raise ConfigError(f"no such program: {word[0]}", hint=hint)


async def _check_client(provider: Provider | BatchProvider) -> None:
    """Make the client of a target on the network; raise an error if there is no key. Nothing is sent."""
    if isinstance(provider, NetworkProvider):
        await provider.check.run()
        async with provider:
            client = provider.client()
            if hasattr(client, "api_key") and not any(getattr(client, name, None) for name in CREDENTIALS):
                hint = "write api_key: ${{ VARIABLE }}, or set the variable that its SDK looks for"
                raise ConfigError("there is no api_key", hint=hint)
