"""The settings of targets that work on files: where they work, and the hooks before and after."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, cast, get_args

import msgspec
from msgspec import Meta

from agentv.errors import nearest
from agentv.files.conversion import Misfit
from agentv.files.folders import existing_folder
from agentv.files.wire import text_of
from agentv.hook_settings import Hook, Hooks
from agentv.providers.hook_commands import hook_commands
from agentv.providers.settings import (
    HOOKS_IN_BATCHES,
    NOT_IN_CACHE_KEY,
    SECRET_NAMES,
    VARIABLE,
    TargetSettings,
    Text,
)
from agentv.providers.workspaces.workspace import KeepRule, Workspaces

KEEP_RULES = get_args(KeepRule)
Keep = Annotated[
    str,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"enum": [*KEEP_RULES]},
                {"pattern": VARIABLE},
            ]
        }
    ),
]
HOOK_SETTINGS = ("before_each", "after_each")
"""Hooks that are settings of their own."""


class WorkspaceSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that works on files: in a folder of the user's, or in a fresh workspace for each attempt at a case."""

    always_has_workspace: ClassVar[bool] = False
    """Whether it works in an empty workspace if neither `cwd` nor `workspace_template` is set."""

    cwd: Annotated[
        Text | None,
        Meta(description="The working directory, relative to the eval file's folder."),
    ] = None
    workspace_template: Annotated[
        Text | None,
        Meta(description="A folder that is copied for each case."),
    ] = None
    before_each: Annotated[
        Hook | None,
        Meta(description="The same as hooks.before_each."),
    ] = None
    after_each: Annotated[
        Hook | None,
        Meta(description="The same as hooks.after_each."),
        NOT_IN_CACHE_KEY,
    ] = None
    keep_workspaces: Annotated[
        Keep | None,
        Meta(description="Which workspaces are kept: always, failed or never."),
        NOT_IN_CACHE_KEY,
    ] = None
    env: Annotated[
        dict[str, str | int | float | bool] | None,
        Meta(description="Additional environment variables."),
        SECRET_NAMES,
    ] = None

    @property
    def has_workspaces(self) -> bool:
        """Whether each attempt at a case has a fresh workspace."""
        if self.workspace_template is not None:
            return True
        return self.always_has_workspace and self.cwd is None

    @property
    def all_hooks(self) -> Hooks | None:
        given = {}
        for name in HOOK_SETTINGS:
            hook = getattr(self, name)
            if hook is not None:
                given[name] = hook
        if not given:
            return self.hooks
        return msgspec.structs.replace(self.hooks or Hooks(), **given)

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        yield from self._validate_folders()
        yield from self._validate_hooks()
        rule = self.keep_workspaces
        if rule is not None and rule not in KEEP_RULES and not rule.startswith("${{"):
            yield Misfit(
                ("keep_workspaces",),
                f"unknown keep_workspaces {rule!r}",
                nearest(rule, KEEP_RULES),
            )
        yield from self._validate_env()

    def _validate_folders(self) -> Iterator[Misfit]:
        if self.cwd is not None and self.workspace_template is not None:
            yield Misfit(
                ("workspace_template",),
                "cwd is set as well",
                "an agent works either in your folder (cwd) or in copies of a template: remove one of the two",
            )
            return
        if self.has_workspaces:
            return
        if self.keep_workspaces is not None:
            reason = "the command runs in the eval file's folder"
            if self.cwd:
                reason = "cases share cwd"
            yield Misfit(
                ("keep_workspaces",),
                "the target has no workspaces",
                f"{reason}: set workspace_template in the target",
            )

    def _validate_hooks(self) -> Iterator[Misfit]:
        """Yield the problems of the hooks that are settings of their own."""
        for name in HOOK_SETTINGS:
            if getattr(self, name) is None:
                continue
            if self.hooks is not None and getattr(self.hooks, name) is not None:
                yield Misfit(
                    (name,),
                    f"hooks.{name} is set as well",
                    f"{name} and hooks.{name} are the same: remove one of the two",
                )
            elif self.answers_at_once:
                yield Misfit((name,), HOOKS_IN_BATCHES.message, HOOKS_IN_BATCHES.hint)

    def _validate_env(self) -> Iterator[Misfit]:
        variables = self.env or {}
        for name, value in variables.items():
            if not name or "=" in name or "\0" in f"{name}{value}":
                yield Misfit(
                    ("env", name),
                    f"invalid name or value of the environment variable {name!r}",
                    "names must not contain '=', and names and values must not contain NUL",
                )

    def environment(self) -> dict[bytes, bytes]:
        """Return the environment of the programs that are run for this target."""
        environment = dict(os.environb)
        variables = self.env or {}
        for name, value in variables.items():
            environment[os.fsencode(name)] = os.fsencode(text_of(value))
        return environment

    def workspaces(self, folder: Path) -> Workspaces:
        """Return where the target works. Raise `ConfigError` for a folder that does not exist."""
        cwd = None
        if self.cwd is not None or not self.has_workspaces:
            cwd = existing_folder(folder, self.cwd, "cwd")
        template = None
        if self.workspace_template:
            template = existing_folder(folder, self.workspace_template, "workspace_template")
        hooks = self.all_hooks or Hooks()
        return Workspaces(
            eval_folder=folder.absolute(),
            environment=self.environment(),
            cwd=cwd,
            template=template,
            before_each=hook_commands("before_each", hooks.before_each),
            after_each=hook_commands("after_each", hooks.after_each),
            keep=cast(KeepRule, self.keep_workspaces or "never"),
        )


def has_workspaces(settings: TargetSettings) -> bool:
    """Return whether each case of a target has a fresh workspace."""
    return isinstance(settings, WorkspaceSettings) and settings.has_workspaces
