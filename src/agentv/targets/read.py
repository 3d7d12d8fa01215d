"""Targets file -> the settings of its targets, or everything that is wrong with them."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError
from agentv.formats.conversion import Misfit, convert, field_names, inner_names, takes_text
from agentv.formats.wire import camel_name, snake_keys
from agentv.formats.yaml import Document, Steps, read_yaml
from agentv.providers import settings_type
from agentv.providers.settings import TargetSettings
from agentv.records import Problem, Severity
from agentv.redact import secrets_in_urls
from agentv.system.folders import first_file, searched_folders

TARGETS_NAMES = ("targets.yaml", "targets.yml", ".agentv/targets.yaml", ".agentv/targets.yml")
RETRY_NAMES = ("max_retries", "initial_delay_ms", "max_delay_ms", "backoff_factor", "retryable_status_codes")
_PARTS = re.compile(r"[\s=;,]+")
"""What is between the values in a header, as in that of cookies."""
VARIABLE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class TargetsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A targets file."""

    schema_: Annotated[str | None, Meta(description="For editors.")] = msgspec.field(name="$schema", default=None)
    targets: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, description="The targets.")]


class TargetRead(NamedTuple):
    """A target as it stands in its file: its settings, if they are in order, and all the problems with them."""

    name: str
    title: str
    provider: str
    settings: TargetSettings | None
    problems: tuple[Problem, ...]


class TargetsRead(NamedTuple):
    """What a targets file holds."""

    entries: tuple[TargetRead, ...]
    file_problems: tuple[Problem, ...] = ()
    secrets: tuple[str, ...] = ()

    @property
    def targets(self) -> dict[str, TargetSettings]:
        """The targets that are in order, by name."""
        sound: dict[str, TargetSettings] = {}
        for entry in self.entries:
            if entry.settings is not None:
                sound.setdefault(entry.name, entry.settings)
        return sound

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)

    @property
    def problems(self) -> list[Problem]:
        """All the problems of the file, each with the name of its target."""
        return [*self.file_problems, *(problem for entry in self.entries for problem in _named(entry))]


def _named(entry: TargetRead) -> Iterator[Problem]:
    for problem in entry.problems:
        yield msgspec.structs.replace(problem, message=f"{entry.title}: {problem.message}")


def find_targets(folder: Path, given: Path | None = None) -> Path:
    """The targets file for the eval files in `folder`: the one given, else the nearest."""
    if given is not None:
        places = [given] if given.is_file() else [given / name for name in TARGETS_NAMES]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise ConfigError(
                "no targets file there", file=given, hint=f"--targets is a file, or a folder with {TARGETS_NAMES[0]}"
            )
        return path
    folders = searched_folders(folder)
    path = first_file(folders, TARGETS_NAMES)
    if path is None:
        looked = ", ".join(map(str, folders))
        raise ConfigError(f"no targets file found: looked in {looked}", hint=FIRST_TARGETS)
    return path


FIRST_TARGETS = """'agentv init' makes one; or write .agentv/targets.yaml, such as:
targets:
  - name: default
    provider: python
    function: agent.py:answer"""


def read_targets(
    path: Path, environment: Mapping[str, str] = os.environ, used: Collection[str] | None = None
) -> TargetsRead:
    """The targets of a file, with every `${{ VARIABLE }}` filled in.

    A variable that is not set, and an unknown provider, are errors of a target that is `used` (or that
    grades for one that is) and warnings for the others: real files hold more than one person's setup.
    Without `used`, the file is checked for its own sake: providers must exist, variables need not be set.
    """
    document = read_yaml(path, ConfigError)
    if document.value is None:
        raise ConfigError("the file is empty", file=path, line=1, column=1, hint="list the targets under 'targets:'")
    file = convert(document.value, TargetsFile)
    listed = document.value.get("targets") if isinstance(document.value, dict) else None
    entries = {
        index: raw for index, raw in enumerate(listed if isinstance(listed, list) else ()) if isinstance(raw, dict)
    }
    reader = _Reader(document, path, environment, None if used is None else _with_judges([*entries.values()], used))
    read = tuple(reader.read(raw, ("targets", index)) for index, raw in entries.items())
    wrong = tuple(m.problem(path, document.place(m.steps)) for m in file) if isinstance(file, list) else ()
    secrets = tuple(secret for raw in entries.values() for secret in secrets_of(raw, environment))
    return TargetsRead(read, wrong, secrets)


def _with_judges(targets: Sequence[Mapping[str, Any]], used: Collection[str]) -> set[str]:
    """The used targets and those that grade their answers."""
    judges = {str(raw.get("name")): raw.get("judge_target", raw.get("judgeTarget")) for raw in targets}
    return set(used) | {judge for name in used if isinstance(judge := judges.get(name), str)}


class _Reader:
    """Reads the targets of one file and collects what is wrong with them."""

    def __init__(self, document: Document, path: Path, environment: Mapping[str, str], used: Collection[str] | None):
        self._document, self._path, self._environment, self._used = document, path, environment, used
        self._lines: dict[str, int] = {}

    def read(self, raw: dict[str, Any], steps: Steps) -> TargetRead:
        name = raw.get("name")
        unused = self._used is not None and not (isinstance(name, str) and name in self._used)
        kind, wrong = _kind_of(raw, "warning" if unused else "error")
        keys = setting_keys(raw, field_names(kind))
        settings = _renamed(raw, keys, kind)
        unset = list(_unset(raw, (), self._environment, "warning" if unused or self._used is None else "error"))
        found = convert(settings, kind)
        if not isinstance(found, list) and not wrong and not unset:
            found = convert(_filled(settings, kind, self._environment), kind)
        wrong += found if isinstance(found, list) else found.misfits()
        is_sound = not any(misfit.severity == "error" for misfit in wrong)
        usable = None if isinstance(found, list) or not is_sound or not isinstance(name, str) else found
        wrong += [*self._repeated(name, steps), *unset]
        return TargetRead(
            str(name or ""),
            f"target {name!r}" if name else "a target without a name",
            str(raw.get("provider", "")),
            usable,
            tuple(self._problem(misfit, keys, steps) for misfit in wrong),
        )

    def _problem(self, misfit: Misfit, keys: Mapping[str, str], steps: Steps) -> Problem:
        written = (*steps, *(keys.get(str(step), step) for step in misfit.steps[:1]), *misfit.steps[1:])
        return misfit.problem(self._path, self._document.place(written))

    def _repeated(self, name: Any, steps: Steps) -> Iterator[Misfit]:
        if isinstance(name, str):
            line = self._document.place((*steps, "name")).line
            if name in self._lines:
                message = f"the name stands twice, first on line {self._lines[name]}"
                yield Misfit(("name",), message, "rename one of them")
            self._lines.setdefault(name, line)


class _AnyKind(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A target of a kind that we do not know, so that all we can check is what every target has."""


def _kind_of(raw: Mapping[str, Any], severity: Severity) -> tuple[Any, list[Misfit]]:
    provider = raw.get("provider")
    if not isinstance(provider, str) or not provider:
        return _AnyKind, []
    try:
        return settings_type(provider), []
    except ConfigError as error:
        return _AnyKind, [Misfit(("provider",), error.message, error.hint, severity)]


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


def _unset(value: Any, steps: Steps, environment: Mapping[str, str], severity: Severity) -> Iterator[Misfit]:
    """The `${{ VARIABLE }}`s that have no value, wherever they stand."""
    if isinstance(value, str):
        for variable in VARIABLE.findall(value):
            if variable not in environment:
                message = f"the environment variable {variable} is not set"
                yield Misfit(steps, message, "set it, or put it into .env", severity)
    elif isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unset(inner, (*steps, step), environment, severity)


def _filled(settings: dict[str, Any], kind: Any, environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings with their variables filled in; one that stands for a number or a switch becomes one."""
    filled = {name: fill(value, environment) for name, value in settings.items()}
    for name, value in settings.items():
        if isinstance(value, str) and VARIABLE.fullmatch(value.strip()) and not takes_text(kind, name):
            try:
                filled[name] = msgspec.json.decode(filled[name])
            except msgspec.DecodeError:
                continue  # its type is wrong, and converting says so
    return filled


def fill(value: Any, environment: Mapping[str, str]) -> Any:
    """The value with each `${{ VARIABLE }}` in its texts replaced."""
    if isinstance(value, str):
        return VARIABLE.sub(lambda found: environment[found[1]], value)
    if isinstance(value, dict):
        return {key: fill(inner, environment) for key, inner in value.items()}
    return [fill(inner, environment) for inner in value] if isinstance(value, list) else value


def secrets_of(raw: Any, environment: Mapping[str, str]) -> Iterator[str]:
    """What must never be shown of a target: its key, its headers, the credentials in its URLs, and their variables."""
    for key, value in raw.items() if isinstance(raw, dict) else ():
        is_secret = key in ("api_key", "apiKey", "headers")
        for text in _texts(value):
            filled = VARIABLE.sub(lambda found: environment.get(found[1], ""), text)
            if is_secret:
                yield from (filled, *filled.split(), *_PARTS.split(filled))
                yield from (environment.get(name, "") for name in VARIABLE.findall(text))
            yield from secrets_in_urls(filled)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
