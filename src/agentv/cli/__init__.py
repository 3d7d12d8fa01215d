"""The command line: parse the flags, print text, and set the exit code.

Each command has its own file, which is imported when the command is called. `agentv --help` imports none of them.
"""

import os
import sys
from typing import Any

import click

from agentv import __version__
from agentv.cli.help import Group, hint_for, message_of
from agentv.errors import AgentvError, SeveralProblems

COMMANDS = {
    "batch": "Look after what was sent through vendors' batch APIs: status, collect, cancel.",
    "eval": "Send every case to its target, score the answers, write the results.",
    "grade": "Score the answers of an earlier run again; no target is asked.",
    "run": "The same as eval.",
    "results compare": "Tell whether one run is better than another, and how sure that is.",
    "results export": "Write results as a table: CSV, Markdown or JSONL.",
    "results judge": "Tell how far a judge agrees with people, and the pass rate that they would give.",
    "results labels": "Import what people say of answers, and tell how far they agree.",
    "results merge": "Join the results of a run that was divided by 'agentv eval --shard'.",
    "results report": "Write results as one HTML file: what failed, why, and how two runs differ.",
    "results runs": "List the runs of this folder, newest first.",
    "results show": "Show what was asked and answered, and why cases failed.",
    "results view": "Show runs in a browser: all of them, one as it grows, any two compared.",
    "setup cache": "Forget the responses that 'agentv eval --cache' has kept.",
    "setup completion": "Print the script with which a shell completes agentv's commands.",
    "setup doctor": "Tell what is installed, which files are used here, which targets are ready.",
    "setup import": "Make eval files, results or answers out of what other tools wrote.",
    "setup init": "Make a project that runs at once, or add what one lacks.",
    "setup schema": "Print the JSON Schema of a kind of file, for editors and tools.",
    "setup validate": "Check eval, targets and config files without running anything.",
}
"""The help text of each command. A key is the folder of its file, if it is in one, and its name."""

SECTIONS = {"": "Run", "results": "Look at results", "setup": "Set up"}
"""The title of the commands of each folder in the help."""

ALIASES = {"run": "eval"}
PATHS = {key.split()[-1]: key for key in COMMANDS}
"""The key in `COMMANDS` of each command."""


class _Commands(Group):
    """A group that imports each command from its own file when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(PATHS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PATHS:
            return None
        from importlib import import_module

        name = ALIASES.get(cmd_name, cmd_name)
        module_name = PATHS[name].replace(" ", ".")
        command: click.Command = import_module(f"agentv.cli.{module_name}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return the completions of a word. Click's own method would import every command for its help text."""
        from click.shell_completion import CompletionItem

        found = []
        for name, key in sorted(PATHS.items()):
            if name.startswith(incomplete):
                found.append(CompletionItem(name, help=COMMANDS[key]))
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, PATHS))
        for folder, title in SECTIONS.items():
            rows = []
            for name, key in PATHS.items():
                if key.rpartition(" ")[0] == folder:
                    rows.append((f"{name:{width}}", COMMANDS[key]))
            with formatter.section(title):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        name = args[0]
        if name not in PATHS and not name.startswith("-"):
            from agentv.errors import nearest

            error = click.UsageError(f"no such command {name!r}", ctx)
            error.add_note(nearest(name, PATHS))
            raise error
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        "agentv init my-evals",
        "agentv eval evals/",
        "agentv compare before.jsonl after.jsonl",
    ),
)
@click.version_option(__version__, message="agentv %(version)s")
def agentv() -> None:
    """Evaluate AI agents: cases in YAML or JSONL in, scores you can compare out."""
    from agentv.redact import clean, secrets_in

    # A process may run several commands, each with another environment.
    clean.start_over(secrets_in(os.environ))


def run() -> None:
    """Run the command line and exit with its exit code. All errors are caught and printed here."""
    try:
        agentv(prog_name="agentv", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        from agentv.processes.interrupts import leave

        leave()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _print_click_error(error)
        sys.exit(error.exit_code)
    except SeveralProblems as error:
        from agentv.cli.messages import tell_problems

        tell_problems(error.problems)
        sys.exit(2)
    except AgentvError as error:
        from agentv.cli.messages import tell_error

        tell_error(error)
        sys.exit(2)
    except OSError as error:
        from agentv.cli.messages import tell

        tell(f"error: {error}")
        sys.exit(2)
    except Exception as error:
        _print_bug(error)
        sys.exit(2)


def _print_click_error(error: click.ClickException) -> None:
    """Print an error in the arguments of a command, with its usage and a hint."""
    from agentv.cli.messages import tell

    if isinstance(error, click.UsageError) and error.ctx is not None:
        tell(error.ctx.get_usage())
    tell(f"error: {message_of(error)}")
    hint = hint_for(error)
    if hint:
        tell(f"hint: {hint}")


def _print_bug(error: Exception) -> None:
    """Print an unexpected exception, with its traceback if the user asked for verbose output."""
    from agentv.cli.messages import tell

    if "--verbose" in sys.argv:
        import traceback

        tell(traceback.format_exc())
    tell(f"error: agentv broke: {type(error).__name__}: {error}")
    tell("hint: this is a bug of agentv; --verbose shows where it happened")
