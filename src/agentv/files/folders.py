"""Finds the repo and the project that a folder belongs to, and the folders to search for files and code."""

import os
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from agentv.errors import ConfigError


def repo_root(folder: Path) -> Path | None:
    """Return the nearest folder, at or above `folder`, that contains `.git`; None outside a repo.

    A folder that other users can write to is never a root: anyone may have created the `.git`.
    """
    return _root_of(Path(os.path.abspath(folder)))


@lru_cache(maxsize=256)
def _root_of(here: Path) -> Path | None:
    for folder in (here, *here.parents):
        if os.path.lexists(folder / ".git") and not is_writable_by_others(folder):
            return folder
    return None


def project_root(folder: Path) -> Path | None:
    """Return the root of the project of `folder`: the root of its repo, else the nearest folder with an `.agentv`.

    Three kinds of folders are never a root, so that stray files do not configure a run: the home folder and its
    parents, folders that other users can write to and those above them, and folders whose `.agentv` contains only the
    output of runs.
    """
    here = Path(os.path.abspath(folder))
    repo = repo_root(here)
    if repo is not None:
        return repo
    home = home_folder()
    for candidate in (here, *here.parents):
        if candidate == home or _is_barrier(candidate, here):
            return None
        if _has_project(candidate):
            return candidate
    return None


def home_folder() -> Path:
    """Return the home folder of the user."""
    return Path(os.path.expanduser("~"))


def is_writable_by_others(folder: Path) -> bool:
    """Return whether every user can create files in a folder, as in /tmp."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH)


def _is_barrier(folder: Path, here: Path) -> bool:
    """Return whether a search from `here` stops below a folder, because other users may have put files into it.

    The folder in which the search starts and the current folder are the user's own choice.
    """
    return folder not in (here, Path.cwd()) and is_writable_by_others(folder)


WRITTEN_BY_RUNS = frozenset(
    (
        "results",
        "runs",
        "cache",
        "prompts",
        "traces",
        "logs",
        "batches",
        "workspaces",
        "labels.jsonl",
        ".gitignore",
    )
)
"""The names that runs write to `.agentv` in the folder in which they are started."""
_ROOT_FILES = ("targets.yaml", "targets.yml", ".agentv.yaml", ".env")


def _has_project(folder: Path) -> bool:
    """Return whether a folder has an `.agentv` folder that a user created, or project files next to it."""
    try:
        names = os.listdir(folder / ".agentv")
    except OSError:
        return False
    if not names or not WRITTEN_BY_RUNS.issuperset(names):
        return True
    return any(os.path.isfile(folder / name) for name in _ROOT_FILES)


def folders_upward(folder: Path) -> Iterator[Path]:
    """Yield `folder` and its parents, up to the root of its project.

    Outside a project, the last one is the current folder if `folder` is inside it, else `folder` itself. Outside a
    repo, the first folder that other users can write to and those above it are skipped, except for the current folder.
    """
    here = Path(os.path.abspath(folder))
    top = top_folder(here)
    current = Path.cwd()
    in_repo = repo_root(here) is not None
    is_stopped = False
    for parent in (here, *here.parents):
        if not in_repo and _is_barrier(parent, here):
            is_stopped = True
        if not is_stopped or parent == current:
            yield parent
        if parent == top:
            return


def skipped_folder(folder: Path) -> Path | None:
    """Return the first folder above `folder` that is not searched because other users can write to it, or None."""
    here = Path(os.path.abspath(folder))
    if repo_root(here) is not None:
        return None
    home = home_folder()
    for parent in here.parents:
        if parent == home:
            return None  # the search ends here
        if _is_barrier(parent, here):
            return parent
    return None


def top_folder(folder: Path) -> Path:
    """Return the root of the project of `folder`; outside a project, the current folder or `folder` itself."""
    here = Path(os.path.abspath(folder))
    root = project_root(here)
    if root is not None:
        return root
    current = Path.cwd()
    if here.is_relative_to(current):
        return current
    return here


def searched_folders(folder: Path) -> list[Path]:
    """Return the folders to search for the targets file and the `.env` of the eval files in `folder`."""
    folders = [*folders_upward(folder), Path.cwd()]
    return _unique(folders)


def _unique(folders: Iterable[Path]) -> list[Path]:
    """Return the folders without duplicates, in their order."""
    return list(dict.fromkeys(folders))


def code_folders(
    folder: Path,
    targets_file: Path | None,
    current: Path | None = None,
) -> tuple[Path, ...]:
    """Return the folders to search for the user's code: those of the eval files and the targets file, and `current`.

    `folder` is that of the eval files. If the targets file is in `.agentv`, the parent of `.agentv` is searched too.
    `current` defaults to the current folder.
    """
    folders = [Path(os.path.abspath(folder))]
    if targets_file is not None:
        beside = Path(os.path.abspath(targets_file)).parent
        folders.append(beside)
        if beside.name == ".agentv":
            folders.append(beside.parent)
    folders.append(current or Path.cwd())
    return tuple(_unique(folders))


def first_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """Return the first file with one of the names, searching folder by folder; None if there is none."""
    wanted = tuple(names)
    for folder in folders:
        for name in wanted:
            path = folder / name
            if os.path.isfile(path):
                return path
    return None


def existing_folder(
    base: Path,
    given: str | None,
    field: str,
) -> Path:
    """Return the folder that a setting names, relative to `base`; without a setting, `base`.

    Raise `ConfigError` if the folder does not exist. `field` is the name of the setting.
    """
    folder = base / Path(given or ".").expanduser()
    if folder.is_dir():
        return folder
    problem = "no such folder"
    if folder.is_file():
        problem = "a file, not a folder"
    raise ConfigError(
        f"{field}: {problem}: {folder}",
        hint=f"it is relative to {base}",
    )
