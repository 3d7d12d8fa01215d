"""`agentv completion`."""

import click
from click.shell_completion import get_completion_class

from agentv.cli.help import CommandWithGroups
from agentv.cli.messages import print_lines
from agentv.cli.params import OneOf


@click.command(
    cls=CommandWithGroups,
    examples=(
        """eval "$(agentv completion bash)"   # in ~/.bashrc""",
        """eval "$(agentv completion zsh)"    # in ~/.zshrc""",
        "agentv completion fish | source    # in config.fish",
    ),
)
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script for commands, options, paths and target names.

    Load it in your shell's startup file, as in the examples.
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = ctx.find_root().command
    completion = completion_class(root, {}, "agentv", "_AGENTV_COMPLETE")
    print_lines([completion.source().strip()])
