"""camelCase forms <-> snake_case ones. Conversion happens where data enters or leaves, nowhere else."""

import re
from collections.abc import Collection, Mapping
from typing import Any

_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")


def snake_name(name: str, known: Collection[str]) -> str:
    """The snake_case form of a known name; any other name stays as it is."""
    snake = _HUMP.sub(lambda hump: f"_{hump.group().lower()}", name)
    return snake if snake in known else name


def camel_name(name: str) -> str:
    """The camelCase form of a snake_case name."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def snake_keys(raw: Mapping[str, Any], known: Collection[str]) -> dict[str, str]:
    """By which key of `raw` each name is given; where both spellings stand, by the snake_case one."""
    keys: dict[str, str] = {}
    for key in raw:
        name = snake_name(key, known)
        if key == name or name not in keys:
            keys[name] = key
    return keys
