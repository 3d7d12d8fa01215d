"""Check which targets of a file are ready, and what the others lack. No target is called."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from agentv.errors import ConfigError, ProviderError, nearest
from agentv.protocols import BatchProvider, Checked, Provider
from agentv.providers.cli.provider import CliSettings
from agentv.providers.models.settings import LanguageModelSettings
from agentv.providers.network import NetworkProvider
from agentv.providers.settings import TargetSettings
from agentv.records import Problem
from agentv.targets.read import TargetEntry, TargetList, read_targets, setting_of

PLAIN_WORD = re.compile(r"[\w./+-]+(?=\s|$)")
"""The first word of a command, if it is plain: no assignment, placeholder or other shell syntax."""
CREDENTIALS = ("api_key", "auth_token", "credentials", "_api_key_provider")
"""The attributes of an SDK's client that may hold a key.

They are checked here because Anthropic's SDK reports a missing key only at the first request.
"""
Healthcheck = Literal["none", "not run", "passed", "failed"]


class TargetState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a target is ready, and all its problems."""

    name: str
    provider: str
    ready: bool
    judge: str | None
    """The target that judges its answers, unless an evaluator names another."""
    healthcheck: Healthcheck
    problems: tuple[Problem, ...]


def read_all_targets(file: Path) -> TargetList:
    """Return the targets of a file, checked as if all of them were used."""
    names = read_targets(file).names
    return read_targets(file, os.environ, names)


async def target_states(
    read: TargetList,
    file: Path,
    folders: Sequence[Path],
    *,
    check: bool,
) -> list[TargetState]:
    """Return the state of each target for the eval files in these folders; `check` also runs healthchecks."""
    states = []
    for entry in read.entries:
        state = await _target_state(entry, read, file, folders, check=check)
        states.append(state)
    return states


async def _target_state(
    entry: TargetEntry,
    read: TargetList,
    file: Path,
    folders: Sequence[Path],
    *,
    check: bool,
) -> TargetState:
    problems = list(entry.problems)
    settings = entry.settings
    judge = None
    if settings is not None:
        judge = _judge(settings)
    if judge is not None and judge not in read.names:
        unknown_judge = Problem(
            message=f"judge_target: unknown target {judge!r}",
            hint=nearest(judge, read.names, "targets"),
        )
        problems.append(unknown_judge)
    healthcheck: Healthcheck = "none"
    if settings is not None and not _has_error(problems):
        try:
            provider = _open(settings, file, folders)
            await _check_client(provider)
            healthcheck, failure = await _run_healthcheck(provider, check)
            problems += failure
        except (ConfigError, ProviderError) as error:
            problems.append(_opening_problem(entry, error))
    return TargetState(
        name=entry.name,
        provider=entry.provider,
        ready=not _has_error(problems),
        judge=judge,
        healthcheck=healthcheck,
        problems=tuple(problems),
    )


def _opening_problem(entry: TargetEntry, error: ConfigError | ProviderError) -> Problem:
    """Return an error as a problem on the line of its setting, if the error is about one."""
    line = None
    setting = setting_of(error)
    if setting and setting in entry.places:
        line = entry.places[setting].line
    return Problem(message=error.message, line=line, hint=error.hint)


def _has_error(problems: Sequence[Problem]) -> bool:
    return any(problem.severity == "error" for problem in problems)


async def _run_healthcheck(provider: Provider | BatchProvider, check: bool) -> tuple[Healthcheck, list[Problem]]:
    """Return the outcome of the target's own healthcheck, and the problem that it found."""
    # The check of a network provider only looks for its SDK, and `_check_client` has already run it.
    if isinstance(provider, NetworkProvider) or not isinstance(provider, Checked) or provider.check is None:
        return "none", []
    if not check:
        return "not run", []
    try:
        await provider.check.run()
    except ProviderError as error:
        message = f"health check failed: {error.message}"
        return "failed", [Problem(message=message, hint=error.hint)]
    return "passed", []


def _judge(settings: TargetSettings) -> str | None:
    """Return the name of the target that judges: the configured one, or a language model itself."""
    if settings.judge_target:
        return settings.judge_target
    if isinstance(settings, LanguageModelSettings):
        return settings.name
    return None


def _open(
    settings: TargetSettings,
    file: Path,
    folders: Sequence[Path],
) -> Provider | BatchProvider:
    """Open the provider for the first folder for which that works, because paths are relative to eval files.

    Raise the `ConfigError` of the first folder if it works for none.
    """
    first_error: ConfigError | None = None
    for folder in folders:
        try:
            if isinstance(settings, CliSettings):
                _check_program(settings, folder)
            return settings.open_for(folder.absolute(), file)
        except ConfigError as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


def _check_program(settings: CliSettings, folder: Path) -> None:
    """Raise `ConfigError` if the shell would not find the program that the command starts."""
    word = PLAIN_WORD.match(settings.command_template.strip())
    cwd = folder / Path(settings.cwd or settings.workspace_template or ".").expanduser()
    if word is None or not cwd.is_dir():
        return
    program = word[0]
    # The shell is used instead of shutil.which() because it also finds its builtins and paths relative to `cwd`.
    found = subprocess.run(
        ["/bin/sh", "-c", 'command -v "$0"', program],
        cwd=cwd,
        capture_output=True,
        check=False,
    )
    if found.returncode:
        hint = "install it, or write its path into 'command_template'"
        raise ConfigError(f"no such program: {program}", hint=hint)


async def _check_client(provider: Provider | BatchProvider) -> None:
    """Create the client of a network target; raise `ConfigError` if it has no key. Nothing is sent."""
    if not isinstance(provider, NetworkProvider):
        return
    await provider.check.run()
    async with provider:
        client = provider.client()
        if not hasattr(client, "api_key"):
            return
        if not any(getattr(client, name, None) for name in CREDENTIALS):
            hint = "write api_key: ${{ VARIABLE }}, or set the variable that its SDK looks for"
            raise ConfigError("no api_key is set", hint=hint)
