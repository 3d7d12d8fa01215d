"""Targets file -> the settings of its targets, or everything that is wrong with them."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentv.documents import Document, Steps, read_yaml
from agentv.errors import ConfigError
from agentv.providers import settings_type
from agentv.providers.settings import TargetSettings
from agentv.records import Problem
from agentv.shapes import Misfit, converted, field_names, inner_names
from agentv.wire import camel_name, snake_keys

TARGETS_NAMES = ("targets.yaml", "targets.yml", ".agentv/targets.yaml", ".agentv/targets.yml")
RETRY_NAMES = ("max_retries", "initial_delay_ms", "max_delay_ms", "backoff_factor", "retryable_status_codes")
VARIABLE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class TargetsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A targets file."""

    schema_: Annotated[str | None, Meta(description="For editors.")] = msgspec.field(name="$schema", default=None)
    targets: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, description="The targets.")]


def read_targets(path: Path, environment: Mapping[str, str] = os.environ) -> tuple[list[TargetSettings], list[Problem]]:
    """The targets of a file whose settings fit their provider, and all the problems of the others.

    A variable that is not set is a warning: nobody has the keys of all the targets.
    """
    document = read_yaml(path, ConfigError)
    if document.value is None:
        raise ConfigError("the file is empty", file=path, line=1, column=1, hint="list the targets under 'targets:'")
    file = converted(document.value, TargetsFile)
    if isinstance(file, list):
        return [], [misfit.problem(path, document.place(misfit.steps)) for misfit in file]
    reader = _Reader(document, path, environment)
    for index, raw in enumerate(file.targets):
        reader.read(raw, ("targets", index))
    return reader.targets, reader.problems


class _Reader:
    """Reads the targets of one file and collects what is wrong with them."""

    def __init__(self, document: Document, path: Path, environment: Mapping[str, str]):
        self._document, self._path, self._environment = document, path, environment
        self._lines: dict[str, int] = {}
        self.targets: list[TargetSettings] = []
        self.problems: list[Problem] = []

    def read(self, raw: dict[str, Any], steps: Steps) -> None:
        kind, wrong = _kind_of(raw)
        keys = setting_keys(raw, field_names(kind))
        found = converted(_renamed(raw, keys, kind), kind)
        if isinstance(found, list):
            wrong += found
        elif not wrong:
            self.targets.append(found)
        wrong += [*self._repeated(raw.get("name"), steps), *_unset(raw, (), self._environment)]
        name = f"target {raw['name']!r}" if "name" in raw else "a target without a name"
        for misfit in wrong:
            written = (*steps, *(keys.get(str(step), step) for step in misfit.steps[:1]), *misfit.steps[1:])
            problem = misfit.problem(self._path, self._document.place(written))
            self.problems.append(msgspec.structs.replace(problem, message=f"{name}: {problem.message}"))

    def _repeated(self, name: Any, steps: Steps) -> Iterator[Misfit]:
        if isinstance(name, str):
            line = self._document.place((*steps, "name")).line
            if name in self._lines:
                message = f"the name stands twice, first on line {self._lines[name]}"
                yield Misfit(("name",), message, "rename one of them")
            self._lines.setdefault(name, line)


class _AnyKind(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A target of a kind that we do not know, so that all we can check is what every target has."""


def _kind_of(raw: Mapping[str, Any]) -> tuple[Any, list[Misfit]]:
    provider = raw.get("provider")
    if not isinstance(provider, str):
        return _AnyKind, []
    try:
        return settings_type(provider), []
    except ConfigError as error:
        return _AnyKind, [Misfit(("provider",), error.message, error.hint)]


def setting_keys(raw: Mapping[str, Any], known: frozenset[str]) -> dict[str, str]:
    """By which key of `raw` each setting is given: in camelCase, or with `retry_` before it."""
    keys = snake_keys(raw, known | {f"retry_{name}" for name in RETRY_NAMES})
    for name in RETRY_NAMES:
        if name in known and (written := keys.pop(f"retry_{name}", None)):
            keys.setdefault(name, written)
    return keys


def spellings(name: str) -> list[str]:
    """All the keys by which a setting may be given, its own name first."""
    names = [name, f"retry_{name}"] if name in RETRY_NAMES else [name]
    return list(dict.fromkeys(form for name in names for form in (name, camel_name(name))))


def _renamed(raw: Mapping[str, Any], keys: Mapping[str, str], kind: Any) -> dict[str, Any]:
    """The settings under their own names. Headers, options and bodies are the user's and stay as they are."""
    settings = {name: raw[key] for name, key in keys.items()}
    for name, known in inner_names(kind).items():
        if isinstance(inner := settings.get(name), dict):
            settings[name] = {own: inner[key] for own, key in snake_keys(inner, known).items()}
    return settings


def _unset(value: Any, steps: Steps, environment: Mapping[str, str]) -> Iterator[Misfit]:
    """The `${{ VARIABLE }}`s that have no value, wherever they stand."""
    if isinstance(value, str):
        for variable in VARIABLE.findall(value):
            if variable not in environment:
                message = f"the environment variable {variable} is not set"
                yield Misfit(steps, message, "set it, or put it into .env", "warning")
    elif isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unset(inner, (*steps, step), environment)
