"""The hooks of an eval file, or of a target."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentv.cases.objects import NO_FILE
from agentv.cases.read import read_object, sidecar_of
from agentv.errors import AgentvError, ConfigError
from agentv.files.yaml import Place
from agentv.hook_settings import HookFunction, Hooks
from agentv.hooks.steps import Step, offered_to, open_hook
from agentv.providers.settings import TargetSettings
from agentv.providers.user_functions import check_function
from agentv.providers.workspaces.settings import WorkspaceSettings
from agentv.redact import NamedSecret
from agentv.targets.read import read_targets

HOOK_NAMES = (
    "before_all",
    "before_each",
    "after_each",
    "after_all",
)
LevelSource = tuple[Path, str]
"""The file that contains hooks, and the target that has them; empty for those of an eval file."""


@dataclass(eq=False, kw_only=True)
class Level:
    """The hooks of an eval file, or of a target for the eval files in a folder."""

    file: Path
    """The file that contains the hooks."""
    target: str = ""
    """The name of the target; empty for an eval file."""
    hooks: Hooks
    folder: Path
    """Where commands run, unless they run in a workspace."""
    environment: Mapping[bytes, bytes] = field(repr=False)
    steps: dict[str, tuple[Step, ...]] = field(default_factory=dict)
    """The parts of each hook, by its name."""

    @property
    def source(self) -> LevelSource:
        """Where the hooks are written. Those of a target are the same for the eval files of all folders."""
        return self.file, self.target

    @property
    def returns_state(self) -> bool:
        """Whether a hook before an attempt may add to its state."""
        hooks = (self.hooks.before_all, self.hooks.before_each)
        return any(isinstance(hook, HookFunction) for hook in hooks)

    @property
    def runs_once(self) -> bool:
        """Whether there is a hook for the run as a whole."""
        return self.hooks.before_all is not None or self.hooks.after_all is not None

    @property
    def surrounds_cases(self) -> bool:
        """Whether there is a hook for each attempt."""
        return self.hooks.before_each is not None or self.hooks.after_each is not None

    def open(self, folders: tuple[Path, ...]) -> None:
        """Get the hooks ready. Raise `ConfigError` with its location if a function cannot be loaded."""
        for name in HOOK_NAMES:
            hook = getattr(self.hooks, name)
            try:
                self.steps[name] = open_hook(name, hook, folders)
            except ConfigError as error:
                raise self.error(name, f"{name}: {error.message}", error.hint) from error

    def check(self, folders: tuple[Path, ...]) -> None:
        """Raise `ConfigError` if `open` would, as far as this can be checked without running the user's code."""
        for name in HOOK_NAMES:
            hook = getattr(self.hooks, name)
            if not isinstance(hook, HookFunction):
                continue
            try:
                check_function(hook.function, folders, offered_to(name))
            except ConfigError as error:
                raise self.error(name, f"{name}: {error.message}", error.hint) from error

    def check_target(self, settings: TargetSettings) -> None:
        """Raise `ConfigError` if a target cannot have these hooks around each attempt."""
        if not self.surrounds_cases or not settings.answers_at_once:
            return
        name = "before_each"
        if self.hooks.before_each is None:
            name = "after_each"
        raise self.error(
            name,
            f"target {settings.name!r} answers many cases at once, so {name} cannot run for each of them",
            "use before_all and after_all, or another target",
        )

    def error(self, name: str, message: str, hint: str = "") -> ConfigError:
        """Return an error about the hook with this name, at its position if it is in a file."""
        if self.file.name == NO_FILE.name:
            return ConfigError(message, hint=hint)
        place = self._place(name)
        if self.target:
            message = f"target {self.target!r}: {message}"
        return ConfigError(
            message,
            file=self.file,
            line=place.line,
            column=place.column,
            hint=hint,
        )

    def _place(self, name: str) -> Place:
        """Return where a hook is written; the start of the file if that is not known."""
        try:
            if not self.target:
                content = read_object(self.file, or_nothing=True)
                return content.place(("hooks", name))
            entry = read_targets(self.file).entry(self.target)
        except AgentvError:
            entry = None  # the file has changed in the meantime
        if entry is None:
            return Place(1, 1)
        return entry.place(name, "hooks")


def file_level(path: Path, hooks: Hooks) -> Level:
    """Return the hooks of the eval file at an absolute path."""
    source = path
    if path.suffix.lower() == ".jsonl":
        source = sidecar_of(path)
    return Level(
        file=source,
        hooks=hooks,
        folder=path.parent,
        environment=os.environb,
    )


def target_level(settings: TargetSettings, targets_file: Path, folder: Path) -> Level | None:
    """Return the hooks of a target for the eval files in a folder; None if it has none."""
    hooks = settings.all_hooks
    if hooks is None:
        return None
    environment: Mapping[bytes, bytes] = os.environb
    if isinstance(settings, WorkspaceSettings):
        environment = settings.environment()
        if settings.cwd is not None:
            folder = folder / Path(settings.cwd).expanduser()
    return Level(
        file=targets_file,
        target=settings.name,
        hooks=hooks,
        folder=folder,
        environment=environment,
    )


def secrets_of(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the strings of a state. They are masked in everything that is written."""
    for name, value in state.items():
        for text in _texts(value):
            yield NamedSecret(text, f"state.{name}")


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings in a value, which may contain itself."""
    left = [value]
    containers: dict[int, Any] = {}
    while left:
        inner = left.pop()
        if isinstance(inner, str):
            yield inner
        if id(inner) in containers or not isinstance(inner, Mapping | list | tuple | set | frozenset):
            continue
        containers[id(inner)] = inner
        if isinstance(inner, Mapping):
            left.extend(inner.values())
        else:
            left.extend(inner)
