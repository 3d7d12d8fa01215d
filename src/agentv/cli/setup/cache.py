"""`agentv cache`."""

import click

from agentv.calls.cache import CACHE, clear
from agentv.cli.help import Group
from agentv.cli.messages import print_lines
from agentv.errors import OutputError
from agentv.report.quantities import counted


@click.group(cls=Group, examples=("agentv cache clear",))
def command() -> None:
    """The responses that 'agentv eval --cache' keeps in .agentv/cache, under the current folder."""


@command.command("clear", examples=("agentv cache clear",))
def clear_command() -> None:
    """Forget all responses: the next run asks for each again."""
    try:
        cleared = clear()
    except OSError as error:
        raise OutputError(
            f"cannot be removed: {error.strerror}",
            file=CACHE,
            hint="see who may write there",
        ) from error
    responses = counted(cleared.responses, "response")
    print_lines([f"{responses} forgotten ({cleared.size / 1e6:.1f} MB)"])
