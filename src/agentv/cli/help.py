"""Help that teaches: options in groups, examples at the end, and a hint after every mistake.

`agentv --help` needs this, so nothing heavy is imported here.
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
NARROWEST, WIDEST = 50, 80
NARROW = 70
"""Below so many columns, long options stand on a line of their own."""


class _Taught(click.Command):
    """A command with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any):
        super().__init__(*args, **settings)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click leaves it out for an option that lacks its value
            raise

    def get_help(self, ctx: click.Context) -> str:
        ctx.terminal_width = ctx.terminal_width or max(min(_columns(), WIDEST) - 2, NARROWEST)
        return super().get_help(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def _columns() -> int:
    """Return the width of the terminal; `shutil`, which click asks, imports all that compresses files."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ is not None else WIDEST
    except (OSError, ValueError):
        return WIDEST


class Command(_Taught):
    """A command whose options stand in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                groups.setdefault(getattr(param, "group", ""), []).append(record)
        others = groups.pop("", [])
        widest = 22 if formatter.width < NARROW else 30
        column = min(widest, max(len(name) for rows in [others, *groups.values()] for name, _ in rows))
        for title, rows in [*groups.items(), ("Other options" if groups else "Options", others)]:
            with formatter.section(title):
                formatter.write_dl([(f"{name:{column}}", text) for name, text in rows], col_max=column)


class Group(_Taught, click.Group):
    """A command that has others."""

    command_class = Command


class _Option(click.Option):
    """An option that belongs to a group."""

    def __init__(self, *args: Any, group: str, **settings: Any):
        super().__init__(*args, **settings)
        self.group = group


class _Decorator(Protocol):
    def __call__(self, *names: str, **settings: Any) -> Callable[[F], F]: ...


def options(group: str) -> _Decorator:
    """What `click.option` is, for options that the help shows together under a title."""
    return partial(click.option, cls=_Option, group=group)


def message_of(error: click.ClickException) -> str:
    """What is wrong, as our other errors say it."""
    if isinstance(error, click.NoSuchOption):
        return f"no such option {error.option_name!r}"
    message = error.format_message()
    return f"{message[:1].lower()}{message[1:]}".rstrip(".")


def hint_for(error: click.ClickException) -> str:
    """What to do: what the error says of that itself, else the option that was meant, else an example."""
    notes: list[str] = getattr(error, "__notes__", [])
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    if notes or ctx is None:
        return "; ".join(notes)
    if isinstance(error, click.NoSuchOption):
        from agentv.errors import closest

        known = [name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("-")]
        if close := closest(error.option_name, known):
            return f"did you mean {close!r}?"
    examples = getattr(ctx.command, "examples", ())
    more = f"'{ctx.command_path} --help' tells all"
    return f"for example: {examples[0]}; {more}" if examples else more
