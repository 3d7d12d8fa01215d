"""Hooks that are shell commands."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from agentv.errors import MachineError, ProviderError
from agentv.hook_settings import Hook, HookFunction
from agentv.processes.command import describe_exit, output_tail, run_program, shell_in
from agentv.redact import clean
from agentv.text import truncate

SHOWN_COMMAND = 100
GRACE_SECONDS = 1.0
"""How long a hook that is ended has before it is killed. A stop of the run waits for it."""


class HookCommand(NamedTuple):
    """One command of a hook."""

    label: str
    """The name of the hook, with the number of the command if it has several."""
    command: str

    def __str__(self) -> str:
        shown_command = truncate(clean(self.command), SHOWN_COMMAND)
        return f"{self.label} {shown_command!r}"

    async def run(
        self,
        folder: Path,
        environment: Mapping[bytes, bytes],
        seconds: float,
    ) -> None:
        """Run the command in a folder. Raise `ProviderError` if it fails or takes longer than `seconds`."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                finished = await run_program(shell_in(folder, self.command), environment, grace=GRACE_SECONDS)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ProviderError(f"{self} timed out after {seconds:g} s") from None
        except MachineError:
            raise
        except ProviderError as error:
            raise ProviderError(f"{self}: {error.message}") from error
        if finished.code:
            raise ProviderError(f"{self} {describe_exit(finished.code)}{output_tail(finished)}")


def hook_commands(name: str, hook: Hook | None) -> tuple[HookCommand, ...]:
    """Return the commands of the hook with this name; none if it is a function, or not set."""
    if hook is None or isinstance(hook, HookFunction):
        return ()
    if isinstance(hook, str):
        return (HookCommand(name, hook),)
    if len(hook) == 1:
        return (HookCommand(name, hook[0]),)
    commands = []
    for number, command in enumerate(hook):
        commands.append(HookCommand(f"{name}[{number}]", command))
    return tuple(commands)
