"""Fill in `{{ variables }}` of Nunjucks templates. All other syntax is reported and kept verbatim."""

import json
import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from agentv.files.wire import text_of
from agentv.log import ignore

_TAG = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}|(\{%.*?%\})", re.DOTALL)
_VARIABLE = re.compile(r"([A-Za-z_$][\w$-]*)((?:\.[\w$-]+|\[\d+\]|\[(?:'[^']*'|\"[^\"]*\")\])*)")
_STEP = re.compile(r"\.([\w$-]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_FILTERS: dict[str, Callable[[Any], Any]] = {
    "safe": lambda value: value,
    "trim": lambda value: text_of(value).strip(),
    "lower": lambda value: text_of(value).lower(),
    "upper": lambda value: text_of(value).upper(),
    "dump": lambda value: json.dumps(value, ensure_ascii=False),
}
MAX_DEPTH = 5
"""How many times variables in the values of variables are filled in."""
Complain = Callable[[str], None]


def fill(value: Any, variables: Mapping[str, Any], complain: Complain) -> Any:
    """Return a value with the variables in its texts filled in. Pass what cannot be filled in to `complain`."""
    if isinstance(value, str):
        return _TAG.sub(lambda tag: _replace(tag, variables, complain), value)
    if isinstance(value, list):
        return [fill(item, variables, complain) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, variables, complain) for key, item in value.items()}
    return value


def fill_quietly(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value with the variables in its texts filled in. Keep what cannot be filled in."""
    return fill(value, variables, ignore)


def _replace(
    tag: re.Match[str],
    variables: Mapping[str, Any],
    complain: Complain,
) -> str:
    """Return the text that a template tag stands for, or the tag itself if it cannot be filled in."""
    expression, block = tag.groups()
    if block is not None:
        complain(f"the template tag {block!r} has no counterpart and is kept unchanged")
        return tag[0]
    name, *filters = [part.strip() for part in expression.split("|")]
    variable = _VARIABLE.fullmatch(name)
    has_unknown_filter = any(filter_ not in _FILTERS for filter_ in filters)
    if has_unknown_filter or variable is None:
        complain(f"the template {tag[0]!r} has no counterpart and is kept unchanged")
        return tag[0]
    try:
        value = _look_up(variables, variable)
    except LookupError:
        complain(f"the variable {name!r} has no value: {tag[0]!r} is kept unchanged")
        return tag[0]
    for filter_ in filters:
        value = _FILTERS[filter_](value)
    return text_of(value)


def _look_up(variables: Mapping[str, Any], variable: re.Match[str]) -> Any:
    """Return the value of a variable such as `user.names[0]`. Raise `LookupError` if it has none."""
    root, path = variable.groups()
    value = variables[root]
    for step in _STEP.finditer(path):
        attribute, index, single_quoted, double_quoted = step.groups()
        key = attribute or single_quoted or double_quoted
        if index is not None:
            key = int(index)
        try:
            value = value[key]
        except TypeError:
            raise LookupError from None
    return value


def fill_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables, with those that are named in values of others filled in."""
    found = dict(variables)
    for _ in range(MAX_DEPTH):
        filled = {name: fill_quietly(value, found) for name, value in found.items()}
        if filled == found:
            break
        found = filled
    return found


def combinations(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variables once for each combination of the items of those that are lists."""
    choices = []
    for value in variables.values():
        if isinstance(value, list) and value:
            choices.append(value)
        else:
            choices.append([value])
    found = []
    for values in product(*choices):
        combination = dict(zip(variables, values, strict=True))
        found.append(combination)
    return found
