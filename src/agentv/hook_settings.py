"""The settings of hooks in eval files and targets files."""

from typing import Annotated

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(min_length=1)]


class HookFunction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A hook that is a Python function."""

    function: Annotated[
        Text,
        Meta(description="path/to/file.py:name or package.module:name"),
    ]
    timeout_seconds: Annotated[
        float,
        Meta(gt=0, description="The time limit of one call. Defaults to 60."),
    ] = 60.0


Hook = Text | Annotated[tuple[Text, ...], Meta(min_length=1)] | HookFunction
"""One or more shell commands, or a function."""
_NOT_IN_VERSION = Meta(extra={"cache_key": False})
"""Marks hooks that run after the answer: they do not affect it."""


class Hooks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hooks that run before and after cases. Each hook is a shell command, a list of commands, or a function."""

    before_all: Annotated[
        Hook | None,
        Meta(description="Runs once, before the first case is sent."),
    ] = None
    before_each: Annotated[
        Hook | None,
        Meta(description="Runs before each attempt at a case."),
    ] = None
    after_each: Annotated[
        Hook | None,
        Meta(description="Runs after each attempt, when the answer is scored."),
        _NOT_IN_VERSION,
    ] = None
    after_all: Annotated[
        Hook | None,
        Meta(description="Runs once, after the last case."),
        _NOT_IN_VERSION,
    ] = None
