"""Replace `{{ vars.NAME }}` in the messages and the expectation of a case.

Evaluators are expanded where they are built, because several cases share those of their file.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentv.cases.schema import MESSAGE_FIELDS
from agentv.files.conversion import Misfit
from agentv.placeholders import VARS, Steps, UnknownName, as_text, fill_all, fill_value, lookup, texts_in
from agentv.records import Json

EXPANDED_FIELDS = ("expected_outcome", "outcome", *MESSAGE_FIELDS)
"""The fields of a raw case in which variables are replaced when it is read."""


class Expanded(NamedTuple):
    """Some fields of a case with their variables replaced, and the variables that do not exist."""

    fields: Json
    misfits: list[Misfit]


def fields_with_variables(written: Mapping[str, Any]) -> Json:
    """Return the fields of a case in which variables have to be replaced."""
    fields = {}
    for name in EXPANDED_FIELDS:
        value = written.get(name)
        if value is not None and any("vars." in text for _, text in texts_in(value)):
            fields[name] = value
    return fields


def expand_fields(fields: Json, values: Mapping[str, Any] | None) -> Expanded:
    """Return the fields with their variables replaced."""
    misfits: list[Misfit] = []

    def value_of(name: str) -> Any:
        return lookup(name, VARS, values)

    def expand(text: str, steps: Steps) -> Any:
        try:
            filled = fill_value(text, value_of)
        except UnknownName as unknown:
            misfits.append(Misfit(steps, str(unknown), unknown.hint))
            return text
        if isinstance(filled, int | float) and _is_text(steps):
            return as_text(filled)
        return filled

    return Expanded(fill_all(fields, expand), misfits)


def _is_text(steps: Steps) -> bool:
    """Return whether a field, the content of a message, or a block of it, is a text and cannot be a number."""
    match steps:
        case (_,):  # such as `input`
            return True
        case (_, _, "content"):  # such as `input_messages`, 0, `content`
            return True
        case (_, _, "content", _, "content" | "value"):
            return True
    return False
