"""Read a targets file: the settings of its targets, and everything that is wrong with them.

Settings may be written in snake_case or camelCase. Each `${{ VARIABLE }}` is replaced with its value in the
environment.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from agentv.errors import AgentvError, ConfigError, SettingError
from agentv.files.conversion import Misfit, convert, field_names, inner_names, takes_text
from agentv.files.wire import camel_name, snake_keys
from agentv.files.yaml import Document, Place, Steps, read_yaml
from agentv.placeholders import PLACEHOLDER
from agentv.providers import settings_type
from agentv.providers.settings import SECRET, TargetSettings, secret_values
from agentv.records import Json, Problem, Severity
from agentv.redact import NamedSecret, is_secret_name, secrets_in_urls

Environment = Mapping[str, str]
Keys = dict[str, str]
"""The key in a file of each setting, by the setting's name."""

RETRY_NAMES = (
    "max_retries",
    "initial_delay_ms",
    "max_delay_ms",
    "backoff_factor",
    "retryable_status_codes",
)
_HEADER_PARTS = re.compile(r"[\s=;,]+")
"""The separators between the values of a header, such as those of a cookie."""
VARIABLE = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class TargetsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A targets file."""

    schema_: Annotated[str | None, Meta(description="For editors.")] = msgspec.field(name="$schema", default=None)
    targets: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, description="The targets.")]


class TargetEntry(NamedTuple):
    """One target of a file: its settings, if they are valid, and all its problems."""

    name: str
    title: str
    """The target's name in messages."""
    provider: str
    settings: TargetSettings | None
    problems: tuple[Problem, ...]
    secrets: tuple[str, ...] = ()
    """Values that must never be shown."""
    draft: TargetSettings | None = None
    """The settings without the invalid ones, if the rest can be used."""
    has_unset_variables: bool = False
    """Whether a `${{ VARIABLE }}` in its settings is not set."""
    places: Mapping[str, Place] = {}
    """Where each of its settings is written; `""` is the target itself."""

    def place(self, *settings: str) -> Place:
        """Return the position of the first of these settings that is written, else that of the target."""
        for name in (*settings, ""):
            if name in self.places:
                return self.places[name]
        return Place(1, 1)

    def problem(self, file: Path, error: ConfigError) -> Problem:
        """Return an error raised while opening the target as a problem at its position in the targets file."""
        message = error.message
        setting = setting_of(error)
        if setting:
            message = f"{setting}: {message}"
        place = self.place(setting)
        return Problem(
            message=f"{self.title}: {message}",
            file=file,
            line=place.line,
            column=place.column,
            hint=error.hint,
        )


def setting_of(error: AgentvError) -> str:
    """Return the name of the setting that an error is about; empty if it is about none."""
    if isinstance(error, SettingError) and error.steps:
        return str(error.steps[0])
    return ""


class TargetList(NamedTuple):
    """The targets of a file."""

    entries: tuple[TargetEntry, ...]
    file_problems: tuple[Problem, ...] = ()

    @property
    def targets(self) -> dict[str, TargetSettings]:
        """The settings of the valid targets, by name; for a duplicate name, those of the first."""
        valid: dict[str, TargetSettings] = {}
        for entry in self.entries:
            if entry.settings is not None:
                valid.setdefault(entry.name, entry.settings)
        return valid

    def entry(self, name: str) -> TargetEntry | None:
        """Return the target with this name; for a duplicate name, the first valid one."""
        first = None
        for entry in self.entries:
            if entry.name != name:
                continue
            if entry.settings is not None:
                return entry
            if first is None:
                first = entry
        return first

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)

    @property
    def problems(self) -> list[Problem]:
        """All problems of the file; those of a target start with its title."""
        problems = list(self.file_problems)
        for entry in self.entries:
            for problem in entry.problems:
                message = f"{entry.title}: {problem.message}"
                titled = msgspec.structs.replace(problem, message=message)
                problems.append(titled)
        return problems

    @property
    def secrets(self) -> tuple[str, ...]:
        secrets: list[str] = []
        for entry in self.entries:
            secrets.extend(entry.secrets)
        return tuple(secrets)


def read_targets(
    path: Path,
    environment: Environment = os.environ,
    used: Collection[str] | None = None,
) -> TargetList:
    """Return the targets of a file, with every `${{ VARIABLE }}` replaced.

    An unset variable or an unknown provider is an error for a target that is `used` (or that judges for a used one)
    and a warning for the others, because a shared file contains the setups of several people. Without `used`, the
    file itself is checked: providers must exist, variables may be unset. Raise `ConfigError` if the file cannot be
    read or is empty.
    """
    document = read_yaml(path, ConfigError)
    if document.value is None:
        raise ConfigError(
            "the file is empty",
            file=path,
            line=1,
            column=1,
            hint="list the targets under 'targets:'",
        )
    raw_targets = _raw_targets(document.value)
    required = None
    if used is not None:
        required = _with_judges(raw_targets.values(), used)
    reader = _Reader(document, path, environment, required)
    entries = [reader.read(raw, ("targets", index)) for index, raw in raw_targets.items()]
    return TargetList(
        entries=tuple(entries),
        file_problems=_file_problems(document, path),
    )


def _file_problems(document: Document, path: Path) -> tuple[Problem, ...]:
    """Return the problems of a targets file that do not belong to a single target."""
    file = convert(document.value, TargetsFile)
    if not isinstance(file, list):
        return ()
    problems = []
    for misfit in file:
        hinted = _with_hint(misfit, document.value)
        problems.append(hinted.problem(path, document.place(misfit.steps)))
    return tuple(problems)


def _with_hint(misfit: Misfit, value: Any) -> Misfit:
    """Add a hint to the misfit of a common beginner's mistake; `value` is the content of the file."""
    if misfit.steps == () and isinstance(value, list):
        return misfit._replace(hint="list the targets under 'targets:'")
    if misfit.steps == ("targets",) and misfit.message.startswith("expected "):
        hint = ""
        if isinstance(value.get("targets"), dict):
            hint = "put a dash before the first setting of each target: '- name: default'"
        return Misfit((), "'targets' must be a list", hint)
    return misfit


def _raw_targets(value: Any) -> dict[int, Json]:
    """Return the targets that are objects, by their index in the list."""
    if not isinstance(value, dict):
        return {}
    targets = value.get("targets")
    if not isinstance(targets, list):
        return {}
    return {index: raw for index, raw in enumerate(targets) if isinstance(raw, dict)}


def _with_judges(raw_targets: Iterable[Json], used: Collection[str]) -> set[str]:
    """Return the names of the used targets and of the targets that judge their answers."""
    judges: dict[str, Any] = {}
    for raw in raw_targets:
        name = str(raw.get("name"))
        judges[name] = raw.get("judge_target", raw.get("judgeTarget"))
    names = set(used)
    for name in used:
        judge = judges.get(name)
        if isinstance(judge, str):
            names.add(judge)
    return names


@dataclass
class _Reader:
    """Read the targets of one file."""

    document: Document
    path: Path
    environment: Environment
    used: Collection[str] | None
    """The names of the targets that must be complete; None if that is not known."""
    name_lines: dict[str, int] = field(default_factory=dict)
    """The line of each target name read so far, to find duplicates."""

    def read(self, raw: Json, steps: Steps) -> TargetEntry:
        """Return the target that `raw` describes; `steps` lead to it in the document."""
        name = raw.get("name")
        is_used = self._is_used(name)
        severity: Severity = "warning"
        if is_used:
            severity = "error"
        type_, misfits = _settings_type(raw, severity)
        unset = self._unset_variables(raw, is_used)
        keys = setting_keys(raw, field_names(type_))
        renamed = _rename_keys(raw, keys, type_)
        is_complete = not misfits and not unset
        converted = self._convert(renamed, type_, fill=is_complete)
        settings = None
        if isinstance(converted, list):
            misfits += converted
        else:
            misfits += converted.validate()
            severities = [misfit.severity for misfit in misfits]
            if isinstance(name, str) and "error" not in severities:
                settings = converted

        # These do not make the settings unusable, so they are added after the check for errors.
        misfits += self._duplicate_name(name, steps)
        misfits += unset
        problems = [self._problem(misfit, keys, steps) for misfit in misfits]
        title = "unnamed target"
        if name:
            title = f"target {name!r}"
        provider = raw.get("provider", "")
        secrets = target_secrets(raw, type_, self.environment)
        return TargetEntry(
            name=str(name or ""),
            title=title,
            provider=str(provider),
            settings=settings,
            problems=tuple(problems),
            secrets=tuple(secrets),
            draft=self._draft(renamed, type_, converted),
            has_unset_variables=bool(unset),
            places=self._places(keys, steps),
        )

    def _is_used(self, name: Any) -> bool:
        if self.used is None:
            return True
        return isinstance(name, str) and name in self.used

    def _unset_variables(self, raw: Json, is_used: bool) -> list[Misfit]:
        """Return the unset variables of a target, as errors only if it is known to be used."""
        severity: Severity = "warning"
        if is_used and self.used is not None:
            severity = "error"
        misfits = _unset_variables(
            raw,
            steps=(),
            environment=self.environment,
            severity=severity,
        )
        return list(misfits)

    def _convert(
        self,
        settings: Json,
        type_: type[TargetSettings],
        *,
        fill: bool,
    ) -> TargetSettings | list[Misfit]:
        """Return the settings as a `type_`, or all their misfits; `fill` replaces variables with their values."""
        converted = convert(settings, type_)
        if isinstance(converted, list) or not fill:
            return converted
        filled = _fill_settings(settings, type_, self.environment)
        return convert(filled, type_)

    def _draft(
        self,
        settings: Json,
        type_: type[TargetSettings],
        converted: TargetSettings | list[Misfit],
    ) -> TargetSettings | None:
        """Return the valid part of the settings, with which the rest of the target can be checked."""
        if type_ is _UnknownSettings:
            return None
        if isinstance(converted, TargetSettings):
            return converted
        invalid = set()
        for misfit in converted:
            if misfit.steps:
                invalid.add(misfit.steps[0])
        names = field_names(type_) - invalid
        valid = {}
        for name, value in settings.items():
            if name in names:
                valid[name] = value
        draft = self._convert(valid, type_, fill=True)
        if isinstance(draft, list):
            return None
        return draft

    def _places(self, keys: Keys, steps: Steps) -> dict[str, Place]:
        places = {"": self.document.place(steps)}
        for name, key in keys.items():
            places[name] = self.document.place((*steps, key))
        return places

    def _problem(self, misfit: Misfit, keys: Keys, steps: Steps) -> Problem:
        """Return a misfit as a problem at the position of its setting, under the key that the file uses."""
        written = list(steps)
        if misfit.steps:
            name, *inner = misfit.steps
            key = keys.get(str(name), name)
            written.append(key)
            written.extend(inner)
        place = self.document.place(tuple(written))
        return misfit.problem(self.path, place)

    def _duplicate_name(self, name: Any, steps: Steps) -> list[Misfit]:
        if not isinstance(name, str):
            return []
        if name in self.name_lines:
            first_line = self.name_lines[name]
            misfit = Misfit(
                steps=("name",),
                message=f"duplicate name, first used on line {first_line}",
                hint="rename one of them",
            )
            return [misfit]
        place = self.document.place((*steps, "name"))
        self.name_lines[name] = place.line
        return []


class _UnknownSettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The settings of an unknown kind of target: only the settings that all targets share are checked."""

    headers: Annotated[Any, SECRET] = None


def _settings_type(raw: Json, severity: Severity) -> tuple[type[TargetSettings], list[Misfit]]:
    """Return the type of a target's settings; for an unknown provider, also a misfit of this severity."""
    provider = raw.get("provider")
    if not isinstance(provider, str) or not provider:
        return _UnknownSettings, []
    try:
        return settings_type(provider), []
    except ConfigError as error:
        misfit = Misfit(
            steps=("provider",),
            message=error.message,
            hint=error.hint,
            severity=severity,
        )
        return _UnknownSettings, [misfit]


def setting_keys(raw: Json, known: frozenset[str]) -> Keys:
    """Return the key in `raw` of each setting: snake_case or camelCase; for retries, also with `retry_` before it."""
    retry_keys = {f"retry_{name}" for name in RETRY_NAMES}
    keys = snake_keys(raw, known | retry_keys)
    for name in RETRY_NAMES:
        if name not in known:
            continue
        key = keys.pop(f"retry_{name}", None)
        if key:
            keys.setdefault(name, key)
    return keys


def spellings(name: str) -> list[str]:
    """Return all keys that a setting may have in a file, its own name first."""
    names = [name]
    if name in RETRY_NAMES:
        names.append(f"retry_{name}")
    forms: dict[str, None] = {}
    for each in names:
        camel = camel_name(each)
        forms[each] = None
        forms[camel] = None
    return list(forms)


def _rename_keys(raw: Json, keys: Keys, type_: type) -> Json:
    """Return the settings under their own names. The user's headers, options and bodies keep their keys."""
    settings = _renamed(raw, keys)
    for name, known in inner_names(type_).items():
        value = settings.get(name)
        if isinstance(value, dict):
            inner_keys = snake_keys(value, known)
            settings[name] = _renamed(value, inner_keys)
    return settings


def _renamed(raw: Json, keys: Keys) -> Json:
    return {name: raw[key] for name, key in keys.items()}


def _unset_variables(
    value: Any,
    steps: Steps,
    environment: Environment,
    severity: Severity,
) -> Iterator[Misfit]:
    """Yield a misfit for each `${{ VARIABLE }}` in `value`, at any depth, that is not set."""
    if isinstance(value, str):
        for variable in VARIABLE.findall(value):
            if variable not in environment:
                yield Misfit(
                    steps=steps,
                    message=f"the environment variable {variable} is not set",
                    hint="set it, or add it to .env",
                    severity=severity,
                )
        return
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        inner_steps = (*steps, key)
        yield from _unset_variables(inner, inner_steps, environment, severity)


def _fill_settings(settings: Json, type_: type, environment: Environment) -> Json:
    """Return the settings with their variables replaced; a variable for a number or a boolean becomes one."""
    filled: Json = {}
    for name, value in settings.items():
        filled[name] = _fill(value, environment)
        if _is_variable(value) and not takes_text(type_, name):
            with suppress(msgspec.DecodeError):  # the conversion reports a value of the wrong type
                filled[name] = msgspec.json.decode(filled[name])
    return filled


def _is_variable(value: Any) -> bool:
    """Return whether a value is a single `${{ VARIABLE }}`, with nothing else."""
    if not isinstance(value, str):
        return False
    match = VARIABLE.fullmatch(value.strip())
    return match is not None


def _fill(value: Any, environment: Environment) -> Any:
    """Return the value with each `${{ VARIABLE }}` in its strings replaced; an unset one becomes empty."""
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: environment.get(match[1], ""), value)
    if isinstance(value, dict):
        return {key: _fill(inner, environment) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, environment) for inner in value]
    return value


def target_secrets(
    raw: Json,
    type_: type[TargetSettings],
    environment: Environment,
) -> Iterator[str]:
    """Yield the values of a target that must never be shown: secret settings, their variables, credentials in URLs.

    A setting that is unknown for its kind of target is secret if its name suggests so.
    """
    known = field_names(type_)
    for name, key in snake_keys(raw, known).items():
        setting = {key: raw[key]}
        secrets = list(secret_values(setting, type_))
        if name not in known and is_secret_name(name):
            secrets.append(raw[key])
        place = f"{raw.get('name', '')}.{name}"
        for text in _texts(secrets):
            yield from _secrets_in_text(text, place, environment)
        for text in _texts(setting):
            filled = _fill(text, environment)
            for secret in secrets_in_urls(filled):
                yield NamedSecret(secret, place)


def _secrets_in_text(text: str, place: str, environment: Environment) -> Iterator[str]:
    """Yield the values in a secret text of a target: its variables, the text itself, and its parts."""
    # A variable comes first: a value that has several names is reported under the first one.
    for variable in VARIABLE.findall(text):
        yield NamedSecret(environment.get(variable, ""), variable)
    filled = _fill(text, environment)
    literal = PLACEHOLDER.sub(" ", filled)  # the names of variables of cases are not secret
    # The parts of a header are secret on their own: "Bearer KEY", "session=KEY; path=/".
    for part in (literal, *literal.split(), *_HEADER_PARTS.split(literal)):
        yield NamedSecret(part, place)


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings in a JSON value, and its numbers as strings."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str | int | float):
        yield str(value)
