"""Convert promptfoo assertions to evaluator settings, or explain why an assertion has no counterpart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from agentv.errors import AgentvError, ConfigError
from agentv.evaluators import evaluator_type
from agentv.files.conversion import convert, label
from agentv.files.wire import text_of
from agentv.files.yaml import parse_yaml
from agentv.importers.promptfoo.node import DATA, FILE, PROGRAMS, read_node, read_text, referenced_suffix
from agentv.protocols import EvaluatorContext
from agentv.records import Json

TEXTS = {
    "contains": "contains",
    "icontains": "icontains",
    "starts-with": "starts_with",
    "regex": "regex",
    "equals": "equals",
}
"""Assertions whose value is one text, with agentv's names."""
LISTS = {
    "contains-all": ("contains", "all"),
    "contains-any": ("contains", "any"),
    "icontains-all": ("icontains", "all"),
    "icontains-any": ("icontains", "any"),
}
"""Assertions whose value is a list of texts, with agentv's names and their `require` setting."""
RUBRICS = ("llm-rubric", "model-graded-closedqa", "g-eval")
LIMITS = {
    "latency": ("latency", "threshold"),
    "cost": ("cost", "budget"),
}
"""Assertions whose threshold is a limit, with agentv's names and the setting for the limit."""
OPPOSITE = {"all": "any", "any": "all"}
CODE = ("javascript", "python", "ruby", "webhook")
KNOWN = (
    "type",
    "value",
    "threshold",
    "weight",
    "metric",
    "provider",
    "rubricPrompt",
    "config",
)
NEGATED = "not-"
COMPILED = ("regex", "json_schema")
"""Evaluators that validate their settings beyond their types when they are opened."""
_NO_CONTEXT = cast(EvaluatorContext, None)
"""The evaluators in `COMPILED` do not use the context that they are opened with."""


class NoCounterpart(Exception):
    """agentv has no equivalent evaluator. The message gives the reason."""


def evaluator_of(assertion: Json, folder: Path) -> Json:
    """Return the settings of the equivalent evaluator. Raise `NoCounterpart` if there is none."""
    for name in assertion:
        if name not in KNOWN:
            raise NoCounterpart(f"it has {name!r}")
    type_ = text_of(assertion.get("type"))
    value = _value(assertion.get("value"), folder)
    settings = _settings(type_.removeprefix(NEGATED), value, assertion)
    if type_.startswith(NEGATED):
        settings["negate"] = True
        if "require" in settings:
            # agentv negates each value, promptfoo the whole assertion.
            settings["require"] = OPPOSITE[settings["require"]]
    _check(settings)

    evaluator: Json = {"type": settings.pop("type")}
    metric = assertion.get("metric")
    if isinstance(metric, str) and metric:
        evaluator["name"] = metric
    weight = assertion.get("weight")
    if isinstance(weight, int | float) and weight != 1:
        evaluator["weight"] = weight
    return evaluator | settings


def lost_settings(assertion: Json) -> Iterator[str]:
    """Yield the settings of an assertion that its equivalent evaluator does not have."""
    for name in ("provider", "rubricPrompt", "config"):
        if name in assertion:
            yield name
    if "threshold" in assertion and text_of(assertion.get("type")) in RUBRICS:
        yield "threshold"


def _settings(type_: str, value: Any, assertion: Json) -> Json:
    """Return the settings of the evaluator for an assertion type. Raise `NoCounterpart` if there is none."""
    if type_ in TEXTS:
        return {"type": TEXTS[type_], "value": _text(value)}
    if type_ in LISTS:
        name, require = LISTS[type_]
        return {"type": name, "value": _texts(value), "require": require}
    if type_ == "is-json":
        if value is None:
            return {"type": "is_json"}
        return {"type": "json_schema", "schema": _schema(value)}
    if type_ in LIMITS:
        name, limit = LIMITS[type_]
        return {"type": name, limit: assertion.get("threshold")}
    if type_ in RUBRICS:
        if not isinstance(value, list):
            value = [value]
        rubrics = [_text(rubric) for rubric in value]
        return {"type": "rubric", "rubrics": rubrics}
    if type_ in CODE:
        raise NoCounterpart("it runs code in promptfoo")
    raise NoCounterpart("agentv has no such evaluator")


def _value(value: Any, folder: Path) -> Any:
    """Return the value of an assertion. Read it if it is in a file."""
    if not isinstance(value, str) or not value.startswith(FILE):
        return value
    path = folder / value.removeprefix(FILE)
    suffix = referenced_suffix(path)
    if suffix in PROGRAMS:
        raise NoCounterpart(f"its value is a program: {value}")
    try:
        if suffix in DATA:
            return read_node(path).value
        return read_text(path).strip()
    except AgentvError as error:
        raise NoCounterpart(f"its value cannot be read: {error}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise NoCounterpart("its value is not a string")
    return text_of(value)


def _texts(value: Any) -> list[str]:
    """Return a list of texts, which may be written as one text with commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not value:
        raise NoCounterpart("its value is not a list")
    return [_text(part) for part in value]


def _schema(value: Any) -> Any:
    """Return a JSON Schema, which may be written as YAML or JSON in a text."""
    if isinstance(value, str):
        try:
            value = parse_yaml(value, Path("schema"), AgentvError).value
        except AgentvError as error:
            raise NoCounterpart(f"its schema cannot be read: {error.message}") from None
    if not isinstance(value, dict):
        raise NoCounterpart("its schema is not an object")
    return value


def _check(settings: Json) -> None:
    """Raise `NoCounterpart` if the evaluator does not accept the settings."""
    own = dict(settings)
    type_ = own.pop("type")
    own.pop("negate", None)
    converted = convert(own, evaluator_type(type_))
    if isinstance(converted, list):
        misfit = converted[0]
        reason = misfit.message
        if misfit.steps:
            reason = f"{label(misfit.steps)}: {reason}"
        raise NoCounterpart(reason)
    if type_ in COMPILED:
        try:
            converted.open(_NO_CONTEXT)
        except ConfigError as error:
            raise NoCounterpart(error.message) from None
