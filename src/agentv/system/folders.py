"""Where things are: the repo and the project around a folder, the folders up to it, the file that a path means."""

import os
import stat
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


def project_root(folder: Path) -> Path | None:
    """Return the root of the project around `folder`: its repo's, else the nearest folder with a project's `.agentv`.

    Three folders do not count, so that what lies there by chance becomes nobody's setup: the home folder and all
    above it, a folder that everybody may write to, such as /tmp, and one whose `.agentv` holds only what runs wrote.
    """
    here = Path(os.path.abspath(folder))
    if (repo := repo_root(here)) is not None:
        return repo
    home = Path(os.path.expanduser("~"))
    for place in (here, *here.parents):
        if place == home:
            return None
        if _has_project(place):
            return place
    return None


WRITTEN_BY_RUNS = frozenset(
    ("results", "runs", "cache", "prompts", "traces", "logs", "batches", "workspaces", "labels.jsonl", ".gitignore")
)
"""What runs leave in the `.agentv` folder of whatever folder they were started in."""
_ROOT_FILES = ("targets.yaml", "targets.yml", ".agentv.yaml", ".env")
_OPEN_TO_ALL = stat.S_ISVTX | stat.S_IWOTH


def _has_project(folder: Path) -> bool:
    """Return whether a folder has an `.agentv` folder that a person made, or files of a project beside it."""
    try:
        names = os.listdir(folder / ".agentv")
        if folder.stat().st_mode & _OPEN_TO_ALL == _OPEN_TO_ALL:
            return False
    except OSError:
        return False
    return (
        not names
        or not WRITTEN_BY_RUNS.issuperset(names)
        or any(map(os.path.isfile, map(folder.joinpath, _ROOT_FILES)))
    )


def folders_upward(folder: Path) -> Iterator[Path]:
    """Yield `folder` and those above it, up to the root of its project.

    Without a project the way ends at the current folder if that is above, else at `folder` itself.
    """
    here = Path(os.path.abspath(folder))
    top = project_root(here) or (Path.cwd() if here.is_relative_to(Path.cwd()) else here)
    for place in (here, *here.parents):
        yield place
        if place == top:
            return


def searched_folders(folder: Path) -> list[Path]:
    """Return the folders in which the targets file and the `.env` of the eval files in `folder` are looked for."""
    return list(dict.fromkeys([*folders_upward(folder), Path.cwd()]))


def code_folders(folder: Path, targets_file: Path | None, current: Path | None = None) -> tuple[Path, ...]:
    """Return where the user's code is looked for: beside the eval files, beside the targets file, where we are.

    `folder` is that of the eval files. A targets file in `.agentv` also stands for the folder around it.
    """
    beside = Path(os.path.abspath(targets_file)).parent if targets_file is not None else None
    around = beside.parent if beside is not None and beside.name == ".agentv" else None
    places = (Path(os.path.abspath(folder)), beside, around, current or Path.cwd())
    return tuple(dict.fromkeys(place for place in places if place is not None))


def first_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """Return the first file that has one of the names, folder by folder; None if there is none."""
    wanted = tuple(names)
    paths = (folder / name for folder in folders for name in wanted)
    return next((path for path in paths if os.path.isfile(path)), None)


def existing_folder(base: Path, given: str | None, field: str) -> Path:
    """Return the folder that a setting names, relative to `base`, or `base`; raise `ConfigError` if there is none."""
    folder = base / Path(given or ".").expanduser()
    if not folder.is_dir():
        what = "this is a file, and no folder" if folder.is_file() else "no such folder"
        raise ConfigError(f"{field}: {what}: {folder}", hint=f"it is relative to {base}")
    return folder
