"""The settings that several providers share, and what a setting's declaration says of it.

A setting that is no string may also be a `${{ VARIABLE }}`, which is filled in before it is used.
What belongs to one provider alone is in its own file.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, inspect

from agentv.errors import ConfigError
from agentv.formats.conversion import Misfit
from agentv.formats.fingerprint import digest
from agentv.formats.wire import camel_name
from agentv.protocols import BatchProvider, Provider
from agentv.records import Media
from agentv.redact import MASK, is_secret_name

SECRET = Meta(extra={"secret": True})
"""Marks a secret setting: its value is masked, and is no part of digests and cache keys."""
SECRET_NAMES = Meta(extra={"secret_names": True})
"""Marks a mapping in which the values whose names say so are secret, such as `API_TOKEN`."""
IN_CACHE_KEY, NOT_IN_CACHE_KEY = Meta(extra={"cache_key": True}), Meta(extra={"cache_key": False})
"""Mark whether an answer is asked for again when the setting changes. Without a mark, it is unless it is secret."""
IS_PRICE = Meta(extra={"cache_key": False, "price": True})
"""Marks what tokens cost: it decides nothing of an answer, and is no part of digests and cache keys."""

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


CALLED = ("model", "deployment", "function", "url", "command_template", "executable")
"""Settings that say what a target calls; the first that is set is shown."""


WITH_BATCH_API = ("openai", "azure", "anthropic", "gemini")
"""The kinds of targets that take `batch_api`."""


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every target has."""

    name: Annotated[Text, Meta(description="How eval files and --target call it."), NOT_IN_CACHE_KEY]
    provider: Annotated[Text, Meta(description="What kind of target it is.")]
    judge_target: Annotated[Text | None, Meta(description="The target that grades its answers."), NOT_IN_CACHE_KEY] = (
        None
    )
    workers: Annotated[Count | None, Meta(description="How many cases it may work on at once."), NOT_IN_CACHE_KEY] = (
        None
    )
    provider_batching: Annotated[
        Flag | None, Meta(description="One call answers all the cases of a file."), NOT_IN_CACHE_KEY
    ] = None
    batch_api: Annotated[
        Flag | None,
        Meta(description="Send requests through the vendor's batch API: half the price, within a day."),
        NOT_IN_CACHE_KEY,
    ] = None

    requires_one_of: ClassVar[tuple[str, ...]] = ()
    """Settings of which at least one must be given."""

    reads_files: ClassVar[bool] = False
    """Whether the target reads files itself; prompts then only name them."""

    takes_media: ClassVar[bool] = False
    """Whether the target takes the images and PDFs of a request, which are in its `media`."""

    answers_batches: ClassVar[bool] = False
    """Whether one call can answer many requests, as `provider_batching` asks."""

    has_batch_api: ClassVar[bool] = False
    """Whether there is a vendor who takes requests in batches, as `batch_api` asks."""

    is_free: ClassVar[bool] = False
    """Whether an answer costs nothing, as nobody is asked for it."""

    is_stored: ClassVar[bool] = False
    """Whether answers are of an earlier run: what they cost was paid then."""

    is_serial: ClassVar[bool] = False
    """Whether the target can only answer one request at a time."""

    def __repr__(self) -> str:
        """Return the settings as text, with secret ones masked."""
        secret = secret_fields(type(self))
        given = {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name) is not None}
        marks = _declarations(type(self))
        given = {name: _masked(value) if marks[name].get("secret_names") else value for name, value in given.items()}
        shown = (f"{name}={MASK if name in secret else repr(value)}" for name, value in given.items())
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def may_report_cost(self) -> bool:
        """Whether the target may say itself what an answer costs: then earlier answers tell it. Models have prices."""
        return "pricing" not in self.__struct_fields__

    @property
    def answers_at_once(self) -> bool:
        """Whether all the cases of a file are asked before any of them is answered."""
        return (self.answers_batches and self.provider_batching is True) or (
            self.has_batch_api and self.batch_api is True
        )

    def describe(self) -> str:
        """Return the kind of the target and what it calls: `python agent.py:answer`, `openai gpt-5`."""
        called = (getattr(self, name, None) for name in CALLED)
        return " ".join([self.provider, *(str(value) for value in called if value)][:2])

    def validate(self) -> Iterator[Misfit]:
        """Yield what is wrong with the settings that their types do not show."""
        if self.provider_batching is True and not self.answers_batches:
            message = f"targets of the kind {self.provider!r} answer no batches"
            yield Misfit(("provider_batching",), message, "each case is sent alone", "warning")
        if self.batch_api is True and not self.has_batch_api:
            message = f"targets of the kind {self.provider!r} have no batch API"
            yield Misfit(("batch_api",), message, f"leave it out; those that have one are {', '.join(WITH_BATCH_API)}")

    def check_media(self, media: Sequence[Media]) -> Misfit | None:
        """Return why the images and PDFs of a case cannot be sent to this target; None if they can."""
        if self.takes_media or self.reads_files:
            return None
        message = f"{media[0].value} is an image or a PDF, which targets of the kind {self.provider!r} do not take"
        return Misfit((), message, "use a language model, or a 'python' or 'cli' target, which gets its path")

    def open(self, folder: Path) -> Provider | BatchProvider:
        """Return the provider for this target; `folder` is the eval file's."""
        raise ConfigError(f"targets of the kind {self.provider!r} cannot be run by this version of agentv")

    def search_folders(self, folder: Path, targets_file: Path | None) -> tuple[Path, ...]:
        """Return the folders in which the files that settings name are looked for; the first that has them counts."""
        return (folder,)

    def open_for(self, folder: Path, targets_file: Path | None) -> Provider | BatchProvider:
        """Return the provider, as `open` does, of a target that may also use what lies beside its targets file."""
        return self.open(folder)

    def check_for(self, folder: Path, targets_file: Path | None) -> None:
        """Raise `ConfigError` if `open_for` would, as far as that can be told without running the user's code."""
        self.open_for(folder, targets_file)


class RetrySettings(TargetSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A target that is asked over the network, where a second try may help."""

    retries: ClassVar[int] = 0
    """How often a failed request is repeated if `max_retries` is not set."""

    max_retries: Annotated[
        Whole | None, Meta(description="How often a failed request is repeated."), NOT_IN_CACHE_KEY
    ] = None
    initial_delay_ms: Annotated[
        Amount | None, Meta(description="The wait before the first repetition."), NOT_IN_CACHE_KEY
    ] = None
    max_delay_ms: Annotated[Amount | None, Meta(description="The longest wait."), NOT_IN_CACHE_KEY] = None
    backoff_factor: Annotated[Amount | None, Meta(description="By how much each wait is longer."), NOT_IN_CACHE_KEY] = (
        None
    )
    retryable_status_codes: Annotated[
        tuple[int, ...] | None,
        Meta(description="HTTP statuses after which a request is repeated."),
        NOT_IN_CACHE_KEY,
    ] = None
    requests_per_minute: Annotated[Rate | None, Meta(description="A limit of your own."), NOT_IN_CACHE_KEY] = None
    tokens_per_minute: Annotated[Rate | None, Meta(description="A limit of your own."), NOT_IN_CACHE_KEY] = None


def secret_fields(type_: type) -> frozenset[str]:
    """Return the names of the fields of a struct type that are declared secret."""
    return frozenset(name for name, extra in _declarations(type_).items() if extra.get("secret"))


def secret_values(raw: Any, type_: type) -> Iterator[Any]:
    """Yield the values in `raw` that `type_` declares secret, under either spelling, whether or not they fit it."""
    for field in _info(type_).fields:
        for key in {field.encode_name, camel_name(field.encode_name)}.intersection(raw):
            if field.name in secret_fields(type_):
                yield raw[key]
                continue
            if _declarations(type_)[field.name].get("secret_names"):
                yield from (value for name, value in _pairs(raw[key]) if is_secret_name(name))
                continue
            for inner in _objects(raw[key]):
                for struct in _struct_types(field.type):
                    yield from secret_values(inner, struct)


def target_digest(settings: TargetSettings) -> str:
    """Return a fingerprint of a target's settings; secrets and prices are no part of it."""
    fields = _fields_without(settings, lambda extra: _is_secret(extra) or bool(extra.get("price")))
    return digest({name: value for name, value in fields.items() if value is not None})


def cache_key_fields(settings: TargetSettings) -> dict[str, Any]:
    """Return the settings that are part of a cache key: a change of one of them asks for another answer."""
    return _fields_without(settings, lambda extra: not extra.get("cache_key", not _is_secret(extra)))


def _is_secret(extra: dict[str, Any]) -> bool:
    return bool(extra.get("secret"))


def _fields_without(struct: msgspec.Struct, is_left_out: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    return {
        name: _without_secret_names(value) if extra.get("secret_names") else _value_without(value, is_left_out)
        for name, extra in _declarations(type(struct)).items()
        if not is_left_out(extra)
        for value in [getattr(struct, name)]
    }


def _without_secret_names(value: Any) -> Any:
    """Return a mapping without the values whose names say that they are secret."""
    return {name: inner for name, inner in _pairs(value) if not is_secret_name(name)} if value else value


def _masked(value: Any) -> Any:
    return {name: MASK if is_secret_name(name) else inner for name, inner in _pairs(value)} if value else value


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a mapping; none if it is no mapping."""
    return ((str(name), inner) for name, inner in value.items()) if isinstance(value, dict) else iter(())


def _value_without(value: Any, is_left_out: Callable[[dict[str, Any]], bool]) -> Any:
    """Return the value; in structs inside it, the fields that are left out are null."""
    if isinstance(value, msgspec.Struct):
        unset = dict.fromkeys(value.__struct_fields__)
        return msgspec.structs.replace(value, **(unset | _fields_without(value, is_left_out)))
    if isinstance(value, dict):
        return {key: _value_without(inner, is_left_out) for key, inner in value.items()}
    return [_value_without(inner, is_left_out) for inner in value] if isinstance(value, list | tuple) else value


_info: Any = cache(inspect.type_info)


@cache
def _declarations(type_: type) -> dict[str, dict[str, Any]]:
    """Return what the marks of each field of a struct type say."""
    return {field.name: _marks(field.type) for field in _info(type_).fields}


def _marks(info: Any) -> dict[str, Any]:
    """Return the marks on a type, or on a part of it such as `Secret` in `Secret | None`."""
    marks: dict[str, Any] = {}
    for part in _parts(info):
        marks = _marks(part) | marks
    return marks | (info.extra or {} if isinstance(info, inspect.Metadata) else {})


def _struct_types(info: Any) -> list[type]:
    """Return the structs that a value of the type may hold."""
    own = [info.cls] if isinstance(info, inspect.StructType) else []
    return own + [struct for part in _parts(info) for struct in _struct_types(part)]


def _parts(info: Any) -> list[Any]:
    """Return the types that a type is made of; those of a struct's fields are its own affair."""
    match info:
        case inspect.Metadata():
            return [info.type]
        case inspect.UnionType():
            return list(info.types)
        case inspect.DictType():
            return [info.value_type]
        case inspect.TupleType():
            return list(info.item_types)
    return [info.item_type] if hasattr(info, "item_type") else []


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a JSON value, itself among them."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _objects(inner)
