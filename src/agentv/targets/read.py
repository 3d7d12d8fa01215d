"""Targets file -> the settings of its targets, or everything that is wrong with them.

A setting may be written in snake_case or camelCase. Its `${{ VARIABLE }}`s come from the environment.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import ConfigError, SettingError
from agentv.formats.conversion import Misfit, convert, field_names, inner_names, takes_text
from agentv.formats.wire import camel_name, snake_keys
from agentv.formats.yaml import Document, Place, Steps, read_yaml
from agentv.providers import settings_type
from agentv.providers.settings import SECRET, TargetSettings, secret_values
from agentv.records import Problem, Severity
from agentv.redact import is_secret_name, secrets_in_urls
from agentv.system.folders import first_file, searched_folders

TARGETS_NAMES = ("targets.yaml", "targets.yml", ".agentv/targets.yaml", ".agentv/targets.yml")
RETRY_NAMES = ("max_retries", "initial_delay_ms", "max_delay_ms", "backoff_factor", "retryable_status_codes")
_HEADER_PARTS = re.compile(r"[\s=;,]+")
"""What separates the values in a header, as in that of cookies."""
VARIABLE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class TargetsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A targets file."""

    schema_: Annotated[str | None, Meta(description="For editors.")] = msgspec.field(name="$schema", default=None)
    targets: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, description="The targets.")]


class TargetEntry(NamedTuple):
    """One target of a file: its settings, unless something is wrong with them, and all the problems."""

    name: str
    title: str
    """How messages call it."""
    provider: str
    settings: TargetSettings | None
    problems: tuple[Problem, ...]
    secrets: tuple[str, ...] = ()
    """Values that must never be shown."""
    draft: TargetSettings | None = None
    """Its settings without those that are wrong, if they can be used so far."""
    places: Mapping[str, Place] = {}
    """Where each of its settings is written; `""` is the target itself."""

    def problem(self, file: Path, error: ConfigError) -> Problem:
        """Return what is wrong with the target when it is opened, where it stands in the targets file."""
        field = str(error.steps[0]) if isinstance(error, SettingError) and error.steps else ""
        place = self.places.get(field) or self.places.get("") or Place(1, 1)
        message = f"{self.title}: {f'{field}: ' if field else ''}{error.message}"
        return Problem(message=message, file=file, line=place.line, column=place.column, hint=error.hint)


class TargetList(NamedTuple):
    """What a targets file holds."""

    entries: tuple[TargetEntry, ...]
    file_problems: tuple[Problem, ...] = ()

    @property
    def targets(self) -> dict[str, TargetSettings]:
        """The targets that can be used, by name; of two with one name, the first."""
        usable: dict[str, TargetSettings] = {}
        for entry in self.entries:
            if entry.settings is not None:
                usable.setdefault(entry.name, entry.settings)
        return usable

    def entry(self, name: str) -> TargetEntry | None:
        """Return the target of this name; of two, the first that can be used."""
        named = [entry for entry in self.entries if entry.name == name]
        return next((entry for entry in named if entry.settings is not None), named[0] if named else None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)

    @property
    def problems(self) -> list[Problem]:
        """All the problems of the file, each with the name of its target."""
        return [
            *self.file_problems,
            *(
                msgspec.structs.replace(problem, message=f"{entry.title}: {problem.message}")
                for entry in self.entries
                for problem in entry.problems
            ),
        ]

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(secret for entry in self.entries for secret in entry.secrets)


def find_targets(folder: Path, given: Path | None = None) -> Path:
    """Return the targets file for the eval files in `folder`: the one given, else the nearest."""
    if given is not None:
        candidates = [given] if given.is_file() else [given / name for name in TARGETS_NAMES]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is None:
            raise ConfigError(
                "no targets file there", file=given, hint=f"--targets is a file, or a folder with {TARGETS_NAMES[0]}"
            )
        return path
    folders = searched_folders(folder)
    path = first_file(folders, TARGETS_NAMES)
    if path is None:
        searched = ", ".join(map(str, folders))
        raise ConfigError(f"no targets file found: looked in {searched}", hint=EXAMPLE)
    return path


EXAMPLE = """'agentv init' makes one; or write .agentv/targets.yaml, such as:
targets:
  - name: default
    provider: python
    function: agent.py:answer"""


def read_targets(
    path: Path, environment: Mapping[str, str] = os.environ, used: Collection[str] | None = None
) -> TargetList:
    """Return the targets of a file, with every `${{ VARIABLE }}` filled in.

    A variable that is not set, and an unknown provider, are errors of a target that is `used` (or that
    grades for one that is) and warnings for the others: real files hold more than one person's setup.
    Without `used`, the file is checked for its own sake: providers must exist, variables need not be set.
    """
    document = read_yaml(path, ConfigError)
    if document.value is None:
        raise ConfigError("the file is empty", file=path, line=1, column=1, hint="list the targets under 'targets:'")
    file = convert(document.value, TargetsFile)
    file_problems = (
        [_with_hint(misfit).problem(path, document.place(misfit.steps)) for misfit in file]
        if isinstance(file, list)
        else []
    )
    listed = document.value.get("targets") if isinstance(document.value, dict) else None
    raw_targets = {
        index: raw for index, raw in enumerate(listed if isinstance(listed, list) else ()) if isinstance(raw, dict)
    }
    reader = _Reader(document, path, environment, None if used is None else _with_judges(raw_targets.values(), used))
    entries = (reader.read(raw, ("targets", index)) for index, raw in raw_targets.items())
    return TargetList(tuple(entries), tuple(file_problems))


def _with_hint(misfit: Misfit) -> Misfit:
    """Return what is wrong with a targets file with what to do about it, for what beginners write."""
    if misfit.steps == ("targets",) and "got an object" in misfit.message:
        return misfit._replace(hint="put a dash before the first setting of each target: '- name: default'")
    if misfit.steps == () and "got an array" in misfit.message:
        return misfit._replace(hint="list the targets under 'targets:'")
    return misfit


def _with_judges(raw_targets: Iterable[Mapping[str, Any]], used: Collection[str]) -> set[str]:
    """Return the names of the used targets and of those that grade their answers."""
    judges = {str(raw.get("name")): raw.get("judge_target", raw.get("judgeTarget")) for raw in raw_targets}
    return set(used) | {judge for name in used if isinstance(judge := judges.get(name), str)}


class _Reader:
    """Reads the targets of one file. `used` has the names of those that must be complete; None means unknown."""

    def __init__(self, document: Document, path: Path, environment: Mapping[str, str], used: Collection[str] | None):
        self._document, self._path, self._environment, self._used = document, path, environment, used
        self._name_lines: dict[str, int] = {}

    def read(self, raw: dict[str, Any], steps: Steps) -> TargetEntry:
        """Return the target that `raw` describes; `steps` lead to it in the document."""
        name = raw.get("name")
        is_unused = self._used is not None and not (isinstance(name, str) and name in self._used)
        type_, misfits = _settings_type(raw, "warning" if is_unused else "error")
        keys = setting_keys(raw, field_names(type_))
        unset = [
            *_unset_variables(raw, (), self._environment, "warning" if is_unused or self._used is None else "error")
        ]
        settings = self._convert(_rename_keys(raw, keys, type_), type_, fill=not misfits and not unset)
        misfits += settings if isinstance(settings, list) else settings.validate()
        has_error = any(misfit.severity == "error" for misfit in misfits)
        misfits += [*self._repeated_name(name, steps), *unset]
        return TargetEntry(
            name=str(name or ""),
            title=f"target {name!r}" if name else "a target without a name",
            provider=str(raw.get("provider", "")),
            settings=None if has_error or isinstance(settings, list) or not isinstance(name, str) else settings,
            problems=tuple(self._problem(misfit, keys, steps) for misfit in misfits),
            secrets=tuple(target_secrets(raw, type_, self._environment)),
            draft=None if type_ is _UnknownSettings else self._draft(raw, keys, type_, settings),
            places={
                "": self._document.place(steps),
                **{name: self._document.place((*steps, key)) for name, key in keys.items()},
            },
        )

    def _convert(
        self, settings: dict[str, Any], type_: type[TargetSettings], *, fill: bool
    ) -> TargetSettings | list[Misfit]:
        """Return the settings as a `type_`, or all that does not fit; `fill` says whether variables are filled in."""
        found = convert(settings, type_)
        if isinstance(found, list) or not fill:
            return found
        return convert(_fill_settings(settings, type_, self._environment), type_)

    def _draft(
        self,
        raw: dict[str, Any],
        keys: Mapping[str, str],
        type_: type[TargetSettings],
        misfits: TargetSettings | list[Misfit],
    ) -> TargetSettings | None:
        """Return the settings that are in order, to find out what else is wrong with the target."""
        if isinstance(misfits, TargetSettings):
            return misfits
        wrong = {misfit.steps[0] for misfit in misfits if misfit.steps}
        known = field_names(type_) - wrong
        kept = {name: value for name, value in _rename_keys(raw, keys, type_).items() if name in known}
        found = self._convert(kept, type_, fill=True)
        return None if isinstance(found, list) else found

    def _problem(self, misfit: Misfit, keys: Mapping[str, str], steps: Steps) -> Problem:
        """Return the problem for a person: where the setting stands, under the key that was used."""
        written = (*steps, *(keys.get(str(step), step) for step in misfit.steps[:1]), *misfit.steps[1:])
        return misfit.problem(self._path, self._document.place(written))

    def _repeated_name(self, name: Any, steps: Steps) -> Iterator[Misfit]:
        if isinstance(name, str):
            line = self._document.place((*steps, "name")).line
            if name in self._name_lines:
                message = f"the name stands twice, first on line {self._name_lines[name]}"
                yield Misfit(("name",), message, "rename one of them")
            self._name_lines.setdefault(name, line)


class _UnknownSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The settings of a kind of target that we do not know: only what every target has is checked."""

    headers: Annotated[Any, SECRET] = None


def _settings_type(raw: Mapping[str, Any], severity: Severity) -> tuple[type[TargetSettings], list[Misfit]]:
    """Return the type of a target's settings; for an unknown provider, also a misfit of this severity."""
    provider = raw.get("provider")
    if not isinstance(provider, str) or not provider:
        return _UnknownSettings, []
    try:
        return settings_type(provider), []
    except ConfigError as error:
        return _UnknownSettings, [Misfit(("provider",), error.message, error.hint, severity)]


def setting_keys(raw: Mapping[str, Any], known: frozenset[str]) -> dict[str, str]:
    """Return the key in `raw` of each setting: its name, in camelCase or not, or with `retry_` before it."""
    keys = snake_keys(raw, known | {f"retry_{name}" for name in RETRY_NAMES})
    for name in RETRY_NAMES:
        if name in known and (written := keys.pop(f"retry_{name}", None)):
            keys.setdefault(name, written)
    return keys


def spellings(name: str) -> list[str]:
    """Return all the keys under which a setting may be given, its own name first."""
    names = [name, f"retry_{name}"] if name in RETRY_NAMES else [name]
    return list(dict.fromkeys(form for name in names for form in (name, camel_name(name))))


def _rename_keys(raw: Mapping[str, Any], keys: Mapping[str, str], type_: type) -> dict[str, Any]:
    """Return the settings under their own names. Headers, options and bodies are the user's and stay as they are."""
    settings = {name: raw[key] for name, key in keys.items()}
    for name, known in inner_names(type_).items():
        if isinstance(inner := settings.get(name), dict):
            settings[name] = {own: inner[key] for own, key in snake_keys(inner, known).items()}
    return settings


def _unset_variables(value: Any, steps: Steps, environment: Mapping[str, str], severity: Severity) -> Iterator[Misfit]:
    """Yield a misfit for each `${{ VARIABLE }}` without a value, wherever it stands in `value`."""
    if isinstance(value, str):
        for variable in VARIABLE.findall(value):
            if variable not in environment:
                message = f"the environment variable {variable} is not set"
                yield Misfit(steps, message, "set it, or put it into .env", severity)
    elif isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unset_variables(inner, (*steps, step), environment, severity)


def _fill_settings(settings: dict[str, Any], type_: type, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings with their variables filled in; a variable for a number or a switch becomes one."""
    filled = {name: _fill(value, environment) for name, value in settings.items()}
    for name, value in settings.items():
        if isinstance(value, str) and VARIABLE.fullmatch(value.strip()) and not takes_text(type_, name):
            with suppress(msgspec.DecodeError):  # a value of the wrong type is reported by the conversion
                filled[name] = msgspec.json.decode(filled[name])
    return filled


def _fill(value: Any, environment: Mapping[str, str]) -> Any:
    """Return the value with each `${{ VARIABLE }}` in its texts replaced; one that is not set becomes empty."""
    if isinstance(value, str):
        return VARIABLE.sub(lambda found: environment.get(found[1], ""), value)
    if isinstance(value, dict):
        return {key: _fill(inner, environment) for key, inner in value.items()}
    return [_fill(inner, environment) for inner in value] if isinstance(value, list) else value


def target_secrets(raw: dict[str, Any], type_: type[TargetSettings], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield what must never be shown of a target: secret settings, their variables, and credentials in URLs.

    A setting that its kind of target does not know is secret if its name says so.
    """
    known = field_names(type_)
    unknown = (raw[key] for name, key in snake_keys(raw, known).items() if name not in known and is_secret_name(name))
    for text in _texts([*secret_values(raw, type_), *unknown]):
        filled = _fill(text, environment)
        yield from (filled, *filled.split(), *_HEADER_PARTS.split(filled))
        yield from (environment.get(name, "") for name in VARIABLE.findall(text))
    for text in _texts(raw):
        yield from secrets_in_urls(_fill(text, environment))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, and its numbers as texts."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
    elif isinstance(value, str | int | float):
        yield str(value)
