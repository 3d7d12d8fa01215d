"""Where agentv stores results, run records, the cache and logs by default."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from agentv.files.folders import project_root

STATE_FOLDER_VARIABLE = "AGENTV_STATE_DIR"
FOLDER = Path(".agentv")
StateKind = Literal["batches", "cache", "logs", "prompts", "pytest", "results", "runs", "traces", "workspaces"]
_base: ContextVar[Path] = ContextVar("_base", default=Path())
"""The folder whose `.agentv` is used, by default the current folder."""


def state_folder(name: StateKind) -> Path:
    """Return the folder for one kind of file: in AGENTV_STATE_DIR, else in `.agentv`; see `state_beside`."""
    state = os.environ.get(STATE_FOLDER_VARIABLE)
    if state:
        return Path(state) / name
    return _base.get() / FOLDER / name


@contextmanager
def state_beside(paths: Sequence[str]) -> Iterator[None]:
    """Keep the state of a run in a project: that of the current folder, else that of the first eval file."""
    token = _base.set(_base_for(paths))
    try:
        yield
    finally:
        _base.reset(token)


def _base_for(paths: Sequence[str]) -> Path:
    """Return the folder whose `.agentv` a run of these files, folders or globs uses."""
    current = Path.cwd()
    if not paths or project_root(current) is not None:
        return Path()
    folder = _existing_folder(paths[0])
    project = project_root(folder)
    if project is not None:
        return project
    # Eval files without a project, such as those of a first try, belong to the current folder if that contains them.
    # The root of the file system contains everything, and does not count.
    is_root = current == current.parent
    if folder.is_relative_to(current) and not is_root:
        return Path()
    return folder


def _existing_folder(path: str) -> Path:
    """Return the folder of a file, the folder itself, or the folder in which the matches of a glob are."""
    folder = Path(os.path.realpath(path))
    while not folder.is_dir():
        folder = folder.parent
    return folder
