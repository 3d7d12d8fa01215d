"""Find the files that paths, folders and globs name, sorted and without duplicates."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from glob import has_magic, iglob
from pathlib import Path
from typing import NoReturn

import msgspec

from agentv.cases.read import READERS, is_sidecar
from agentv.config import CONFIG_NAMES
from agentv.errors import AgentvError, EvalFileError
from agentv.files.yaml import open_regular, read_bytes
from agentv.log import info
from agentv.targets.find import TARGETS_NAMES
from agentv.text import join_names

IGNORED_FOLDERS = frozenset(
    {
        "node_modules",
        "__pycache__",
        "venv",
        "site-packages",
        "dist",
        "build",
    }
)
SETUP_NAMES = (*TARGETS_NAMES, *CONFIG_NAMES)


class NothingFound(AgentvError):
    """No file matches a path or a pattern."""


def agentv_files(pattern: str, results: list[Path] | None = None) -> list[Path]:
    """Return the files that a path or a glob names; a folder names all agentv files below it.

    Results files of agentv are excluded, and added to `results`. Raise `NothingFound` if no files are left, and
    `EvalFileError` if the pattern is the path of a results file.
    """
    matches = _matches(pattern)
    files: list[Path] = []
    excluded: set[Path] = set()
    for path in _expand_folders(matches):
        if is_results_file(path):
            excluded.add(path)
        else:
            files.append(path)
    if results is not None:
        results.extend(sorted(excluded))
    if not files:
        endings = ", ".join(READERS)
        content = "YAML eval files contain 'evalcases:' or 'cases_from:'"
        hint = f"eval files end in {endings}; {content}; 'agentv init' creates a project"
        if excluded:
            hint = "it contains only results of agentv, such as " + str(min(excluded))
        raise NothingFound(f"no eval, targets or config file in {pattern!r}", hint=hint)
    return unique(files)


def _matches(pattern: str) -> list[Path]:
    """Return the files and folders that a path or a glob names.

    Raise `NothingFound` if there are none, and `EvalFileError` if the pattern is the path of a results file.
    """
    if pattern and os.path.exists(pattern):
        path = Path(pattern)
        if path.is_file() and is_results_file(path):
            raise EvalFileError(
                "this is a results file of agentv, not an eval file",
                file=path,
                hint="pass an eval file; to read results, use 'agentv show' or 'agentv compare'",
            )
        return [path]
    hint = "check the path and the current folder, or run 'agentv init' to create a project"
    if has_magic(pattern):
        _check_readable(pattern)
        found = [Path(path) for path in iglob(pattern, recursive=True)]
        if found:
            return found
        hint = "check the pattern and the current folder; quote the pattern so that the shell does not expand it"
    raise NothingFound(f"no file matches {pattern!r}", hint=hint)


def _check_readable(pattern: str) -> None:
    """Raise `EvalFileError` if a folder that a glob has to list cannot be read: `iglob` would skip it silently."""
    head, name = os.path.split(pattern)
    while name:
        if has_magic(name):
            # Not lazily: an error would leave the iterator, and the folder that it lists, open.
            for folder in list(iglob(head or os.curdir, recursive=True)):
                if os.path.isdir(folder):
                    _list_folder(folder)
        head, name = os.path.split(head)


def _list_folder(folder: str) -> None:
    """Raise `EvalFileError` if a folder cannot be listed."""
    try:
        with os.scandir(folder):
            pass
    except OSError as error:
        _raise_unreadable(error)


def _raise_unreadable(error: OSError) -> NoReturn:
    """Raise `EvalFileError` for a folder that cannot be read: it may hold cases, which must not be skipped silently."""
    raise EvalFileError(
        f"the folder cannot be read: {error.strerror}",
        file=Path(error.filename),
        hint="change its permissions, or pass the files and folders to use",
    ) from error


def _expand_folders(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from _files_under(path)
        else:
            yield path


def unique(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, sorted; if several lead to the same file, only the first, at the position of the last.

    The result does not depend on the order of `paths`.
    """
    first_paths: dict[str, Path] = {}
    # In reverse order, so that the first path to a file is stored last and replaces the others.
    for path in sorted(set(paths), reverse=True):
        first_paths[os.path.realpath(path)] = path
    return list(reversed(first_paths.values()))


def log_skipped_results(results: Iterable[Path]) -> None:
    """Inform the user about the results files that were excluded, if any."""
    names = [str(path) for path in unique(results)]
    if not names:
        return
    reason = "this is a results file"
    if len(names) > 1:
        reason = "these are results"
    info(f"skipped, because {reason} of agentv: {join_names(names, SHOWN)}")


def eval_files(
    patterns: Iterable[str],
    on_results: Callable[[list[Path]], None] = log_skipped_results,
) -> list[Path]:
    """Return the eval files that paths, folders and globs name, without sidecars, targets files and config files.

    `on_results` is called with the results files that were excluded. Raise `NothingFound` if a pattern names no eval
    file.
    """
    found: set[Path] = set()
    results: list[Path] = []
    for pattern in patterns:
        files = agentv_files(pattern, results)
        # A file that is named itself may have any name.
        evals = [path for path in files if is_eval_file(path) or _is_named(path, pattern)]
        if not evals:
            hint = f"eval files end in {', '.join(READERS)}; a sidecar is not an eval file, but extends a .jsonl file"
            raise NothingFound(f"no eval file matches {pattern!r}", hint=hint)
        found.update(evals)
    on_results(results)
    return unique(found)


def is_eval_file(path: Path) -> bool:
    """Return whether an agentv file is an eval file: neither a sidecar nor a targets or config file."""
    return not is_sidecar(path) and not _is_setup_file(path)


def _is_named(path: Path, pattern: str) -> bool:
    """Return whether the user names this file itself. A sidecar is never an eval file."""
    return path == Path(pattern) and not is_sidecar(path)


def _is_setup_file(path: Path) -> bool:
    """Return whether a file is a targets or config file of agentv, judged by its path."""
    return path.name in SETUP_NAMES or path.parent.name == ".agentv"


RESULT_KEYS = (b"timestamp", b"eval_id", b"score", b"verdict")
"""The keys that the first result in a results file has, and that an eval case does not have."""
SHOWN = 5
_HEAD_BYTES = 1 << 16


class _ResultHead(msgspec.Struct):
    timestamp: str
    eval_id: str
    score: float
    verdict: str


_decode_result = msgspec.json.Decoder(_ResultHead).decode


def is_results_file(path: Path) -> bool:
    """Return whether a file contains results of agentv, detected from its first record."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False
    head = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"---\n"):
        first = head.partition(b"\n...")[0]
        return all(b"\n" + key + b": " in first for key in RESULT_KEYS)
    if not head.startswith(b"{"):
        return False
    line, _, rest = head.partition(b"\n")
    is_truncated = not rest and len(head) >= _HEAD_BYTES
    if is_truncated:  # a long answer: the line cannot be decoded
        return all(b'"' + key + b'":' in line for key in RESULT_KEYS)
    try:
        _decode_result(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _files_under(folder: Path) -> Iterator[Path]:
    """Yield the agentv files in a folder and its subfolders."""
    for place, subfolders, names in os.walk(folder, onerror=_raise_unreadable):
        # os.walk() visits the folders that are left in its list.
        subfolders[:] = [name for name in subfolders if not _is_ignored(name)]
        current = Path(place)
        # The name of "." is empty.
        folder_name = current.name or current.absolute().name
        is_inside = folder_name == ".agentv"
        if is_inside:
            subfolders.clear()  # they contain only results, caches and logs
        for name in names:
            path = Path(place, name)
            if _is_agentv_file(path, is_inside):
                yield path


def _is_ignored(name: str) -> bool:
    if name == ".agentv":
        return False
    return name.startswith(".") or name in IGNORED_FOLDERS


def _is_agentv_file(path: Path, is_inside: bool) -> bool:
    """Return whether a file belongs to agentv; `is_inside` is whether its folder is an `.agentv` folder.

    YAML files may belong to any tool, so their content is read.
    """
    if path.name in SETUP_NAMES:
        return True
    if is_inside:
        return f".agentv/{path.name}" in SETUP_NAMES
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        return True
    if suffix not in READERS:
        return False
    return is_sidecar(path) or _may_hold_cases(path) or is_results_file(path)


_MISSPELT_CASES = re.compile(rb"^[\"']?eval[_ -]?cases?[\"']?[ \t]*:", re.IGNORECASE | re.MULTILINE)
"""A misspelled `evalcases`. A file with such a key is read, so that the mistake is reported instead of skipped."""


def _may_hold_cases(path: Path) -> bool:
    """Return whether a YAML file looks like an eval file, or cannot be read; its reader then reports why."""
    try:
        data = read_bytes(path, EvalFileError)
    except EvalFileError:
        return True
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return is_utf16 or b"evalcases" in data or b"cases_from" in data or _MISSPELT_CASES.search(data) is not None
