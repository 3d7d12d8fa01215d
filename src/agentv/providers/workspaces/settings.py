"""The settings of targets that work on files: where they work, and the hooks before and after."""

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
NEED_WORKSPACE = ("before_each", "after_each", "keep_workspaces")
"""Settings that have no meaning without a fresh workspace for each case."""


class WorkspaceSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that works on files: in a folder of the user's, or in a fresh workspace for each attempt at a case."""

    always_has_workspace: ClassVar[bool] = False
    """Whether it works in an empty workspace if neither `cwd` nor `workspace_template` is set."""

    cwd: Annotated[
        Text | None,
        Meta(description="The folder it works in, relative to the eval file's."),
    ] = None
    workspace_template: Annotated[
        Text | None,
        Meta(description="A folder copied afresh for each case."),
    ] = None
    before_each: Annotated[
        Commands | None,
        Meta(description="Shell commands, run in the workspace before the agent starts."),
    ] = None
    after_each: Annotated[
        Commands | None,
        Meta(description="Shell commands, run in the workspace after the answer is scored."),
        NOT_IN_CACHE_KEY,
    ] = None
    keep_workspaces: Annotated[
        Keep | None,
        Meta(description="Which workspaces are kept: always, failed or never."),
        NOT_IN_CACHE_KEY,
    ] = None
    env: Annotated[
        dict[str, str | int | float | bool] | None,
        Meta(description="More variables for its environment."),
        SECRET_NAMES,
    ] = None

    @property
    def has_workspaces(self) -> bool:
        """Whether each attempt at a case has a fresh workspace."""
        if self.workspace_template is not None:
            return True
        return self.always_has_workspace and self.cwd is None

    def validate(self) -> Iterator[Misfit]:
        yield from super().validate()
        yield from self._validate_folders()
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
                "cwd is given as well",
                "an agent works in a folder of yours, or in fresh copies of one: take out the other",
            )
            return
        if self.has_workspaces:
            return
        reason = "cases share cwd" if self.cwd else "the command runs in the eval file's folder"
        for name in NEED_WORKSPACE:
            if getattr(self, name) is not None:
                yield Misfit(
                    (name,),
                    "the target has no workspaces",
                    f"{reason}: give the target a workspace_template",
                )

    def _validate_env(self) -> Iterator[Misfit]:
        variables = self.env or {}
        for name, value in variables.items():
            if not name or "=" in name or "\0" in f"{name}{value}":
                yield Misfit(
                    ("env", name),
                    f"no variable can have the name {name!r}, or this value",
                    "a name has no '=', and neither a name nor a value has a NUL",
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
        return Workspaces(
            eval_folder=folder.absolute(),
            environment=self.environment(),
            cwd=cwd,
            template=template,
            hooks=Hooks(_commands(self.before_each), _commands(self.after_each)),
            keep=cast(KeepRule, self.keep_workspaces or "never"),
        )


def _commands(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    return given or ()


def has_workspaces(settings: TargetSettings) -> bool:
    """Return whether each case of a target has a fresh workspace."""
    return isinstance(settings, WorkspaceSettings) and settings.has_workspaces
