"""The settings of targets that work on files: where they work, and what is done before and after."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, cast, get_args

from msgspec import Meta

from agentv.errors import nearest
from agentv.formats.conversion import Misfit
from agentv.formats.wire import text_of
from agentv.providers.settings import NOT_IN_CACHE_KEY, SECRET_NAMES, VARIABLE, TargetSettings, Text
from agentv.providers.workspaces.workspace import Hooks, KeepRule, Workspaces
from agentv.system.folders import existing_folder

KEEP_RULES = get_args(KeepRule)
Commands = Text | Annotated[tuple[Text, ...], Meta(min_length=1)]
Keep = Annotated[str, Meta(extra_json_schema={"anyOf": [{"enum": [*KEEP_RULES]}, {"pattern": VARIABLE}]})]
NEED_WORKSPACE = ("before_each", "after_each", "keep_workspaces")
"""Settings that mean nothing without a fresh workspace for each case."""


class WorkspaceSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that works on files: in a folder of the user's, or in a fresh workspace for each attempt at a case."""

    always_has_workspace: ClassVar[bool] = False
    """Whether it works in an empty workspace if neither `cwd` nor `workspace_template` is set."""

    cwd: Annotated[Text | None, Meta(description="The folder it works in, relative to the eval file's.")] = None
    workspace_template: Annotated[Text | None, Meta(description="A folder copied afresh for each case.")] = None
    before_each: Annotated[
        Commands | None, Meta(description="Shell commands, run in the workspace before the agent starts.")
    ] = None
    after_each: Annotated[
        Commands | None,
        Meta(description="Shell commands, run in the workspace after the answer is scored."),
        NOT_IN_CACHE_KEY,
    ] = None
    keep_workspaces: Annotated[
        Keep | None, Meta(description="Which workspaces are kept: always, failed or never."), NOT_IN_CACHE_KEY
    ] = None
    env: Annotated[
        dict[str, str | int | float | bool] | None,
        Meta(description="More variables for its environment."),
        SECRET_NAMES,
    ] = None

    @property
    def has_workspaces(self) -> bool:
        """Whether each attempt at a case has a fresh workspace."""
        return self.workspace_template is not None or (self.always_has_workspace and self.cwd is None)

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        if self.cwd is not None and self.workspace_template is not None:
            hint = "an agent works in a folder of yours, or in fresh copies of one: take out the other"
            yield Misfit(("workspace_template",), "cwd is given as well", hint)
        elif not self.has_workspaces:
            for name in NEED_WORKSPACE:
                if getattr(self, name) is not None:
                    reason = "cases share cwd" if self.cwd else "the command runs in the eval file's folder"
                    hint = f"{reason}: give the target a workspace_template"
                    yield Misfit((name,), "the target has no workspaces", hint)
        rule = "never" if self.keep_workspaces is None else self.keep_workspaces
        if rule not in KEEP_RULES and not rule.startswith("${{"):
            yield Misfit(("keep_workspaces",), f"unknown keep_workspaces {rule!r}", nearest(rule, KEEP_RULES))
        for name, value in (self.env or {}).items():
            if not name or "=" in name or "\0" in f"{name}{value}":
                hint = "a name has no '=', and neither a name nor a value has a NUL"
                yield Misfit(("env", name), f"no variable can have the name {name!r}, or this value", hint)

    def environment(self) -> dict[bytes, bytes]:
        """Return the environment of what is run for this target."""
        given = {name: text_of(value) for name, value in (self.env or {}).items()}
        return {**os.environb, **{os.fsencode(name): os.fsencode(value) for name, value in given.items()}}

    def workspaces(self, folder: Path) -> Workspaces:
        """Return where the target works; raise `ConfigError` for a folder that does not exist."""
        template, cwd = self.workspace_template, self.cwd
        is_fixed = cwd is not None or not self.has_workspaces
        return Workspaces(
            folder.absolute(),
            self.environment(),
            cwd=existing_folder(folder, cwd, "cwd") if is_fixed else None,
            template=existing_folder(folder, template, "workspace_template") if template else None,
            hooks=Hooks(_commands(self.before_each), _commands(self.after_each)),
            keep=cast(KeepRule, self.keep_workspaces or "never"),
        )


def _commands(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given or ()


def has_workspaces(settings: TargetSettings) -> bool:
    """Return whether each case of a target has a fresh workspace."""
    return isinstance(settings, WorkspaceSettings) and settings.has_workspaces
