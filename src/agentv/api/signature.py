"""Give functions the parameters of another function, so that a long signature is written only once."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from agentv.api.arguments import Arguments

P = ParamSpec("P")
R = TypeVar("R")
_TakesArguments = Callable[[Arguments], R]
"""A function whose only parameter is a mapping of arguments by name."""


def same_parameters(template: Callable[P, object]) -> Callable[[_TakesArguments[R]], Callable[P, R]]:
    """Give a function that takes a mapping of arguments the parameters of another function."""
    signature = inspect.signature(template)

    def decorate(function: _TakesArguments[R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            bound.apply_defaults()
            return function(bound.arguments)

        returned = inspect.signature(function).return_annotation
        annotations = dict(template.__annotations__)
        annotations["return"] = returned
        shown: Any = call
        shown.__signature__ = signature.replace(return_annotation=returned)
        shown.__annotations__ = annotations
        return call

    return decorate
