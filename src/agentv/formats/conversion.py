"""A value and a type -> the value as that type, or everything that does not fit.

msgspec converts quickly, but stops at the first error. When it finds one, the value is compared with the type once
more, to find all errors and to explain them.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from agentv.errors import AgentvError, closest, nearest
from agentv.formats.yaml import TOO_DEEP, Place, Steps, read_yaml
from agentv.records import Problem, Severity

T = TypeVar("T")
MAX_MISFITS = 50


class Misfit(NamedTuple):
    """One value that does not fit its type: the steps that lead to it, and what is wrong with it."""

    steps: Steps
    message: str
    hint: str = ""
    severity: Severity = "error"

    def problem(self, file: Path, place: Place) -> Problem:
        """Return this as a problem in a file."""
        message = f"{label(self.steps)}: {self.message}" if self.steps else self.message
        return Problem(
            message=message,
            severity=self.severity,
            file=file,
            line=place.line,
            column=place.column,
            hint=self.hint,
        )


def find_misfits(value: Any, type_: Any) -> Iterator[Misfit]:
    """Yield everything in `value` that does not fit `type_`."""
    yield from _walk(value, _info(type_), ())


def convert(value: Any, type_: type[T]) -> T | list[Misfit]:
    """Return `value` as a `type_`, or the list of what does not fit."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        found = list(islice(find_misfits(value, type_), MAX_MISFITS + 1))
        if len(found) > MAX_MISFITS:
            found[-1] = Misfit((), f"more than {MAX_MISFITS} things are wrong here")
        return found or [Misfit((), str(error))]
    except RecursionError:
        return [Misfit((), TOO_DEEP)]


def read_record(path: Path, type_: type[T], error: type[AgentvError]) -> tuple[T | None, list[Problem]]:
    """Return the value of a YAML file as a `type_`, or None and everything that is wrong with it."""
    try:
        document = read_yaml(path, error)
    except AgentvError as problem:
        return None, [Problem.of(problem)]
    found = convert({} if document.value is None else document.value, type_)
    if isinstance(found, list):
        return None, [misfit.problem(path, document.place(misfit.steps)) for misfit in found]
    return found, []


def unknown_fields(value: dict[str, Any], type_: Any) -> Iterator[Misfit]:
    """Yield the fields of `value` that `type_` does not have."""
    known = field_names(type_)
    for name in value:
        if name not in known:
            yield Misfit((name,), "unknown field", nearest(name, known))


def find_typos(names: Iterable[str], type_: Any) -> Iterator[Misfit]:
    """Yield the names that are no fields of `type_`, but are similar to one."""
    known = field_names(type_)
    for name in names:
        if name not in known and (close := closest(name, known)):
            yield Misfit((name,), "unknown field", f"did you mean {close!r}?")


@cache
def field_names(type_: Any) -> frozenset[str]:
    """Return the names that the fields of a struct have in a file."""
    info = _info(type_)
    tag = [info.tag_field] if info.tag_field else []
    return frozenset([*tag, *(field.encode_name for field in info.fields)])


@cache
def takes_text(type_: Any, name: str) -> bool:
    """Return whether a field of a struct may be any string."""
    (field,) = (field for field in _info(type_).fields if field.encode_name == name)
    return any(
        isinstance(choice, inspect.StrType | inspect.AnyType) and not getattr(choice, "pattern", None)
        for choice in _choices(field.type)
    )


@cache
def inner_names(type_: Any) -> dict[str, frozenset[str]]:
    """Return the fields of a struct that hold structs, each with the names of their fields in a file."""
    choices = {field.encode_name: _choices(field.type) for field in _info(type_).fields}
    structs = {name: [c.cls for c in found if isinstance(c, inspect.StructType)] for name, found in choices.items()}
    return {name: frozenset().union(*map(field_names, found)) for name, found in structs.items() if found}


def label(steps: Steps) -> str:
    """Return the steps as text: `input_messages[0].role`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")


_info: Any = cache(inspect.type_info)

_KINDS: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    dict: "an object",
    list: "an array",
    type(None): "null",
}
_WANTED: dict[type, tuple[str, tuple[type, ...]]] = {
    inspect.StrType: ("a string", (str,)),
    inspect.BoolType: ("a boolean", (bool,)),
    inspect.IntType: ("an integer", (int,)),
    inspect.FloatType: ("a number", (int, float)),
    inspect.NoneType: ("null", (type(None),)),
    inspect.DictType: ("an object", (dict,)),
    inspect.StructType: ("an object", (dict,)),
    inspect.VarTupleType: ("an array", (list,)),
    inspect.LiteralType: ("a string", (str,)),
    inspect.AnyType: ("anything", tuple(_KINDS)),
}


def _walk(value: Any, info: Any, steps: Steps) -> Iterator[Misfit]:
    choices = _choices(info)
    fitting = [choice for choice in choices if type(value) in _WANTED[type(choice)][1]]
    if not fitting:
        yield _wrong_kind(value, choices, steps)
    elif isinstance(fitting[0], inspect.StructType):
        yield from _walk_struct(value, fitting, steps)
    else:
        yield from _walk_plain(value, fitting[0], steps, _list_kinds(choices))


def _choices(info: Any) -> tuple[Any, ...]:
    """Return the types of a union, without their descriptions."""
    bare = _bare(info)
    return tuple(_bare(choice) for choice in bare.types) if isinstance(bare, inspect.UnionType) else (bare,)


def _bare(info: Any) -> Any:
    return info.type if isinstance(info, inspect.Metadata) else info


def _wrong_kind(value: Any, choices: tuple[Any, ...], steps: Steps) -> Misfit:
    wanted = _list_kinds(choices)
    hint = "put quotes around it" if "a string" in wanted and isinstance(value, bool | int | float) else ""
    return Misfit(steps, f"expected {wanted}, got {_KINDS[type(value)]}", hint)


def _list_kinds(choices: tuple[Any, ...]) -> str:
    """Return the kinds of values that fit, as text: `a string, an object or an array`."""
    kinds = (_WANTED[type(choice)][0] for choice in choices if not _is_left_out(choice))
    names = list(dict.fromkeys(kinds))
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _is_left_out(choice: Any) -> bool:
    """Return whether a message leaves out this type: null, and `${{ VARIABLE }}`, which fit many fields."""
    return isinstance(choice, inspect.NoneType) or bool(getattr(choice, "pattern", None))


def _walk_plain(value: Any, info: Any, steps: Steps, wanted: str) -> Iterator[Misfit]:
    if (least := getattr(info, "min_length", None)) and len(value) < least:
        yield Misfit(steps, "must not be empty")
    match info:
        case inspect.LiteralType():
            if value not in info.values:
                what = f"unknown {steps[-1]}" if steps else "unknown value"
                yield Misfit(steps, f"{what} {_short(value)}", _one_of(value, info.values))
        case inspect.VarTupleType():
            for index, item in enumerate(value):
                yield from _walk(item, info.item_type, (*steps, index))
        case inspect.DictType():
            for key, item in value.items():
                yield from _walk(item, info.value_type, (*steps, key))
        case inspect.StrType():
            if info.pattern and not re.search(info.pattern, value):
                yield Misfit(
                    steps, f"expected {wanted}, got a string", "write it without quotes, or as ${{ VARIABLE }}"
                )
        case inspect.IntType() | inspect.FloatType():
            yield from _walk_number(value, info, steps)


def _walk_number(value: float, info: Any, steps: Steps) -> Iterator[Misfit]:
    if info.gt is not None and value <= info.gt:
        yield Misfit(steps, f"must be more than {info.gt}, got {value}")
    if info.ge is not None and value < info.ge:
        yield Misfit(steps, f"must be {info.ge} or more, got {value}")
    if info.le is not None and value > info.le:
        yield Misfit(steps, f"must be {info.le} or less, got {value}")


def _walk_struct(value: dict[str, Any], choices: list[Any], steps: Steps) -> Iterator[Misfit]:
    chosen = choices[0]
    if chosen.tag_field is not None:
        tags = {choice.tag: choice for choice in choices}
        tag = value.get(chosen.tag_field)
        if not isinstance(tag, str) or tag not in tags:
            yield _wrong_tag(value, chosen.tag_field, list(tags), steps)
            return
        chosen = tags[tag]
    for field in chosen.fields:
        if field.encode_name in value:
            yield from _walk(value[field.encode_name], field.type, (*steps, field.encode_name))
        elif field.required:
            yield Misfit(steps, f"missing {field.encode_name}")
    if chosen.forbid_unknown_fields:
        for found in unknown_fields(value, chosen.cls):
            yield found._replace(steps=(*steps, *found.steps))


def _wrong_tag(value: dict[str, Any], name: str, tags: list[str], steps: Steps) -> Misfit:
    if name not in value:
        return Misfit(steps, f"missing {name}", f"one of {', '.join(tags)}")
    if not isinstance(value[name], str):
        return _wrong_kind(value[name], (inspect.StrType(),), (*steps, name))
    return Misfit((*steps, name), f"unknown {name} {_short(value[name])}", _one_of(value[name], tags))


def _one_of(word: str, known: Any) -> str:
    close = closest(word, known)
    return f"{f'did you mean {close!r}? ' if close else ''}one of {', '.join(known)}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
