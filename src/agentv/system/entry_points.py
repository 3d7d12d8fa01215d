"""An entry point of an installed package -> the kind of target or evaluator that it brings.

That code is not ours: what goes wrong in it is told in its name, before anything runs, and is no bug of agentv.
"""

from collections.abc import Callable
from typing import Any

from agentv.errors import AgentvError, ConfigError
from agentv.system.threads import describe_error


def extension_names(group: str) -> list[str]:
    """Return the names that installed packages add to a group."""
    from importlib.metadata import entry_points

    return [entry.name for entry in entry_points(group=group)]


def load_extension(group: str, name: str, base: type) -> Any | None:
    """Return the class that an installed package adds to a group under this name; None if there is none."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=name):
        brought = f"{name!r}, which comes with the package {entry.dist.name if entry.dist else '?'!r},"
        try:
            found = entry.load()
        except Exception as error:
            raise ConfigError(f"{brought} cannot be loaded: {describe_error(error)}") from error
        if not (isinstance(found, type) and issubclass(found, base)):
            hint = f"the entry point leads to {entry.value}; it should lead to a subclass of {_name(base)}"
            raise ConfigError(f"{brought} cannot be used", hint=hint)
        return found
    return None


def open_settings(settings: Any, open_: Callable[[], Any] | None, *methods: str) -> Any:
    """Return what `open_` returns, or the settings themselves without it.

    Raise `ConfigError` if the object has none of the methods.
    """
    try:
        found = open_() if open_ is not None else settings
    except AgentvError:
        raise
    except Exception as error:
        if _name(type(settings)).startswith("agentv."):
            raise
        raise ConfigError(f"{_name(type(settings))} cannot be opened: {describe_error(error)}") from error
    if not any(hasattr(found, method) for method in methods):
        wanted = " or ".join(f"'{method}'" for method in methods)
        raise ConfigError(f"{_name(type(settings))} gave {type(found).__name__}, which has no {wanted}")
    return found


def _name(type_: type) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"
