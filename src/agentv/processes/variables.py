"""Environment variables that describe a case to the command that works on it."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATE_VARIABLE = "AGENTV_STATE"
_OMIT = object()
"""The JSON form of a value that has none."""


def case_variables(
    eval_id: str,
    eval_folder: Path,
    workspace: Path | None,
) -> dict[bytes, bytes]:
    """Return the variables with the id of a case, the folder of its eval file and its workspace, if any."""
    variables = {
        b"AGENTV_EVAL_ID": eval_id.encode("utf-8", "replace").replace(b"\0", b""),
        b"AGENTV_EVAL_DIR": os.fsencode(eval_folder),
    }
    if workspace is not None:
        variables[b"AGENTV_WORKSPACE"] = os.fsencode(workspace)
    return variables


def state_variables(state: Mapping[str, Any] | None) -> dict[bytes, bytes]:
    """Return the variable with the state of an attempt as JSON; none if no hooks run."""
    if state is None:
        return {}
    text = json.dumps(json_state(state), ensure_ascii=True)
    return {STATE_VARIABLE.encode(): text.encode()}


def json_state(state: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the part of a state that is JSON. Values that are not are omitted, also inside mappings."""
    found = {}
    for name, value in dict(state).items():
        try:
            found.update(_json_mapping({name: value}))
        except RecursionError:
            continue  # the value contains itself
    return found


def _json_mapping(values: Mapping[Any, Any]) -> dict[str, Any]:
    # A copy: the user's code may add to a mapping at any time, in a thread of its own.
    found = {}
    for name, value in dict(values).items():
        plain = _json_value(value)
        if isinstance(name, str) and plain is not _OMIT:
            found[name] = plain
    return found


def _json_value(value: Any) -> Any:
    """Return the JSON form of a value, or `_OMIT` if it has none."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return _OMIT
    if isinstance(value, Mapping):
        return _json_mapping(value)
    if isinstance(value, list | tuple):
        plain = [_json_value(inner) for inner in value]
        if _OMIT not in plain:
            return plain
    return _OMIT
