"""The `.env` files of a project -> variables of this process, and so of its children."""

import os
from collections.abc import Iterable, MutableMapping
from pathlib import Path

from agentv.errors import ConfigError
from agentv.system.folders import first_file, searched_folders


def load_env(folders: Iterable[Path], environment: MutableMapping[str, str] = os.environ) -> dict[Path, dict[str, str]]:
    """Set the variables of the nearest `.env` of each folder, unless they are set, and return them by file."""
    loaded: dict[Path, dict[str, str]] = {}
    for folder in folders:
        path = first_file(searched_folders(folder), [".env"])
        if path is not None and path not in loaded:
            loaded[path] = _read(path)
            for name, value in loaded[path].items():
                environment.setdefault(name, value)
    return loaded


def _read(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot be read: {reason}", file=path, hint="mend it, or remove it") from error
    from io import StringIO

    from dotenv import dotenv_values

    if "\0" in text:
        raise ConfigError("cannot be read: it holds a NUL character", file=path, hint="mend it, or remove it")
    return {name: value for name, value in dotenv_values(stream=StringIO(text)).items() if value is not None}
