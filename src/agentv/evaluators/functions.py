"""Evaluators that are Python functions, given as objects."""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, overload

from agentv.errors import ConfigError
from agentv.providers.user_functions import FunctionSpec
from agentv.records import Json
from agentv.versions.functions import UnknownVersion, function_version
from agentv.versions.modules import current_function

P = ParamSpec("P")
R = TypeVar("R")
_numbers = itertools.count(1)


class FunctionEvaluator(Generic[P, R]):
    """A function that scores answers, with its name, weight and requirement. It can be called like the function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        weight: float = 1.0,
        required: bool | float = False,
    ):
        if not callable(function):
            raise ConfigError(
                f"evaluator: {function!r} is not a function",
                hint="write @agentv.evaluator, or @agentv.evaluator(weight=...)",
            )
        self.function = function
        self.name = name or _name_of(function)
        self.weight = weight
        self.required = required
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<evaluator {self.name}>"


@overload
def evaluator(
    function: Callable[P, R],
    *,
    name: str | None = None,
    weight: float = 1.0,
    required: bool | float = False,
) -> FunctionEvaluator[P, R]: ...


@overload
def evaluator(
    *,
    name: str | None = None,
    weight: float = 1.0,
    required: bool | float = False,
) -> Callable[[Callable[P, R]], FunctionEvaluator[P, R]]: ...


def evaluator(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    weight: float = 1.0,
    required: bool | float = False,
) -> Any:
    """Make an evaluator of a function: `@agentv.evaluator`, or `@agentv.evaluator(weight=0)`.

    The parameters of the function choose what it receives, as for evaluators of the type `python`. `weight` and
    `required` are the settings that all evaluators have.
    """
    if function is None:
        return functools.partial(FunctionEvaluator, name=name, weight=weight, required=required)
    return FunctionEvaluator(function, name=name, weight=weight, required=required)


def evaluator_settings(value: Any) -> Any:
    """Return the settings of an evaluator that is a function, and anything else unchanged."""
    if isinstance(value, Mapping):
        function = value.get("function")
        if not callable(function):
            return value
        if isinstance(function, FunctionEvaluator):
            return {**_settings_of(function), **value, "function": function_spec(function.function)}
        return {"name": _name_of(function), **value, "function": function_spec(function)}
    if isinstance(value, FunctionEvaluator):
        return _settings_of(value)
    if callable(value):
        return _settings_of(FunctionEvaluator(value))
    return value


def default_evaluators(values: Any) -> list[Json]:
    """Return the settings of evaluators given as mappings and functions. Raise `ConfigError` for anything else."""
    if values is None:
        return []
    if callable(values) or isinstance(values, Mapping | str):
        given = repr(values)
        if callable(values):
            given = f"a {type(values).__name__}"
        raise ConfigError(f"evaluators is {given}", hint="pass a list, even if there is only one evaluator")
    found = []
    for index, value in enumerate(values):
        settings = evaluator_settings(value)
        if not isinstance(settings, Mapping):
            raise ConfigError(
                f"evaluators[{index}] is {value!r}",
                hint="pass a function, agentv.evaluator(function), or settings such as {'type': 'contains'}",
            )
        found.append(dict(settings))
    return found


def _settings_of(evaluator: "FunctionEvaluator[..., Any]") -> Json:
    return {
        "type": "python",
        "name": evaluator.name,
        "weight": evaluator.weight,
        "required": evaluator.required,
        "function": function_spec(evaluator.function),
    }


def function_spec(function: Callable[..., Any]) -> FunctionSpec:
    """Return a function as a setting. Functions with equal settings score alike."""
    function = current_function(function)
    name = _name_of(function)
    try:
        text = f"{name} {function_version(function)}"
    except UnknownVersion:
        # Only this process knows which objects the function uses, so its number is not part of digests.
        version = f"{name} {function_version(function, is_strict=False)}"
        return FunctionSpec.of(function, f"{version} {next(_numbers)}", version)
    return FunctionSpec.of(function, text, text)


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    return str(name)
