"""The settings that several providers share, and the marks on a setting's declaration.

A setting that is not a string may also be a `${{ VARIABLE }}`, which is replaced before the setting is used.
Settings of a single provider are in that provider's file.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, inspect

from agentv.errors import ConfigError
from agentv.files.conversion import Misfit
from agentv.files.fingerprint import digest
from agentv.files.wire import camel_name
from agentv.hook_settings import Hooks
from agentv.placeholders import STATE, VARS, Steps
from agentv.protocols import BatchProvider, Provider
from agentv.records import Media
from agentv.redact import MASK, is_secret_name

SECRET = Meta(extra={"secret": True})
"""Marks a secret setting: its value is masked, and excluded from digests and cache keys."""
SECRET_NAMES = Meta(extra={"secret_names": True})
"""Marks a mapping in which a value is secret if its name suggests it, such as `API_TOKEN`."""
IN_CACHE_KEY = Meta(extra={"cache_key": True})
"""Marks a setting that is part of cache keys although it is secret."""
NOT_IN_CACHE_KEY = Meta(extra={"cache_key": False})
"""Marks a setting that does not affect answers: cached answers stay valid when it changes."""
IS_PRICE = Meta(extra={"cache_key": False, "price": True})
"""Marks token prices: they do not affect answers and are excluded from digests and cache keys."""

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
VARIABLE = r"^\$\{\{.*\}\}$"
Variable = Annotated[str, Meta(pattern=VARIABLE)]
Text = Annotated[str, Meta(min_length=1)]
Secret = Annotated[str, Meta(min_length=1), SECRET]
Flag = bool | Variable
Count = Annotated[int, Meta(ge=1)] | Variable
Whole = Annotated[int, Meta(ge=0)] | Variable
Amount = Annotated[float, Meta(ge=0)] | Variable
Seconds = Annotated[float, Meta(gt=0)] | Variable
Rate = Annotated[float, Meta(gt=0)] | Variable
Number = float | Variable


CALLED = (
    "model",
    "deployment",
    "function",
    "url",
    "command_template",
    "executable",
)
"""Settings that name the model or command of a target. The first one that is set is shown."""


WITH_BATCH_API = ("openai", "azure", "anthropic", "gemini")
"""The provider kinds that accept `batch_api`."""


HOOKS_IN_BATCHES = Misfit(
    ("hooks",),
    "a target that answers many cases at once cannot have hooks",
    "remove the hooks, or the setting that enables batches",
)


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of every target."""

    name: Annotated[
        Text,
        Meta(description="The name that eval files and --target use."),
        NOT_IN_CACHE_KEY,
    ]
    provider: Annotated[
        Text,
        Meta(description="The kind of target."),
    ]
    judge_target: Annotated[
        Text | None,
        Meta(description="The target that judges its answers."),
        NOT_IN_CACHE_KEY,
    ] = None
    workers: Annotated[
        Count | None,
        Meta(description="Maximum number of concurrent cases."),
        NOT_IN_CACHE_KEY,
    ] = None
    provider_batching: Annotated[
        Flag | None,
        Meta(description="One call answers all the cases of a file."),
        NOT_IN_CACHE_KEY,
    ] = None
    batch_api: Annotated[
        Flag | None,
        Meta(description="Send requests through the vendor's batch API: half the price, within a day."),
        NOT_IN_CACHE_KEY,
    ] = None
    depends_on: Annotated[
        tuple[Text, ...] | None,
        Meta(description="More files (globs, relative to this file) and variables (env:NAME) that affect its answers."),
        NOT_IN_CACHE_KEY,
    ] = None

    hooks: Annotated[
        Hooks | None,
        Meta(description="Hooks that run before and after the target's cases."),
    ] = None

    requires_one_of: ClassVar[tuple[str, ...]] = ()
    """Settings at least one of which is required."""

    reads_files: ClassVar[bool] = False
    """Whether the target reads files itself. Prompts then contain only their names."""

    takes_media: ClassVar[bool] = False
    """Whether the target accepts the images and PDFs in the `media` of a request."""

    answers_batches: ClassVar[bool] = False
    """Whether one call can answer many requests (`provider_batching`)."""

    has_batch_api: ClassVar[bool] = False
    """Whether the vendor has a batch API (`batch_api`)."""

    is_free: ClassVar[bool] = False
    """Whether answers cost nothing because no calls are made."""

    is_stored: ClassVar[bool] = False
    """Whether answers come from an earlier run, which has already paid for them."""

    is_serial: ClassVar[bool] = False
    """Whether the target can only answer one request at a time."""

    def __repr__(self) -> str:
        """Return the settings that are set, with secrets masked."""
        marks = _field_marks(type(self))
        shown: list[str] = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None:
                continue
            if marks[name].get("secret"):
                shown.append(f"{name}={MASK}")
                continue
            if marks[name].get("secret_names"):
                value = _mask_secret_names(value)
            shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def may_report_cost(self) -> bool:
        """Whether the target may report the cost of an answer itself. Language models have prices instead."""
        return "pricing" not in self.__struct_fields__

    @property
    def answers_at_once(self) -> bool:
        """Whether all cases of a file are sent before any of them is answered."""
        uses_batching = self.answers_batches and self.provider_batching is True
        uses_batch_api = self.has_batch_api and self.batch_api is True
        return uses_batching or uses_batch_api

    @property
    def all_hooks(self) -> Hooks | None:
        """The hooks that run before and after the target's cases, including those with their own settings."""
        return self.hooks

    def describe(self) -> str:
        """Return the provider kind and its model or command, such as `python agent.py:answer` or `openai gpt-5`."""
        for name in CALLED:
            value = getattr(self, name, None)
            if value:
                return f"{self.provider} {value}"
        return self.provider

    def validate(self) -> Iterator[Misfit]:
        """Yield the problems that the types of the settings do not express."""
        if self.provider_batching is True and not self.answers_batches:
            yield Misfit(
                ("provider_batching",),
                f"{self.provider} targets do not answer in batches",
                "each case is sent separately",
                "warning",
            )
        if self.batch_api is True and not self.has_batch_api:
            yield Misfit(
                ("batch_api",),
                f"{self.provider} targets have no batch API",
                f"remove it; providers with a batch API: {', '.join(WITH_BATCH_API)}",
            )
        if self.hooks is not None and self.answers_at_once:
            yield HOOKS_IN_BATCHES
        for number, entry in enumerate(self.depends_on or ()):
            if entry.startswith("env:") and not VARIABLE_NAME.fullmatch(entry.removeprefix("env:")):
                yield Misfit(
                    ("depends_on", number),
                    f"{entry!r} does not name an environment variable",
                    "use env:NAME, for example env:AGENT_MODEL",
                )

    def check_media(self, media: Sequence[Media]) -> Misfit | None:
        """Return why the images and PDFs of a case cannot be sent to this target, or None if they can."""
        if self.takes_media or self.reads_files:
            return None
        message = f"{media[0].value} is an image or a PDF, which {self.provider} targets do not support"
        return Misfit((), message, "use a language model, or a 'python' or 'cli' target, which gets its path")

    def takes_guidelines(self, folder: Path, targets_file: Path | None) -> bool:
        """Return whether the target takes guidelines separately. If not, its prompts start with them.

        Raise `ConfigError` if that is only known from code that cannot be loaded.
        """
        return True

    def placeholders(self) -> Iterator[tuple[Steps, str]]:
        """Yield the names of the placeholders in its settings, each with the steps to the setting."""
        return iter(())

    def uses(self, folder: Path, targets_file: Path | None) -> frozenset[str]:
        """Return what the target receives of a case in addition to the prompt.

        That is `vars.NAME`, all `vars`, `metadata`, or the `state` of its attempt. Raise `ConfigError` if it is only
        known from code that cannot be loaded.
        """
        used = set()
        for _, name in self.placeholders():
            if name.startswith(f"{VARS}."):
                used.add(name)
            elif name.startswith(f"{STATE}."):
                used.add(STATE)
        return frozenset(used)

    def open(self, folder: Path) -> Provider | BatchProvider:
        """Return the provider for this target. Relative paths start at `folder`, the eval file's folder."""
        raise ConfigError(f"{self.provider} targets are not supported by this version of agentv")

    def search_folders(self, folder: Path, targets_file: Path | None) -> tuple[Path, ...]:
        """Return the folders to search for the files that settings name, in order of precedence."""
        return (folder,)

    def open_for(self, folder: Path, targets_file: Path | None) -> Provider | BatchProvider:
        """Return the provider, as `open` does, for a target that may also use files next to its targets file."""
        return self.open(folder)

    def check_for(self, folder: Path, targets_file: Path | None) -> None:
        """Raise `ConfigError` if `open_for` would, as far as this can be checked without running the user's code."""
        self.open_for(folder, targets_file)


class RetrySettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that is called over the network, where a retry may help."""

    retries: ClassVar[int] = 0
    """How often a failed request is retried if `max_retries` is not set."""

    max_retries: Annotated[
        Whole | None,
        Meta(description="How many times a failed request is retried."),
        NOT_IN_CACHE_KEY,
    ] = None
    initial_delay_ms: Annotated[
        Amount | None,
        Meta(description="The delay before the first retry."),
        NOT_IN_CACHE_KEY,
    ] = None
    max_delay_ms: Annotated[
        Amount | None,
        Meta(description="The maximum delay."),
        NOT_IN_CACHE_KEY,
    ] = None
    backoff_factor: Annotated[
        Amount | None,
        Meta(description="The factor by which each delay grows."),
        NOT_IN_CACHE_KEY,
    ] = None
    retryable_status_codes: Annotated[
        tuple[int, ...] | None,
        Meta(description="HTTP statuses that are retried."),
        NOT_IN_CACHE_KEY,
    ] = None
    requests_per_minute: Annotated[
        Rate | None,
        Meta(description="Maximum number of requests per minute."),
        NOT_IN_CACHE_KEY,
    ] = None
    tokens_per_minute: Annotated[
        Rate | None,
        Meta(description="Maximum number of tokens per minute."),
        NOT_IN_CACHE_KEY,
    ] = None


def secret_values(raw: Any, type_: type) -> Iterator[Any]:
    """Yield the values in `raw` that `type_` declares secret, in either spelling, whether or not they are valid."""
    for field in _type_info(type_).fields:
        marks = _field_marks(type_)[field.name]
        spellings = {field.encode_name, camel_name(field.encode_name)}
        for key in spellings.intersection(raw):
            value = raw[key]
            if marks.get("secret"):
                yield value
            elif marks.get("secret_names"):
                yield from _values_with_secret_names(value)
            else:
                yield from _secret_values_inside(value, field.type)


def _values_with_secret_names(value: Any) -> Iterator[Any]:
    for name, inner in _items(value):
        if is_secret_name(name):
            yield inner


def _secret_values_inside(value: Any, info: Any) -> Iterator[Any]:
    """Yield the secret values in the objects of a JSON value, as any of the structs in its type declares them."""
    for inner in _objects(value):
        for struct in _struct_types(info):
            yield from secret_values(inner, struct)


Marks = dict[str, Any]
"""The `extra` of the marks on one field."""
Selection = Callable[[Marks], bool]
"""Whether a field with these marks is included."""


def target_digest(settings: TargetSettings) -> str:
    """Return a fingerprint of a target's settings. Secrets and prices are excluded."""
    fields = _included_fields(settings, _is_in_digest)
    set_fields = {name: value for name, value in fields.items() if value is not None}
    return digest(set_fields)


def cache_key_fields(settings: TargetSettings) -> dict[str, Any]:
    """Return the settings that are part of a cache key: changing one of them invalidates cached answers."""
    return _included_fields(settings, _is_in_cache_key)


def _is_in_digest(marks: Marks) -> bool:
    return not marks.get("secret") and not marks.get("price")


def _is_in_cache_key(marks: Marks) -> bool:
    is_secret = bool(marks.get("secret"))
    return bool(marks.get("cache_key", not is_secret))


def _included_fields(struct: msgspec.Struct, is_included: Selection) -> dict[str, Any]:
    """Return the fields of a struct that `is_included` selects by their marks."""
    fields: dict[str, Any] = {}
    declared = _field_marks(type(struct))
    for name, marks in declared.items():
        if not is_included(marks):
            continue
        value = getattr(struct, name)
        if marks.get("secret_names"):
            fields[name] = _without_secret_names(value)
        else:
            fields[name] = _included_value(value, is_included)
    return fields


def _included_value(value: Any, is_included: Selection) -> Any:
    """Return the value with the excluded fields of structs inside it set to None.

    A struct in which nothing else is set counts as not set.
    """
    if isinstance(value, msgspec.Struct):
        included_fields = _included_fields(value, is_included)
        if all(inner is None for inner in included_fields.values()):
            return None
        all_unset = dict.fromkeys(value.__struct_fields__)
        return msgspec.structs.replace(value, **(all_unset | included_fields))
    if isinstance(value, dict):
        included = {}
        for key, inner in value.items():
            included[key] = _included_value(inner, is_included)
        return included
    if isinstance(value, list | tuple):
        return [_included_value(inner, is_included) for inner in value]
    return value


def _without_secret_names(value: Any) -> Any:
    """Return a mapping without the values whose names suggest that they are secret."""
    if not value:
        return value
    public: dict[str, Any] = {}
    for name, inner in _items(value):
        if not is_secret_name(name):
            public[name] = inner
    return public


def _mask_secret_names(value: Any) -> Any:
    """Return a mapping in which the values whose names suggest that they are secret are masked."""
    if not value:
        return value
    masked: dict[str, Any] = {}
    for name, inner in _items(value):
        masked[name] = MASK if is_secret_name(name) else inner
    return masked


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a mapping, and nothing for any other value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name), inner


_type_info: Any = cache(inspect.type_info)


@cache
def _field_marks(type_: type) -> dict[str, Marks]:
    """Return the marks on each field of a struct type."""
    fields = _type_info(type_).fields
    return {field.name: _marks(field.type) for field in fields}


def _marks(info: Any) -> Marks:
    """Return the marks on a type and on its parts, such as `Secret` in `Secret | None`."""
    marks: Marks = {}
    for part in _parts(info):
        marks = _marks(part) | marks  # those of an earlier part take precedence
    if isinstance(info, inspect.Metadata):
        marks |= info.extra or {}
    return marks


def _struct_types(info: Any) -> list[type]:
    """Return the structs that a value of the type may contain."""
    found: list[type] = []
    if isinstance(info, inspect.StructType):
        found.append(info.cls)
    for part in _parts(info):
        found += _struct_types(part)
    return found


def _parts(info: Any) -> list[Any]:
    """Return the types that a type is composed of. The types of a struct's fields do not count."""
    match info:
        case inspect.Metadata():
            return [info.type]
        case inspect.UnionType():
            return list(info.types)
        case inspect.DictType():
            return [info.value_type]
        case inspect.TupleType():
            return list(info.item_types)
    if hasattr(info, "item_type"):
        return [info.item_type]
    return []


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects in a JSON value, including the value itself."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _objects(inner)
