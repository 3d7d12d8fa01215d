"""Paths, folders and globs -> the files that they name, sorted, each once."""

import os
from collections.abc import Iterable, Iterator
from glob import has_magic, iglob
from pathlib import Path

from agentv.cases.guidelines import CONFIG_NAMES
from agentv.cases.read import READERS, is_sidecar
from agentv.errors import AgentvError, EvalFileError
from agentv.formats.yaml import read_bytes
from agentv.targets.read import TARGETS_NAMES

IGNORED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "dist", "build"})


class NothingFound(AgentvError):
    """No file matches a path or a pattern."""


def agentv_files(pattern: str) -> list[Path]:
    """Return the files that a path or a glob names; a folder names all files of agentv under it.

    Raise `NothingFound` if there are none.
    """
    found = [Path(pattern)] if pattern and os.path.exists(pattern) else _matches(pattern)
    if not found:
        hint = "check the path and the folder you are in; 'agentv init' makes a first project"
        if has_magic(pattern):
            hint = "check the pattern and the folder you are in; quote it so that the shell leaves it alone"
        raise NothingFound(f"no file matches {pattern!r}", hint=hint)
    files = [file for path in found for file in (_files_under(path) if path.is_dir() else [path])]
    if not files:
        hint = f"eval files end in {', '.join(READERS)}; a YAML file has 'evalcases:' in it"
        raise NothingFound(f"no eval, targets or config file under {pattern!r}", hint=hint)
    return unique(files)


def unique(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, sorted; of several that lead to one file, the first."""
    return list({os.path.realpath(path): path for path in sorted(set(paths), reverse=True)}.values())[::-1]


def eval_files(patterns: Iterable[str]) -> list[Path]:
    """Return the eval files that paths, folders and globs name, without sidecars, targets files and config files."""
    found: set[Path] = set()
    for pattern in patterns:
        files = agentv_files(pattern)
        evals = [path for path in files if not is_sidecar(path) and (path == Path(pattern) or not _is_other(path))]
        if not evals:
            hint = f"eval files end in {', '.join(READERS)}; a sidecar belongs to the .jsonl file beside it"
            raise NothingFound(f"no eval file matches {pattern!r}", hint=hint)
        found.update(evals)
    return unique(found)


def _is_other(path: Path) -> bool:
    """Return whether a file belongs to agentv, but is no eval file."""
    return path.name in (*TARGETS_NAMES, *CONFIG_NAMES) or path.parent.name == ".agentv"


def _matches(pattern: str) -> list[Path]:
    return [Path(path) for path in iglob(pattern, recursive=True)] if has_magic(pattern) else []


def _files_under(folder: Path) -> Iterator[Path]:
    here = folder.name or folder.absolute().name
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name == ".agentv" or not _is_ignored(name)]
        inside = (Path(place).name if Path(place) != folder else here) == ".agentv"
        if inside:
            folders.clear()  # there are only results, caches and logs below
        yield from (path for name in names if _is_agentv_file(path := Path(place, name), inside))


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name in IGNORED_FOLDERS


def _is_agentv_file(path: Path, inside: bool) -> bool:
    """Return whether a file in a folder (inside `.agentv`, or elsewhere) belongs to agentv.

    YAML files may belong to any tool, so their content is read.
    """
    known = (*TARGETS_NAMES, *CONFIG_NAMES)
    if inside or path.name in known:
        return path.name in known or f".agentv/{path.name}" in known
    suffix = path.suffix.lower()
    return suffix == ".jsonl" or (suffix in READERS and (is_sidecar(path) or _holds_cases(path)))


def _holds_cases(path: Path) -> bool:
    """Return whether a YAML file looks like an eval file, or cannot be read: then its reader says why."""
    try:
        data = read_bytes(path, EvalFileError)
    except EvalFileError:
        return True
    return b"evalcases" in data or data.startswith((b"\xff\xfe", b"\xfe\xff"))
