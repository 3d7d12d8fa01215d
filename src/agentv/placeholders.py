"""Text with placeholders: `{{ name }}` is replaced with a value. Templates contain neither logic nor code.

Cases, settings of evaluators, judge prompts and `http` targets share this syntax. Spaces inside the braces are
optional, and inserted text is not expanded again. A text that is exactly one placeholder takes the value with its type;
in other texts, a value that is not a string is rendered as JSON. `\\{{ vars.x }}` and `\\{{ state.x }}` are literal.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from agentv.errors import nearest

PLACEHOLDER = re.compile(r"(?P<escape>\\)?\{\{\s*(?P<name>[^{}]*?)\s*\}\}")
VARS = "vars"
STATE = "state"
_PREFIXES = (f"{VARS}.", f"{STATE}.")
Steps = tuple[str | int, ...]
"""The keys and indexes that lead to a string in a JSON value."""
ValueOf = Callable[[str], Any]
"""Return the value of a placeholder by its name, or `KEEP`."""
FillOne = Callable[[str, Steps], Any]
"""Return what replaces a string with placeholders, given the steps that lead to it."""


class _Keep:
    """The type of `KEEP`."""


KEEP = _Keep()
"""Returned instead of a value to leave the placeholder unchanged."""


class UnknownName(LookupError):
    """A placeholder names a variable that does not exist. The message names it; the hint suggests a similar one."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint

    def of_case(self, id_: str) -> "UnknownName":
        """Return the error for a placeholder that several cases share; its message names one of them."""
        return UnknownName(f"{self} in case {id_!r}", self.hint)


def _unknown(name: str, known: Sequence[str]) -> UnknownName:
    scope, _, path = name.partition(".")
    if known:
        hint = nearest(path, known, "variables")
    elif scope == STATE:
        hint = "a hook has to return it"
    else:
        hint = "add it to 'vars' of the case, or of its file"
    placeholder = "{{ " + name + " }}"
    return UnknownName(f"unknown variable {placeholder}", hint)


def names_in(text: str) -> Iterator[str]:
    """Yield the names of the placeholders in a text, except for literal ones."""
    for found in PLACEHOLDER.finditer(text):
        if not _is_literal(found):
            yield found["name"]


def texts_in(value: Any, steps: Steps = ()) -> Iterator[tuple[Steps, str]]:
    """Yield the strings in a JSON value that contain placeholders, each with the steps that lead to it."""
    if isinstance(value, str):
        if "{{" in value:
            yield steps, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            to_inner = (*steps, key)
            yield from texts_in(inner, to_inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            to_inner = (*steps, index)
            yield from texts_in(inner, to_inner)


def fill_value(text: str, value_of: ValueOf) -> Any:
    """Return a text with its placeholders replaced, or the value of the only placeholder that it consists of."""
    whole = PLACEHOLDER.fullmatch(text)
    if whole is not None and not _is_literal(whole):
        value = value_of(whole["name"])
        if value is KEEP:
            return text
        return value
    return fill_text(text, value_of)


def fill_text(text: str, value_of: ValueOf) -> str:
    """Return a text with its placeholders replaced in one pass, so that inserted text is not expanded again."""

    def replacement(found: re.Match[str]) -> str:
        if _is_literal(found):
            return found[0].removeprefix("\\")
        value = value_of(found["name"])
        if value is KEEP:
            return found[0]
        backslash = found["escape"] or ""  # one that escapes nothing is kept
        return backslash + as_text(value)

    return PLACEHOLDER.sub(replacement, text)


class RepeatedTexts:
    """Texts whose placeholders are found once and filled for many cases.

    This is faster than `fill_value`, but only possible if all variables in the texts are strings or integers.
    """

    def __init__(self, texts: Iterable[str]):
        self._formats: list[str] = []
        names: list[str] = []
        for text in texts:
            format_, names_in_text = _format(text)
            self._formats.append(format_)
            names.extend(names_in_text)
        if not names:
            names.append("")  # no variable has this name, so that `fill` returns None
        distinct = dict.fromkeys(names)
        self._is_usable = ")" not in "".join(distinct)
        self._used = itemgetter(*distinct, names[0])  # at least two names, so that it returns a tuple

    def fill(self, values: Mapping[str, Any]) -> list[str] | None:
        """Return the texts with these values inserted, or None if this needs `fill_value`."""
        if not self._is_usable:
            return None
        try:
            used = self._used(values)
            types = map(type, used)
            if not _PLAIN.issuperset(types):
                return None
            return [format_ % values for format_ in self._formats]
        except KeyError:  # a path into a value
            return None


_PLAIN = frozenset((str, int))
"""The types of values that `%s` renders as `as_text` does."""


def _format(text: str) -> tuple[str, list[str]]:
    """Return a text as a format for `%` with a mapping of variables, and the names of these variables."""
    pieces = []
    names = []
    end = 0
    for found in PLACEHOLDER.finditer(text):
        before = text[end : found.start()]
        pieces.append(_escape_format(before))
        end = found.end()
        scope, _, path = found["name"].partition(".")
        is_variable = scope == VARS and path != ""
        is_escaped = found["escape"] is not None
        if is_variable and not is_escaped:
            names.append(path)
            pieces.append(f"%({path})s")
        else:
            unchanged = fill_text(found[0], _keep)
            pieces.append(_escape_format(unchanged))
    after = text[end:]
    pieces.append(_escape_format(after))
    return "".join(pieces), names


def _escape_format(text: str) -> str:
    return text.replace("%", "%%")


def _keep(_name: str) -> _Keep:
    return KEEP


def fill_all(value: Any, fill_one: FillOne, steps: Steps = ()) -> Any:
    """Return a JSON value in which `fill_one` has replaced each string that may have placeholders.

    Keys of objects stay unchanged.
    """
    if isinstance(value, str) and "{{" in value:
        return fill_one(value, steps)
    if isinstance(value, dict):
        mapping = {}
        for key, inner in value.items():
            to_inner = (*steps, key)
            mapping[key] = fill_all(inner, fill_one, to_inner)
        return mapping
    if isinstance(value, list | tuple):
        items = []
        for index, inner in enumerate(value):
            to_inner = (*steps, index)
            items.append(fill_all(inner, fill_one, to_inner))
        return items
    return value


def as_text(value: Any) -> str:
    """Return a value as text for insertion into a text: a string verbatim, anything else as JSON."""
    if isinstance(value, str):
        return value
    encoded = msgspec.json.encode(value)
    return encoded.decode()


def lookup(name: str, scope: str, values: Mapping[str, Any] | None) -> Any:
    """Return the value of a placeholder such as `vars.user.name`, or `KEEP` if its name is not in this scope.

    Raise `UnknownName` if the value does not exist. A variable may have a dot in its name, as a column of a table may.
    """
    prefix, _, path = name.partition(".")
    if prefix != scope or not path:
        return KEEP
    if values is None:
        values = {}
    found = _follow(values, path)
    if found is KEEP:
        known = list(values)
        raise _unknown(name, known)
    return found


def top_name(name: str, values: Mapping[str, Any]) -> str:
    """Return the variable that a placeholder such as `vars.user.name` refers to: `user`."""
    _, _, path = name.partition(".")
    if path in values:
        return path
    variable, _, _ = path.partition(".")
    return variable


def _follow(value: Any, path: str) -> Any:
    """Return the value at the end of a dotted path, or `KEEP` if there is none."""
    if isinstance(value, Mapping) and path in value:
        return value[path]
    step, dot, rest = path.partition(".")
    inner = _take(value, step)
    if not dot or inner is KEEP:
        return inner
    return _follow(inner, rest)


def _take(value: Any, step: str) -> Any:
    """Return the value of a key of a mapping, or the item at an index of a list; `KEEP` if there is none."""
    if isinstance(value, Mapping):
        return value.get(step, KEEP)
    if not isinstance(value, list | tuple):
        return KEEP
    if not step.isdecimal():
        return KEEP
    index = int(step)
    if index >= len(value):
        return KEEP
    return value[index]


def _is_literal(found: re.Match[str]) -> bool:
    """Return whether a backslash makes a placeholder literal. Only those of variables and of state can be escaped."""
    if found["escape"] is None:
        return False
    return found["name"].startswith(_PREFIXES)
