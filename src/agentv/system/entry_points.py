"""An entry point of an installed package -> the kind of target or evaluator that it brings.

That code is not ours: what goes wrong in it is told in its name, before anything runs, and is no bug of agentv.
"""

from typing import Any

from agentv.errors import AgentvError, ConfigError
from agentv.system.threads import words


def extension_names(group: str) -> list[str]:
    """What installed packages bring to a group."""
    from importlib.metadata import entry_points

    return [entry.name for entry in entry_points(group=group)]


def extension(group: str, name: str, base: type) -> Any | None:
    """The class that an installed package brings to a group under this name, if there is one."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=name):
        brought = f"{name!r}, which comes with the package {entry.dist.name if entry.dist else '?'!r},"
        try:
            found = entry.load()
        except Exception as error:
            raise ConfigError(f"{brought} cannot be loaded: {words(error)}") from error
        if not (isinstance(found, type) and issubclass(found, base)):
            hint = f"the entry point leads to {entry.value}; it should lead to a subclass of {_name(base)}"
            raise ConfigError(f"{brought} cannot be used", hint=hint)
        return found
    return None


def opened(settings: Any, place: Any, *methods: str) -> Any:
    """What `open` of the settings gives, or the settings themselves; it must have one of the methods."""
    try:
        found = settings.open(place) if hasattr(settings, "open") else settings
    except AgentvError:
        raise
    except Exception as error:
        if _name(type(settings)).startswith("agentv."):
            raise
        raise ConfigError(f"{_name(type(settings))} cannot be opened: {words(error)}") from error
    if not any(hasattr(found, method) for method in methods):
        wanted = " or ".join(f"'{method}'" for method in methods)
        raise ConfigError(f"{_name(type(settings))} gave {type(found).__name__}, which has no {wanted}")
    return found


def _name(type_: type) -> str:
    return f"{type_.__module__}.{type_.__qualname__}"
