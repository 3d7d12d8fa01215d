"""Convert a value to a type, or list everything that does not fit.

msgspec is fast, but stops at the first error. After an error, the value is compared with the type once more to find
and explain all errors.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from agentv.errors import AgentvError, closest, nearest
from agentv.files.yaml import TOO_DEEP, Place, Steps, read_yaml
from agentv.records import Problem, Severity
from agentv.text import truncate_to_width

T = TypeVar("T")
MAX_MISFITS = 50
UNKNOWN_FIELD = "unknown field"
ACCEPTS = "accepts"
"""The key in `Meta.extra` of a text that names the values a setting accepts, for its error messages."""


class Misfit(NamedTuple):
    """A value that does not fit its type: the steps that lead to it, and the reason."""

    steps: Steps
    message: str
    hint: str = ""
    severity: Severity = "error"

    def problem(self, file: Path, place: Place) -> Problem:
        """Return the problem to report at a position in a file."""
        message = self.message
        if self.steps:
            message = f"{label(self.steps)}: {message}"
        return Problem(
            message=message,
            severity=self.severity,
            file=file,
            line=place.line,
            column=place.column,
            hint=self.hint,
        )


Misfits = Iterator[Misfit]


def find_misfits(value: Any, type_: Any) -> Misfits:
    """Yield everything in `value` that does not fit `type_`."""
    yield from _walk(value, _info(type_), ())


def convert(value: Any, type_: type[T]) -> T | list[Misfit]:
    """Return `value` as a `type_`, or the list of misfits."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        walk = find_misfits(value, type_)
        misfits = list(islice(walk, MAX_MISFITS + 1))
        if len(misfits) > MAX_MISFITS:
            misfits[-1] = Misfit((), f"more than {MAX_MISFITS} problems here")
        # msgspec may reject values for reasons that the walk below does not check
        return misfits or [Misfit((), str(error))]
    except RecursionError:
        return [Misfit((), TOO_DEEP)]


def read_record(
    path: Path,
    type_: type[T],
    error: type[AgentvError],
) -> tuple[T | None, list[Problem]]:
    """Return the value of a YAML file as a `type_`, or None and all problems. An empty file is an empty object."""
    try:
        document = read_yaml(path, error)
    except AgentvError as problem:
        return None, [Problem.of(problem)]
    value = document.value
    if value is None:
        value = {}
    record = convert(value, type_)
    if not isinstance(record, list):
        return record, []
    problems = []
    for misfit in record:
        place = document.place(misfit.steps)
        problems.append(misfit.problem(path, place))
    return None, problems


def unknown_fields(value: dict[str, Any], type_: Any) -> Misfits:
    """Yield the fields of `value` that `type_` does not have."""
    known = field_names(type_)
    for name in value:
        if name not in known:
            hint = nearest(name, known)
            yield Misfit((name,), UNKNOWN_FIELD, hint)


@cache
def field_names(type_: Any) -> frozenset[str]:
    """Return the names of a struct's fields as written in files."""
    info = _info(type_)
    names = [field.encode_name for field in info.fields]
    if info.tag_field:
        names.append(info.tag_field)
    return frozenset(names)


@cache
def takes_text(type_: Any, name: str) -> bool:
    """Return whether a field of a struct accepts any string."""
    types = {}
    for field in _info(type_).fields:
        types[field.encode_name] = field.type
    for choice in _choices(types[name]):
        is_text = isinstance(choice, inspect.StrType | inspect.AnyType)
        if is_text and not getattr(choice, "pattern", None):
            return True
    return False


@cache
def takes_number(type_: Any, name: str) -> bool:
    """Return whether a field of a struct accepts numbers or booleans."""
    numbers = inspect.AnyType | inspect.IntType | inspect.FloatType | inspect.BoolType
    for field in _info(type_).fields:
        if field.encode_name == name:
            return any(isinstance(choice, numbers) for choice in _choices(field.type))
    return False


@cache
def inner_names(type_: Any) -> dict[str, frozenset[str]]:
    """Return the fields of a struct that hold structs, each with the field names of these, as written in a file."""
    names: dict[str, frozenset[str]] = {}
    for field in _info(type_).fields:
        for choice in _choices(field.type):
            if not isinstance(choice, inspect.StructType):
                continue
            name = field.encode_name
            known = names.get(name, frozenset())
            names[name] = known | field_names(choice.cls)
    return names


def label(steps: Steps) -> str:
    """Return the steps as text: `input_messages[0].role`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}"
    return text.lstrip(".")


_info: Any = cache(inspect.type_info)


class _Kind(NamedTuple):
    """How a message names a kind of value, and the Python types of such values."""

    name: str
    types: tuple[type, ...]


_KINDS: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    dict: "an object",
    list: "an array",
    type(None): "null",
}
_WANTED: dict[type, _Kind] = {
    inspect.StrType: _Kind("a string", (str,)),
    inspect.BoolType: _Kind("a boolean", (bool,)),
    inspect.IntType: _Kind("an integer", (int,)),
    inspect.FloatType: _Kind("a number", (int, float)),
    inspect.NoneType: _Kind("null", (type(None),)),
    inspect.DictType: _Kind("an object", (dict,)),
    inspect.StructType: _Kind("an object", (dict,)),
    inspect.VarTupleType: _Kind("an array", (list,)),
    inspect.LiteralType: _Kind("a string", (str,)),
    inspect.AnyType: _Kind("a JSON value", tuple(_KINDS)),
}


def _walk(
    value: Any,
    info: Any,
    steps: Steps,
) -> Misfits:
    """Yield everything in `value` that does not fit the type that `info` describes."""
    accepted = _accepted(info)
    if accepted:
        if any(_walk(value, info.type, steps)):
            yield Misfit(steps, f"expected {accepted}, got {_got(value)}")
        return
    choices = _choices(info)
    fitting = []
    for choice in choices:
        if type(value) in _WANTED[type(choice)].types:
            fitting.append(choice)
    if not fitting:
        yield _wrong_kind(value, choices, steps, _fixed_values(info))
    elif isinstance(fitting[0], inspect.StructType):
        yield from _walk_struct(value, fitting, steps)
    else:
        wanted = _list_kinds(choices)
        yield from _walk_plain(value, fitting[0], steps, wanted)


def _accepted(info: Any) -> str:
    """Return the text that names the values which a setting accepts; empty if it has none."""
    if not isinstance(info, inspect.Metadata) or info.extra is None:
        return ""
    return str(info.extra.get(ACCEPTS, ""))


def _got(value: Any) -> str:
    """Return a string or a number itself, and the kind of any other value."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _kind(value)


def _kind(value: Any) -> str:
    """Return what kind of value something is. Python code may pass objects that no file can contain."""
    return _KINDS.get(type(value), f"a value of type {type(value).__name__!r}")


def _choices(info: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself, without their metadata."""
    bare = _without_metadata(info)
    if not isinstance(bare, inspect.UnionType):
        return (bare,)
    return tuple(_without_metadata(member) for member in bare.types)


def _without_metadata(info: Any) -> Any:
    if isinstance(info, inspect.Metadata):
        return info.type
    return info


def _wrong_kind(
    value: Any,
    choices: tuple[Any, ...],
    steps: Steps,
    fixed: Sequence[str] = (),
) -> Misfit:
    """Return a misfit for a value of the wrong type; `fixed` lists the values of a setting that accepts only a few."""
    wanted = _list_kinds(choices)
    if fixed:
        wanted = _join_or([repr(word) for word in fixed])
    hint = ""
    if "a string" in wanted and isinstance(value, bool | int | float):
        hint = "quote it"
    if wanted == "an array" and isinstance(value, dict):
        hint = "put it in a list: [{…}]"
    return Misfit(steps, f"expected {wanted}, got {_kind(value)}", hint)


def _list_kinds(choices: tuple[Any, ...]) -> str:
    """Return the accepted kinds as text: `a string, an object or an array`, or `'always' or 'never'`."""
    names: list[str] = []
    for choice in choices:
        if _is_implied(choice):
            continue
        for name in _kind_names(choice):
            if name not in names:
                names.append(name)
    return _join_or(names)


def _join_or(names: list[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _fixed_values(info: Any) -> Sequence[str]:
    """Return the fixed values of a setting that is an enum or a variable, as listed in its JSON Schema."""
    if isinstance(info, inspect.UnionType):
        for member in info.types:
            values = _fixed_values(member)
            if values:
                return values
    if not isinstance(info, inspect.Metadata):
        return ()
    schema = info.extra_json_schema or {}
    for option in schema.get("anyOf", ()):
        if "enum" in option:
            words: list[str] = option["enum"]
            return words
    return _fixed_values(info.type)


def _kind_names(choice: Any) -> list[str]:
    """Return how a message names a type: the values themselves if there are only a few."""
    if isinstance(choice, inspect.LiteralType):
        return [repr(value) for value in choice.values]
    return [_WANTED[type(choice)].name]


def _is_implied(choice: Any) -> bool:
    """Return whether messages omit a type because many fields accept it: null, or `${{ VARIABLE }}`."""
    if isinstance(choice, inspect.NoneType):
        return True
    return bool(getattr(choice, "pattern", None))


def _walk_plain(
    value: Any,
    info: Any,
    steps: Steps,
    wanted: str,
) -> Misfits:
    """Yield what does not fit any type but a struct; `wanted` names the expected kinds of values."""
    min_length = getattr(info, "min_length", None)
    if min_length and len(value) < min_length:
        yield Misfit(steps, "must not be empty")
    match info:
        case inspect.LiteralType():
            if value not in info.values:
                name: str | int = "value"
                if steps:
                    name = steps[-1]
                hint = _one_of(value, info.values)
                yield Misfit(steps, f"unknown {name} {_short(value)}", hint)
        case inspect.VarTupleType():
            for index, item in enumerate(value):
                yield from _walk(item, info.item_type, (*steps, index))
        case inspect.DictType():
            for key, item in value.items():
                yield from _walk(item, info.value_type, (*steps, key))
        case inspect.StrType():
            if info.pattern and not re.search(info.pattern, value):
                hint = "remove the quotes, or use ${{ VARIABLE }}"
                yield Misfit(steps, f"expected {wanted}, got a string", hint)
        case inspect.IntType() | inspect.FloatType():
            yield from _walk_number(value, info, steps)


def _walk_number(
    value: float,
    info: Any,
    steps: Steps,
) -> Misfits:
    if info.gt is not None and value <= info.gt:
        yield Misfit(steps, f"must be greater than {info.gt}, got {value}")
    if info.ge is not None and value < info.ge:
        yield Misfit(steps, f"must be at least {info.ge}, got {value}")
    if info.le is not None and value > info.le:
        yield Misfit(steps, f"must be at most {info.le}, got {value}")


def _walk_struct(
    value: dict[str, Any],
    choices: list[Any],
    steps: Steps,
) -> Misfits:
    """Yield what does not fit the struct; `choices` are the members of a tagged union, or a single struct."""
    chosen = choices[0]
    if chosen.tag_field is not None:
        tags = {choice.tag: choice for choice in choices}
        tag = value.get(chosen.tag_field)
        if not isinstance(tag, str) or tag not in tags:
            yield _wrong_tag(value, chosen.tag_field, list(tags), steps)
            return
        chosen = tags[tag]
    for field in chosen.fields:
        name = field.encode_name
        if name in value:
            yield from _walk(value[name], field.type, (*steps, name))
        elif field.required:
            yield Misfit(steps, f"missing {name}")
    if chosen.forbid_unknown_fields:
        for misfit in unknown_fields(value, chosen.cls):
            yield misfit._replace(steps=(*steps, *misfit.steps))


def _wrong_tag(
    value: dict[str, Any],
    name: str,
    tags: list[str],
    steps: Steps,
) -> Misfit:
    """Return the problem of the field `name`, which selects one of the structs of a union."""
    if name not in value:
        hint = f"one of {', '.join(tags)}"
        return Misfit(steps, f"missing {name}", hint)
    tag = value[name]
    inner = (*steps, name)
    if not isinstance(tag, str):
        return _wrong_kind(tag, (inspect.StrType(),), inner)
    hint = _one_of(tag, tags)
    return Misfit(inner, f"unknown {name} {_short(tag)}", hint)


def _one_of(word: str, known: Any) -> str:
    """Return a hint that lists the known words, with the most similar one first if there is one."""
    listed = f"one of {', '.join(known)}"
    close = closest(word, known)
    if close:
        return f"did you mean {close!r}? {listed}"
    return listed


def _short(text: str) -> str:
    """Return the text in quotes, truncated to 40 characters."""
    return repr(truncate_to_width(text, 40))
