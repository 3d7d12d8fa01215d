"""Load extensions from the entry points of installed packages.

Errors in their code are reported before the run starts, with the name of the package, not as bugs in agentv.
"""

from collections.abc import Callable
from typing import Any

from agentv.errors import AgentvError, ConfigError
from agentv.processes.threads import describe_error


def extension_names(group: str) -> list[str]:
    """Return the names that installed packages register in a group."""
    from importlib.metadata import entry_points

    return [entry.name for entry in entry_points(group=group)]


def load_extension(group: str, name: str, base: type) -> Any | None:
    """Return the class that an installed package registers under this name in a group, or None.

    Raise `ConfigError` if it cannot be loaded, or is not a subclass of `base`.
    """
    from importlib.metadata import entry_points

    entry = next(iter(entry_points(group=group, name=name)), None)
    if entry is None:
        return None
    package = "?"
    if entry.dist:
        package = entry.dist.name
    extension = f"{name!r} of the package {package!r}"
    try:
        found = entry.load()
    except Exception as error:
        raise ConfigError(f"{extension} cannot be loaded: {describe_error(error)}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        hint = f"the entry point is {entry.value}; it must be a subclass of {_name(base)}"
        raise ConfigError(f"{extension} cannot be used", hint=hint)
    return found


def open_settings(settings: Any, open_: Callable[[], Any] | None, *methods: str) -> Any:
    """Return the value of `open_()`, or the settings themselves if `open_` is None.

    Raise `ConfigError` if the object has none of the methods.
    """
    found = settings
    if open_ is not None:
        found = _open(settings, open_)
    if not any(hasattr(found, method) for method in methods):
        wanted = " or ".join(f"'{method}'" for method in methods)
        raise ConfigError(f"{_name(type(settings))} returned {type(found).__name__}, which has no method {wanted}")
    return found


def _open(settings: Any, open_: Callable[[], Any]) -> Any:
    try:
        return open_()
    except AgentvError:
        raise
    except Exception as error:
        name = _name(type(settings))
        # An exception in agentv's own code is a bug and keeps its traceback.
        if name.startswith("agentv."):
            raise
        raise ConfigError(f"{name} cannot be opened: {describe_error(error)}") from error


def _name(type_: type) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"
