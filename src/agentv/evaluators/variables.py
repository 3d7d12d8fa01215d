"""Replace the variables of a case in the settings of an evaluator."""

from typing import Any, NamedTuple

from agentv.files.conversion import Misfit, field_names, takes_number, takes_text
from agentv.files.yaml import Steps
from agentv.placeholders import UnknownName, ValueOf, as_text, fill_all, fill_value
from agentv.protocols import EvaluatorSettings
from agentv.records import Json


class FilledSettings(NamedTuple):
    """Settings with their variables replaced, and the variables that do not exist."""

    config: Json
    misfits: list[Misfit]


def fill_settings(config: Json, type_: type[EvaluatorSettings], variable: ValueOf) -> FilledSettings:
    """Return the settings of an evaluator with the variables of its case, except for its `templates`."""
    misfits: list[Misfit] = []

    def fill_one(text: str, steps: Steps) -> Any:
        is_template = any(steps[: len(template)] == template for template in type_.templates)
        if is_template:
            return text
        try:
            filled = fill_value(text, variable)
        except UnknownName as unknown:
            misfits.append(Misfit(steps, str(unknown), unknown.hint))
            return text
        if isinstance(filled, int | float) and _must_be_text(type_, steps):
            return as_text(filled)
        return filled

    return FilledSettings(fill_all(config, fill_one), misfits)


def _must_be_text(type_: type[EvaluatorSettings], steps: Steps) -> bool:
    """Return whether a setting cannot be a number, such as the `value` of `contains`: a number becomes text there."""
    name = str(steps[0])
    if steps == ("name",):
        return True
    if len(steps) != 1 or name not in field_names(type_):
        return False
    return takes_text(type_, name) and not takes_number(type_, name)
