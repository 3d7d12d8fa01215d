"""The command line: flags in, text out, exit code.

One file a command, imported when the command is called: `agentv --help` imports none of them.
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
"""What each command does, by the folder that its file is in, if any, and its name."""

SECTIONS = {"": "Run", "results": "Look at results", "setup": "Set up"}
"""What the help calls the commands of a folder."""

ALIASES = {"run": "eval"}
PATHS = {key.split()[-1]: key for key in COMMANDS}


class _Commands(Group):
    """The commands by name; each is imported from its own file when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(PATHS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PATHS:
            return None
        from importlib import import_module

        module = PATHS[ALIASES.get(cmd_name, cmd_name)].replace(" ", ".")
        command: click.Command = import_module(f"agentv.cli.{module}").command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """What may come next. Click would import every command, for a text that we have here."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=COMMANDS[PATHS[name]]) for name in sorted(PATHS) if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        column = max(map(len, PATHS))
        for folder, title in SECTIONS.items():
            with formatter.section(title):
                rows = [(name, COMMANDS[key]) for name, key in PATHS.items() if key.rpartition(" ")[0] == folder]
                formatter.write_dl([(f"{name:{column}}", text) for name, text in rows])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args[0] not in PATHS and not args[0].startswith("-"):
            from agentv.errors import nearest

            error = click.UsageError(f"no such command {args[0]!r}", ctx)
            error.add_note(nearest(args[0], PATHS))
            raise error
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=("agentv init my-evals", "agentv eval evals/", "agentv compare before.jsonl after.jsonl"),
)
@click.version_option(__version__, message="agentv %(version)s")
def agentv() -> None:
    """Evaluate AI agents: cases in YAML or JSONL in, scores you can compare out."""
    from agentv.redact import clean, secrets_in

    clean.start_over(secrets_in(os.environ))  # a process may run several commands, each with its own environment


def run() -> None:
    """Run the command line and leave with its exit code. The one place where errors are caught."""
    try:
        agentv(prog_name="agentv", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        from agentv.processes.interrupts import leave

        leave()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        from agentv.cli.messages import tell

        if isinstance(error, click.UsageError) and error.ctx is not None:
            tell(error.ctx.get_usage())
        tell(f"error: {message_of(error)}")
        if hint := hint_for(error):
            tell(f"hint: {hint}")
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
        from agentv.cli.messages import tell

        if "--verbose" in sys.argv:
            import traceback

            tell(traceback.format_exc())
        tell(f"error: agentv broke: {type(error).__name__}: {error}")
        tell("hint: this is a bug of agentv; --verbose shows where it happened")
        sys.exit(2)
