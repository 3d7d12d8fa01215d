"""Find the targets file of an eval file."""

import os
from collections.abc import Sequence
from pathlib import Path

from agentv.errors import ConfigError
from agentv.files.folders import first_file, home_folder, searched_folders, skipped_folder

TARGETS_NAMES = (
    "targets.yaml",
    "targets.yml",
    ".agentv/targets.yaml",
    ".agentv/targets.yml",
)
EXAMPLE = """run 'agentv init' to create one, or write .agentv/targets.yaml, for example:
targets:
  - name: default
    provider: python
    function: agent.py:answer"""


def find_targets(folder: Path, given: Path | None = None) -> Path:
    """Return the targets file for the eval files in `folder`: the given one, else the nearest.

    Raise `ConfigError` if there is none.
    """
    if given is not None:
        return _given_targets(given)
    folders = searched_folders(folder)
    path = first_file(folders, TARGETS_NAMES)
    if path is None:
        raise _not_found(folder, folders)
    return path


def _not_found(folder: Path, searched: Sequence[Path]) -> ConfigError:
    """Return the error for eval files without a targets file, which names a folder that was skipped, and why."""
    places = ", ".join(map(str, searched))
    message = f"no targets file found: searched {places}"
    skipped = skipped_folder(folder)
    if skipped is not None:
        message += f"; {skipped} was skipped, because other users can write to it"
        if first_file([skipped], TARGETS_NAMES) is not None:
            hint = f"pass --targets, or remove the permission with 'chmod o-w {skipped}'"
            return ConfigError(message, hint=hint)
    home = home_folder()
    is_below_home = Path(os.path.abspath(folder)).is_relative_to(home)
    if is_below_home and first_file([home], TARGETS_NAMES) is not None:
        message += f"; {home} was skipped, because the home folder is not a project"
        return ConfigError(message, hint="run from there, pass --targets, or move the project to a separate folder")
    return ConfigError(message, hint=EXAMPLE)


def _given_targets(given: Path) -> Path:
    """Return the given file, or the targets file in the given folder."""
    if given.is_file():
        return given
    for name in TARGETS_NAMES:
        path = given / name
        if path.is_file():
            return path
    raise ConfigError(
        "no targets file found",
        file=given,
        hint=f"pass a targets file, or a folder that contains {TARGETS_NAMES[0]}",
    )
