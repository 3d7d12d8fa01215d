"""Templates with `{{ variables }}` -> text. Of Nunjucks, all but plain variables is left as it stands, and told of."""

import json
import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from agentv.formats.wire import text_of

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
"""Values of variables may name other variables."""
Complain = Callable[[str], None]


def fill(value: Any, variables: Mapping[str, Any], complain: Complain) -> Any:
    """Return a value with the variables in its texts filled in; what cannot be filled in is complained of."""
    if isinstance(value, str):
        return _TAG.sub(lambda found: _replace(found, variables, complain), value)
    if isinstance(value, list):
        return [fill(item, variables, complain) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, variables, complain) for key, item in value.items()}
    return value


def _replace(found: re.Match[str], variables: Mapping[str, Any], complain: Complain) -> str:
    if found[2] is not None:
        complain(f"the template tag {found[2]!r} has no counterpart: it is left as it stands")
        return found[0]
    name, *filters = [part.strip() for part in found[1].split("|")]
    unknown = [filter_ for filter_ in filters if filter_ not in _FILTERS]
    variable = _VARIABLE.fullmatch(name)
    if unknown or variable is None:
        complain(f"the template {found[0]!r} has no counterpart: it is left as it stands")
        return found[0]
    try:
        value = _look_up(variables, variable)
    except LookupError:
        complain(f"the variable {name!r} has no value: {found[0]!r} is left as it stands")
        return found[0]
    for filter_ in filters:
        value = _FILTERS[filter_](value)
    return text_of(value)


def _look_up(variables: Mapping[str, Any], variable: re.Match[str]) -> Any:
    value = variables[variable[1]]
    for step in _STEP.finditer(variable[2]):
        name, index, *quoted = step.groups()
        try:
            value = value[int(index)] if index is not None else value[name or quoted[0] or quoted[1]]
        except TypeError:
            raise LookupError from None
    return value


def fill_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables whose values name others, with those filled in."""
    found = dict(variables)
    for _ in range(MAX_DEPTH):
        filled = {name: fill(value, found, lambda _: None) for name, value in found.items()}
        if filled == found:
            break
        found = filled
    return found


def combinations(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variables once for each combination of those that are lists."""
    choices = [value if isinstance(value, list) and value else [value] for value in variables.values()]
    return [dict(zip(variables, each, strict=True)) for each in product(*choices)]
