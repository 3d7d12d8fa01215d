"""An assertion of promptfoo -> the settings of an evaluator, or why it has no counterpart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from agentv.errors import AgentvError, ConfigError
from agentv.evaluators import evaluator_type
from agentv.formats.conversion import convert, label
from agentv.formats.wire import text_of
from agentv.formats.yaml import parse_yaml
from agentv.importers.promptfoo.node import DATA, FILE, PROGRAMS, read_node, read_text
from agentv.protocols import EvaluatorContext
from agentv.records import Json

TEXTS = {"contains": "contains", "icontains": "icontains", "starts-with": "starts_with", "regex": "regex"}
LISTS = {
    "contains-all": ("contains", "all"),
    "contains-any": ("contains", "any"),
    "icontains-all": ("icontains", "all"),
    "icontains-any": ("icontains", "any"),
}
RUBRICS = ("llm-rubric", "model-graded-closedqa", "g-eval")
LIMITS = {"latency": ("latency", "threshold"), "cost": ("cost", "budget")}
OPPOSITE = {"all": "any", "any": "all"}
CODE = ("javascript", "python", "ruby", "webhook")
KNOWN = ("type", "value", "threshold", "weight", "metric", "provider", "rubricPrompt", "config")
NEGATED = "not-"
COMPILED = ("regex", "json_schema")
"""Evaluators whose settings may be wrong in ways that their types do not tell."""


class NoCounterpart(Exception):
    """agentv has no evaluator that does the same. The text says why."""


def evaluator_of(assertion: Json, folder: Path) -> Json:
    """Return the settings of an evaluator; raise `NoCounterpart` if there is none that does the same."""
    type_ = text_of(assertion.get("type"))
    for name in assertion:
        if name not in KNOWN:
            raise NoCounterpart(f"it has {name!r}")
    settings = _settings(type_.removeprefix(NEGATED), _value(assertion.get("value"), folder), assertion)
    if type_.startswith(NEGATED):
        settings["negate"] = True
        if "require" in settings:  # of ours, each value is negated, and not the whole
            settings["require"] = OPPOSITE[settings["require"]]
    _check(settings)
    common: Json = {}
    if isinstance(metric := assertion.get("metric"), str) and metric:
        common["name"] = metric
    if isinstance(weight := assertion.get("weight"), int | float) and weight != 1:
        common["weight"] = weight
    return {"type": settings.pop("type"), **common, **settings}


def lost_settings(assertion: Json) -> Iterator[str]:
    """Yield the settings of an assertion that has a counterpart which that counterpart does not have."""
    yield from (name for name in ("provider", "rubricPrompt", "config") if name in assertion)
    if "threshold" in assertion and text_of(assertion.get("type")) in RUBRICS:
        yield "threshold"


def _settings(type_: str, value: Any, assertion: Json) -> Json:
    if type_ in TEXTS:
        return {"type": TEXTS[type_], "value": _text(value)}
    if type_ == "equals":
        return {"type": "equals", "value": _text(value)}
    if type_ in LISTS:
        name, require = LISTS[type_]
        values = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(values, list) or not values:
            raise NoCounterpart("its value is no list")
        return {"type": name, "value": [_text(each) for each in values], "require": require}
    if type_ == "is-json":
        return {"type": "is_json"} if value is None else {"type": "json_schema", "schema": _schema(value)}
    if type_ in LIMITS:
        name, limit = LIMITS[type_]
        return {"type": name, limit: assertion.get("threshold")}
    if type_ in RUBRICS:
        items = value if isinstance(value, list) else [value]
        return {"type": "rubric", "rubrics": [_text(item) for item in items]}
    raise NoCounterpart("it is code for promptfoo" if type_ in CODE else "agentv has no such evaluator")


def _value(value: Any, folder: Path) -> Any:
    """Return the value of an assertion; that of one in a file is read."""
    if not isinstance(value, str) or not value.startswith(FILE):
        return value
    path = folder / value.removeprefix(FILE)
    suffix = Path(path.name.partition(":")[0]).suffix.lower()
    if suffix in PROGRAMS:
        raise NoCounterpart(f"its value is a program: {value}")
    try:
        return read_node(path).value if suffix in DATA else read_text(path).strip()
    except AgentvError as error:
        raise NoCounterpart(f"its value cannot be read: {error}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise NoCounterpart("its value is no text")
    return text_of(value)


def _schema(value: Any) -> Any:
    """Return a schema, which may be written as a text of YAML or JSON."""
    if isinstance(value, str):
        try:
            value = parse_yaml(value, Path("schema"), AgentvError).value
        except AgentvError as error:
            raise NoCounterpart(f"its schema cannot be read: {error.message}") from None
    if not isinstance(value, dict):
        raise NoCounterpart("its schema is no object")
    return value


def _check(settings: Json) -> None:
    """Raise `NoCounterpart` if the settings are not what the evaluator takes."""
    own = {name: value for name, value in settings.items() if name not in ("type", "negate")}
    found = convert(own, evaluator_type(settings["type"]))
    if isinstance(found, list):
        first = found[0]
        raise NoCounterpart(f"{label(first.steps)}: {first.message}" if first.steps else first.message)
    if settings["type"] in COMPILED:
        try:
            found.open(_NO_CONTEXT)
        except ConfigError as error:
            raise NoCounterpart(error.message) from None


_NO_CONTEXT = cast(EvaluatorContext, None)
"""Those that are compiled are so without a context."""
