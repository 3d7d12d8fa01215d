"""Help and usage errors: grouped options, examples at the end, and a hint for every mistake.

`agentv --help` loads this module: keep its imports cheap.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")
MIN_WIDTH = 50
MAX_WIDTH = 80
NARROW = 70
"""Below this width, the column of options is narrower, and long options get a line of their own."""


class _CommandWithExamples(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any):
        super().__init__(*args, **settings)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            self._check_repeats(ctx, args)
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click does not set it if an option lacks its value
            raise

    def _check_repeats(self, ctx: click.Context, args: list[str]) -> None:
        """Raise `click.UsageError` if an option that takes a single value is repeated: click would use the last one."""
        if ctx.resilient_parsing:
            return  # shell completion of an unfinished command
        parser = self.make_parser(ctx)
        _, _, order = parser.parse_args(list(args))
        seen: set[click.Parameter] = set()
        for param in order:
            if not isinstance(param, click.Option) or param.is_flag or param.multiple:
                continue
            if param in seen:
                error = click.UsageError(f"{param.opts[0]} is given more than once", ctx)
                error.add_note("it takes a single value: remove all but one")
                raise error
            seen.add(param)

    def get_help(self, ctx: click.Context) -> str:
        if not ctx.terminal_width:
            ctx.terminal_width = max(min(_columns(), MAX_WIDTH) - 2, MIN_WIDTH)
        return super().get_help(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not self.examples:
            return
        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for example in self.examples:
                formatter.write(f"{indent}{example}\n")


def _columns() -> int:
    """Return the width of the terminal.

    Click would use `shutil` for this, which imports all compression modules of the standard library.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    if sys.__stdout__ is None:
        return MAX_WIDTH
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns
    except (OSError, ValueError):
        return MAX_WIDTH


class CommandWithGroups(_CommandWithExamples):
    """A command whose help shows options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        longest = 0
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx)
            if row is None or not isinstance(param, click.Option):
                continue
            group = getattr(param, "group", "")
            groups.setdefault(group, []).append(row)
            longest = max(longest, len(row[0]))
        others = groups.pop("", [])
        others_title = "Other options"
        if not groups:
            others_title = "Options"
        width = min(longest, 30)
        if formatter.width < NARROW:
            width = min(longest, 22)
        for title, rows in [*groups.items(), (others_title, others)]:
            padded = [(f"{name:{width}}", text) for name, text in rows]
            with formatter.section(title):
                formatter.write_dl(padded, col_max=width)


class Group(_CommandWithExamples, click.Group):
    """A command with subcommands."""

    command_class = CommandWithGroups

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description of each subcommand. Click's own method shortens descriptions to one line."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and command.help:
                rows.append((name, command.help.partition("\n")[0]))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class GroupedOption(click.Option):
    """An option that belongs to a group."""

    def __init__(self, *args: Any, group: str, **settings: Any):
        super().__init__(*args, **settings)
        self.group = group


class _Decorator(Protocol):
    def __call__(self, *names: str, **settings: Any) -> Callable[[F], F]: ...


def options(group: str) -> _Decorator:
    """Return a decorator like `click.option` for options that the help shows together under a title."""
    return partial(click.option, cls=GroupedOption, group=group)


def message_of(error: click.ClickException) -> str:
    """Return the message of a click error in the style of agentv's own errors."""
    if isinstance(error, click.NoSuchOption):
        return f"no such option {error.option_name!r}"
    message = error.format_message()
    lower_case = f"{message[:1].lower()}{message[1:]}"
    return lower_case.rstrip(".")


def hint_for(error: click.ClickException) -> str:
    """Return a hint for a click error: its own notes, the option that was meant, or an example."""
    notes: list[str] = getattr(error, "__notes__", [])
    ctx = None
    if isinstance(error, click.UsageError):
        ctx = error.ctx
    if notes or ctx is None:
        return "; ".join(notes)
    if isinstance(error, click.NoSuchOption):
        from agentv.errors import closest

        close = closest(error.option_name, _option_names(ctx))
        if close:
            return f"did you mean {close!r}?"
    hint = f"see '{ctx.command_path} --help'"
    examples = getattr(ctx.command, "examples", ())
    if examples:
        hint = f"for example: {examples[0]}; {hint}"
    return hint


def _option_names(ctx: click.Context) -> list[str]:
    names: list[str] = []
    for param in ctx.command.get_params(ctx):
        if isinstance(param, click.Option):
            names.extend(param.opts)
    return names
