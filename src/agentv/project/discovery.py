"""Find the files that paths, folders and globs name, sorted and without duplicates."""

import os
from collections.abc import Callable, Iterable, Iterator
from glob import has_magic, iglob
from pathlib import Path

import msgspec

from agentv.cases.guidelines import CONFIG_NAMES
from agentv.cases.read import READERS, is_sidecar
from agentv.errors import AgentvError, EvalFileError
from agentv.formats.yaml import open_regular, read_bytes
from agentv.notices import say
from agentv.targets.read import TARGETS_NAMES

IGNORED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "dist", "build"})
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
        hint = f"eval files end in {', '.join(READERS)}; a YAML file has 'evalcases:' in it"
        if excluded:
            hint = "there are only results of agentv, such as " + str(min(excluded))
        raise NothingFound(f"no eval, targets or config file under {pattern!r}", hint=hint)
    return unique(files)


def _matches(pattern: str) -> list[Path]:
    """Return the files and folders that a path or a glob names.

    Raise `NothingFound` if there are none, and `EvalFileError` if the pattern is the path of a results file.
    """
    if pattern and os.path.exists(pattern):
        path = Path(pattern)
        if path.is_file() and is_results_file(path):
            hint = "name an eval file; 'agentv compare' reads results"
            raise EvalFileError("these are results of agentv, and no eval cases", file=path, hint=hint)
        return [path]
    hint = "check the path and the folder you are in; 'agentv init' makes a first project"
    if has_magic(pattern):
        found = [Path(path) for path in iglob(pattern, recursive=True)]
        if found:
            return found
        hint = "check the pattern and the folder you are in; quote it so that the shell leaves it alone"
    raise NothingFound(f"no file matches {pattern!r}", hint=hint)


def _expand_folders(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from _files_under(path)
        else:
            yield path


def unique(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, sorted; if several lead to the same file, only the first."""
    first_paths: dict[str, Path] = {}
    # In reverse order, so that the first path to a file is stored last and replaces the others.
    for path in sorted(set(paths), reverse=True):
        first_paths[os.path.realpath(path)] = path
    return list(reversed(first_paths.values()))


def tell_of_results(results: Iterable[Path]) -> None:
    """Inform the user about the results files that were excluded, if any."""
    names = [str(path) for path in unique(results)]
    if not names:
        return
    reason = "this is a results file"
    if len(names) > 1:
        reason = "these are results"
    listed = ", ".join(names[:SHOWN])
    if len(names) > SHOWN:
        listed += f" and {len(names) - SHOWN} more"
    say(f"left out, as {reason} of agentv: {listed}")


def eval_files(
    patterns: Iterable[str],
    on_results: Callable[[list[Path]], None] = tell_of_results,
) -> list[Path]:
    """Return the eval files that paths, folders and globs name, without sidecars, targets files and config files.

    `on_results` is called with the results files that were excluded. Raise `NothingFound` if a pattern names no eval
    file.
    """
    found: set[Path] = set()
    results: list[Path] = []
    for pattern in patterns:
        files = agentv_files(pattern, results)
        evals = [path for path in files if _is_eval_file(path, pattern)]
        if not evals:
            hint = f"eval files end in {', '.join(READERS)}; a sidecar belongs to the .jsonl file beside it"
            raise NothingFound(f"no eval file matches {pattern!r}", hint=hint)
        found.update(evals)
    on_results(results)
    return unique(found)


def _is_eval_file(path: Path, pattern: str) -> bool:
    """Return whether a file that matches a pattern is an eval file; one that is named explicitly may have any name."""
    if is_sidecar(path):
        return False
    return path == Path(pattern) or not _is_setup_file(path)


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
    """Return whether a file holds results of agentv, detected from its first record."""
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
    for place, subfolders, names in os.walk(folder):
        # os.walk() visits the folders that are left in its list.
        subfolders[:] = [name for name in subfolders if name == ".agentv" or not _is_ignored(name)]
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


def _may_hold_cases(path: Path) -> bool:
    """Return whether a YAML file looks like an eval file, or cannot be read; its reader then reports why."""
    try:
        data = read_bytes(path, EvalFileError)
    except EvalFileError:
        return True
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return is_utf16 or b"evalcases" in data
