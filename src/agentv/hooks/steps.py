"""Hooks that are ready to run: commands and functions."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentv.errors import MachineError, ProviderError
from agentv.hook_settings import Hook, HookFunction
from agentv.processes.variables import state_variables
from agentv.providers.hook_commands import HookCommand, hook_commands
from agentv.providers.tracebacks import explain_error
from agentv.providers.user_functions import FunctionSpec, UserFunction, load_function

FOR_EACH = (
    "eval_id",
    "vars",
    "metadata",
    "trial",
    "attempt",
    "workspace_path",
    "state",
    "case",
)
"""The parameters that a function may have if it runs for each attempt."""
FOR_ALL = ("state",)
"""The parameters that a function may have if it runs once per run."""


@dataclass(frozen=True, kw_only=True)
class HookCall:
    """The inputs of a hook."""

    values: Mapping[str, Any]
    """The values that a function can receive by parameter name, in addition to the state."""
    state: dict[str, Any]
    """What earlier hooks returned. What a function returns is added."""
    folder: Path
    """Where commands run."""
    environment: Mapping[bytes, bytes]
    """The environment of commands, without the state."""
    seconds: float
    """The time limit of each command."""


class Step(Protocol):
    """A part of a hook. `str()` returns its name in messages."""

    async def run(self, call: HookCall) -> None:
        """Run it. Raise `ProviderError` if it fails."""
        ...


@dataclass(frozen=True)
class CommandStep:
    """A shell command."""

    command: HookCommand

    def __str__(self) -> str:
        return str(self.command)

    async def run(self, call: HookCall) -> None:
        environment = {**call.environment, **state_variables(call.state)}
        await self.command.run(call.folder, environment, call.seconds)


@dataclass(frozen=True)
class FunctionStep:
    """A Python function. A mapping that it returns is merged into the state."""

    name: str
    settings: HookFunction
    function: UserFunction

    def __str__(self) -> str:
        function: str = self.settings.function
        if isinstance(function, FunctionSpec):
            function, _, _ = function.partition(" ")  # without its version
        return f"{self.name} {function}"

    async def run(self, call: HookCall) -> None:
        limit = asyncio.timeout(self.settings.timeout_seconds)
        try:
            async with limit:
                returned = await self.function({**call.values, "state": call.state})
        except MachineError:
            raise
        except Exception as error:
            if limit.expired():
                raise ProviderError(f"{self} timed out after {self.settings.timeout_seconds:g} s") from error
            explained = explain_error(error)
            raise ProviderError(f"{self}: {explained.message}", details=explained.details) from error
        if returned is None:
            return
        if not isinstance(returned, Mapping):
            raise ProviderError(f"{self} returned {type(returned).__name__}: return a mapping or None")
        if not all(isinstance(name, str) for name in returned):
            raise ProviderError(f"{self} returned a mapping with a key that is not a string")
        call.state.update(returned)


def open_hook(name: str, hook: Hook | None, folders: Sequence[Path]) -> tuple[Step, ...]:
    """Return the steps of the hook with this name. Functions are searched for in `folders`.

    Raise `ConfigError` if a function cannot be loaded.
    """
    if not isinstance(hook, HookFunction):
        return tuple(CommandStep(command) for command in hook_commands(name, hook))
    loaded = load_function(hook.function, folders)
    function = UserFunction(loaded, offered_to(name), None, apart=True)
    return (FunctionStep(name, hook, function),)


def offered_to(name: str) -> Sequence[str]:
    """Return the parameters that the function of the hook with this name may have."""
    if name.endswith("_all"):
        return FOR_ALL
    return FOR_EACH
