"""Loads the `.env` files of a project into the environment of this process."""

import os
from collections.abc import Iterable, MutableMapping
from pathlib import Path

from agentv.errors import ConfigError
from agentv.files.folders import first_file, searched_folders
from agentv.redact import clean, secrets_in


def load_env(
    folders: Iterable[Path],
    environment: MutableMapping[str, str] = os.environ,
) -> dict[Path, dict[str, str]]:
    """Load the nearest `.env` file of each folder and return the variables by file.

    Variables that are already set are not overridden. Secrets among all of them are masked from now on.
    """
    loaded: dict[Path, dict[str, str]] = {}
    for folder in folders:
        searched = searched_folders(folder)
        path = first_file(searched, [".env"])
        if path is None or path in loaded:
            continue
        variables = _read(path)
        loaded[path] = variables
        clean.learn(secrets_in(variables))
        for name, value in variables.items():
            environment.setdefault(name, value)
    return loaded


def _read(path: Path) -> dict[str, str]:
    """Return the variables of a file; raise `ConfigError` if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, "not UTF-8 text") from error
    if "\0" in text:
        raise _unreadable(path, "contains a NUL character")
    # Imported here because most runs have no `.env` file.
    from io import StringIO

    from dotenv import dotenv_values

    variables = {}
    found = dotenv_values(stream=StringIO(text))
    for name, value in found.items():
        # A name without `=` has no value.
        if value is not None:
            variables[name] = value
    return variables


def _unreadable(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot be read: {reason}",
        file=path,
        hint="fix or remove it",
    )
