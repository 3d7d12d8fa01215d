"""Where things are: the repo around a folder, the folders up to it, the file that a path means."""

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from agentv.documents import unreadable
from agentv.errors import AttachmentError, ConfigError
from agentv.records import EvalFile


def repo_root(folder: Path) -> Path | None:
    """The folder at or above `folder` that holds `.git`; None outside a repo."""
    return _root_of(Path(os.path.abspath(folder)))


@lru_cache(maxsize=256)
def _root_of(here: Path) -> Path | None:
    return next((place for place in (here, *here.parents) if os.path.lexists(place / ".git")), None)


def folders_upward(folder: Path) -> Iterator[Path]:
    """`folder` and what is above it, up to the root of its repo.

    Outside a repo the way ends at the current folder if that is above, else at `folder` itself.
    """
    here = Path(os.path.abspath(folder))
    top = repo_root(here) or (Path.cwd() if here.is_relative_to(Path.cwd()) else here)
    for place in (here, *here.parents):
        yield place
        if place == top:
            return


def searched_folders(folder: Path) -> list[Path]:
    """Where the targets file and the `.env` of the eval files in `folder` are looked for, in this order."""
    return list(dict.fromkeys([*folders_upward(folder), Path.cwd()]))


def first_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """The first file of one of these names, folder by folder."""
    wanted = tuple(names)
    paths = (folder / name for folder in folders for name in wanted)
    return next((path for path in paths if os.path.isfile(path)), None)


def existing_folder(base: Path, given: str | None, field: str) -> Path:
    """The folder that a setting names, relative to `base`, or `base` itself; `ConfigError` when it is not there."""
    folder = base / Path(given or ".").expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{field}: no such folder: {folder}", hint=f"it is relative to {base}")
    return folder


def attached_file(value: str, eval_file: EvalFile) -> Path:
    """The file that a block's path means: beside the eval file, from the repo's root, or as given.

    Raises `AttachmentError` when there is none, when it is no file, or when it is outside the repo.
    """
    if "\0" in value:
        raise AttachmentError("a file's path cannot hold a NUL character")
    if len(value.encode()) > 4000:
        raise AttachmentError(f"no such file: {value[:40]}…", hint="the path is too long; text goes into a text block")
    tried = [Path(os.path.abspath(eval_file.path)).parent, *([eval_file.root] if eval_file.root else []), Path.cwd()]
    paths = [Path(os.path.normpath(folder / value)) for folder in tried]
    path = next((path for path in paths if os.path.lexists(path)), None)
    if path is None:
        places = ", ".join(dict.fromkeys(str(path.parent) for path in paths))
        raise AttachmentError(f"no such file: {value}", hint=f"looked in {places}")
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as problem:
        raise AttachmentError(f"not a file that can be read: {value}", hint=_why(problem)) from problem
    if eval_file.root and not real.is_relative_to(eval_file.root.resolve()):
        raise AttachmentError(f"outside the repo: {value}", hint=f"copy it to a place under {eval_file.root}")
    if real.is_dir():
        raise AttachmentError(f"a folder, not a file: {value}", hint="name each file in a block of its own")
    if not real.is_file():
        raise AttachmentError(f"not a regular file: {value}", hint="a pipe or a device cannot go into a prompt")
    return path


def attached_text(value: str, path: Path) -> str:
    """The content of an attached file; it must be text."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise AttachmentError(f"not a text file: {value}", hint="only UTF-8 text can go into a prompt") from problem
    except OSError as problem:
        error = unreadable(problem, path, AttachmentError)
        raise AttachmentError(f"{error.message}: {value}", hint=error.hint) from problem


def _why(problem: OSError | RuntimeError) -> str:
    if isinstance(problem, RuntimeError) or "symbolic links" in (problem.strerror or ""):
        return "its symbolic links lead in a circle"
    return problem.strerror or str(problem)
