"""What scores answers. Each kind is a file here, or comes from an installed package by an entry point."""

import pkgutil
from typing import Any

from agentv.errors import ConfigError, nearest

BUILT_IN = {
    "contains": "agentv.evaluators.text:Contains",
    "equals": "agentv.evaluators.text:Equals",
}


def evaluator_type(kind: str) -> Any:
    """The class for `kind`: ours, else an installed package's. Imported now and not before."""
    if kind in BUILT_IN:
        return pkgutil.resolve_name(BUILT_IN[kind])
    from importlib.metadata import entry_points

    for entry in entry_points(group="agentv.evaluators", name=kind):
        return entry.load()
    raise ConfigError(f"unknown evaluator type {kind!r}", hint=nearest(kind, BUILT_IN))
