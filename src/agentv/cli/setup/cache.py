"""`agentv cache`."""

import click

from agentv.calls.cache import clear
from agentv.cli.help import Group
from agentv.cli.messages import print_lines
from agentv.errors import OutputError
from agentv.files.state import state_folder
from agentv.text import plural


@click.group(cls=Group, examples=("agentv cache clear",))
def command() -> None:
    """Manage the response cache of 'agentv eval --cache' in .agentv/cache."""


@command.command("clear", examples=("agentv cache clear",))
def clear_command() -> None:
    """Delete all cached responses in the current folder."""
    folder = state_folder("cache")
    try:
        cleared = clear(folder)
    except OSError as error:
        raise OutputError(
            f"cannot be removed: {error.strerror}",
            file=folder,
            hint="check its permissions",
        ) from error
    responses = plural(cleared.responses, "response")
    print_lines([f"deleted {responses} ({cleared.size / 1e6:.1f} MB)"])
