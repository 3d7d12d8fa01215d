"""The command line: parse the flags, print text, and set the exit code.

Each command has its own file, which is imported when the command is called. `agentv --help` imports none of them.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from agentv import __version__
from agentv.cli.help import Group, hint_for, message_of
from agentv.errors import INTERNAL_ERROR, AgentvError, InternalError, SeveralProblems

COMMANDS = {
    "batch": "Manage requests sent through vendor batch APIs (status, collect, cancel).",
    "eval": "Send each case to its target, score the answers and write the results.",
    "grade": "Re-score stored answers without calling the target.",
    "run": "Alias for eval.",
    "results compare": "Compare two runs and test whether the difference is significant.",
    "results export": "Write results as a table: CSV, Markdown or JSONL.",
    "results judge": "Measure judge/human agreement and estimate the true pass rate.",
    "results labels": "Import human labels and report inter-rater agreement.",
    "results merge": "Combine the shards of a run ('agentv eval --shard') into one results file.",
    "results report": "Write a self-contained HTML report of one run or two compared runs.",
    "results runs": "List the runs in this folder, newest first.",
    "results show": "Print questions, answers and scores, and explain failures.",
    "results view": "Browse, compare and label runs in a local web viewer.",
    "setup cache": "Clear the response cache.",
    "setup clean": "Remove old results, records, logs and cached responses.",
    "setup completion": "Print a shell completion script.",
    "setup doctor": "Check the installation, the project files and the targets.",
    "setup import": "Convert files of other tools to eval files, results or answers.",
    "setup init": "Create a project that runs offline, or add missing files to one.",
    "setup schema": "Print the JSON Schema of a file type.",
    "setup validate": "Check eval, targets and config files without running anything.",
}
"""The summary of each command. A key is the subfolder of its file, if any, and its name."""

SECTIONS = {"": "Run", "results": "Inspect results", "setup": "Set up"}
"""The heading in the help for the commands of each folder."""

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
        """Complete a command name. Click's own method would import every command for its help text."""
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
            error.add_note(nearest(name, PATHS, "commands"))
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
    """Evaluate AI agents from the command line."""
    from agentv.redact import clean, secrets_in

    # Tests run several commands in one process, each with its own environment.
    clean.start_over(secrets_in(os.environ))
    _learn_project_secrets()


def _learn_project_secrets() -> None:
    """Mask the secrets of the project's `.env` and config files in every command, also in those that use neither."""
    from agentv.config import configured_secrets
    from agentv.redact import clean
    from agentv.targets.dotenv import load_env

    environment = dict(os.environ)
    # Commands that use these files report one that cannot be read.
    with contextlib.suppress(AgentvError, OSError):
        load_env([Path.cwd()], environment)
    with contextlib.suppress(AgentvError, OSError):
        clean.learn(configured_secrets(Path.cwd(), environment))


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
        from agentv.cli.messages import print_problems

        print_problems(error.problems)
        sys.exit(2)
    except AgentvError as error:
        from agentv.cli.messages import print_error

        print_error(error)
        sys.exit(2)
    except OSError as error:
        from agentv.cli.messages import print_message

        print_message(f"error: {_os_error_text(error)}")
        sys.exit(2)
    except Exception as error:
        from agentv.cli.messages import print_error

        print_error(InternalError(error))
        sys.exit(INTERNAL_ERROR)


def _os_error_text(error: OSError) -> str:
    """Return the text of an error of the operating system that no command explains."""
    if error.filename is None and isinstance(error, FileNotFoundError):
        try:
            os.getcwd()
        except FileNotFoundError:
            return "the current folder was removed: change to another one"
    if error.filename is None and error.strerror:
        return error.strerror
    return str(error)


def _print_click_error(error: click.ClickException) -> None:
    """Print an error in the arguments of a command, with its usage and a hint."""
    from agentv.cli.messages import print_message

    if isinstance(error, click.UsageError) and error.ctx is not None:
        print_message(error.ctx.get_usage())
    print_message(f"error: {message_of(error)}")
    hint = hint_for(error)
    if hint:
        print_message(f"hint: {hint}")
