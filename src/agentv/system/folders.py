"""Where things are: the repo around a folder, the folders up to it, the file that a path means."""

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from agentv.errors import ConfigError


def repo_root(folder: Path) -> Path | None:
    """Return the folder at or above `folder` that holds `.git`; None outside a repo."""
    return _root_of(Path(os.path.abspath(folder)))


@lru_cache(maxsize=256)
def _root_of(here: Path) -> Path | None:
    return next((place for place in (here, *here.parents) if os.path.lexists(place / ".git")), None)


def folders_upward(folder: Path) -> Iterator[Path]:
    """Yield `folder` and those above it, up to the root of its repo.

    Outside a repo the way ends at the current folder if that is above, else at `folder` itself.
    """
    here = Path(os.path.abspath(folder))
    top = repo_root(here) or (Path.cwd() if here.is_relative_to(Path.cwd()) else here)
    for place in (here, *here.parents):
        yield place
        if place == top:
            return


def searched_folders(folder: Path) -> list[Path]:
    """Return the folders in which the targets file and the `.env` of the eval files in `folder` are looked for."""
    return list(dict.fromkeys([*folders_upward(folder), Path.cwd()]))


def first_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """Return the first file that has one of the names, folder by folder; None if there is none."""
    wanted = tuple(names)
    paths = (folder / name for folder in folders for name in wanted)
    return next((path for path in paths if os.path.isfile(path)), None)


def existing_folder(base: Path, given: str | None, field: str) -> Path:
    """Return the folder that a setting names, relative to `base`, or `base`; raise `ConfigError` if there is none."""
    folder = base / Path(given or ".").expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{field}: no such folder: {folder}", hint=f"it is relative to {base}")
    return folder
